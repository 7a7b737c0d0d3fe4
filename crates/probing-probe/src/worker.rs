//! The thread that runs one eval: made for it, gone after it.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::thread;
use std::time::Instant;

use probing_proto::message::{Evaluated, Event, Failure, Message};
use pyo3::prelude::*;

use crate::eval;
use crate::evals::Evals;
use crate::forked;
use crate::lifecycle;
use crate::output::{self, Sink};
use crate::signals::Mask;
use crate::threading;

/// As large as the main thread's usually is: evaluated code may recurse as deep as the program's.
const STACK: usize = 8 << 20;

/// Starts a thread that runs `code` and answers into the sink.
pub(crate) fn spawn(evals: &'static Evals, sink: Sink, code: String) -> io::Result<()> {
    evals.enter(&sink.interrupt);
    let spawned = thread::Builder::new()
        .name("probing-eval".to_owned())
        .stack_size(STACK)
        .spawn({
            let sink = sink.clone();
            let generation = forked::generation();
            move || {
                // Code that starts processes or threads must not hand them our blocked signals.
                if let Some(mask) = Mask::of_main_thread() {
                    mask.set();
                }
                let event = answer(&sink, &code);
                sink.interrupt.end();
                // The code forked and this is the child: the client and the list of evals are the parent's.
                if generation != forked::generation() {
                    return;
                }
                sink.outbox.push(Message {
                    id: Some(sink.id),
                    event,
                });
                evals.leave(&sink.interrupt);
            }
        });
    if spawned.is_err() {
        sink.interrupt.end();
        evals.leave(&sink.interrupt);
    }
    spawned.map(drop)
}

/// Runs the code. Whatever goes wrong stays inside the answer.
fn answer(sink: &Sink, code: &str) -> Event {
    let started = Instant::now();
    let generation = forked::generation();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        Python::try_attach(|py| {
            threading::prepare(py);
            let outcome =
                output::captured(py, sink.clone(), || eval::run(py, code, &sink.interrupt));
            forget_thread(py);
            // A child that the code forked has no other thread of the program's: ours must not keep it alive.
            if generation != forked::generation() {
                lifecycle::stop(py);
            }
            outcome
        })
    }));
    match outcome {
        Ok(Some(outcome)) => Event::Evaluated(Evaluated {
            took_nanos: started.elapsed().as_nanos() as u64,
            outcome,
        }),
        Ok(None) => Event::Failed(Failure::new("the interpreter is shutting down")),
        Err(panic) => Event::Failed(
            Failure::new(format!("the probe failed: {}", panic_message(&*panic)))
                .with_hint("this is a defect of Probing; the target goes on"),
        ),
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// Code that asked `threading` about its thread left a dummy entry for it there, which would outlive the thread.
fn forget_thread(py: Python<'_>) {
    let forget = || -> PyResult<()> {
        let modules = py.import("sys")?.getattr("modules")?;
        let Ok(threading) = modules.get_item("threading") else {
            return Ok(());
        };
        let own = threading.call_method0("get_ident")?;
        let active = threading.getattr("_active")?;
        if let Ok(entry) = active.get_item(&own)
            && entry.get_type().name()? == "_DummyThread"
        {
            active.del_item(own)?;
        }
        Ok(())
    };
    // A program may have replaced `threading`; then its list is its own.
    drop(forget());
}
