//! The thread that does the work of one request: made for it, gone after it.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use probing_proto::message::{Event, Failure, Message};
use pyo3::prelude::*;

use crate::breakpoints;
use crate::eval::active::Evals;
use crate::eval::output_sink::{OutputReceiver, Sink};
use crate::eval::stdout_capture;
use crate::process::fork_child;
use crate::process::per_process::PerProcess;
use crate::process::signal_mask::Mask;
use crate::python::main_thread_name;
use crate::server::lifecycle;

/// As large as the main thread's usually is: evaluated code may recurse as deep as the program's.
const STACK: usize = 8 << 20;

/// Work for a client: its answer, or `None` when the interpreter ends.
pub(crate) type Work = Box<dyn FnOnce(&Sink) -> Option<Event> + Send>;

/// Starts a thread that does the work and answers into the sink.
pub(crate) fn spawn(evals: &'static Evals, sink: Sink, work: Work) -> io::Result<()> {
    evals.enter(&sink.interrupt);
    let spawned = start({
        let sink = sink.clone();
        let generation = fork_child::generation();
        move || {
            let event = answer(work, &sink);
            sink.interrupt.end();
            // The code forked and this is the child: the client and the list of evals are the parent's.
            if generation != fork_child::generation() {
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
    spawned
}

/// Starts a thread that may run the program's code.
pub(crate) fn start(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new()
        .name("probing-eval".to_owned())
        .stack_size(STACK);
    let spawned = thread.spawn(|| {
        // Code that starts processes or threads must not hand them our blocked signals.
        if let Some(mask) = Mask::of_main_thread() {
            mask.set();
        }
        breakpoints::quietly(body);
    });
    spawned.map(drop)
}

/// How long who finds somebody at it waits before it looks again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Something that the probe's thread has others look after, from time to time: one at a time. Who holds the GIL may do so for
/// minutes, and all that wait for it would be there then.
pub(crate) struct SingleFlight {
    /// Whether a thread of this process is at it. A child of a fork has not got that thread.
    is_taken: PerProcess<AtomicBool>,
}

impl SingleFlight {
    pub(crate) const fn new() -> Self {
        Self {
            is_taken: PerProcess::new(),
        }
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken
            .get()
            .is_some_and(|is_taken| is_taken.load(Ordering::Acquire))
    }

    /// Starts a thread that does this with the interpreter, unless one is at it. Without a thread it is done the next time.
    pub(crate) fn start(&'static self, body: impl FnOnce(Python<'_>) + Send + 'static) {
        let is_taken = self.is_taken.get_or_init(AtomicBool::default);
        if is_taken.swap(true, Ordering::AcqRel) {
            return;
        }
        let ending = FlightGuard { is_taken };
        // Without a thread it is dropped, with all that it was to do.
        drop(start(move || {
            let _ending = ending;
            with_interpreter(body);
        }));
    }

    /// When what is due at a time is to be looked at: while somebody is at it, not at once again.
    pub(crate) fn not_before(&self, due: Instant) -> Instant {
        if self.is_taken() {
            due.max(Instant::now() + RETRY_INTERVAL)
        } else {
            due
        }
    }
}

/// Ends a flight when it is dropped, however that comes. In a child of a fork it is the parent's that ends.
struct FlightGuard {
    is_taken: &'static AtomicBool,
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        self.is_taken.store(false, Ordering::Release);
    }
}

/// Does something with the interpreter that may run the program's code. `None` when the interpreter ends.
pub(crate) fn attached<T>(ear: OutputReceiver, body: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    with_interpreter(|py| {
        main_thread_name::prepare(py);
        stdout_capture::tap(py);
        let result = ear.lend(|| body(py));
        stdout_capture::untap(py);
        result
    })
}

/// Runs `body` with the GIL, and leaves nothing of this thread in the interpreter. `None` when the interpreter ends.
pub(crate) fn with_interpreter<T>(body: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let generation = fork_child::generation();
    Python::try_attach(|py| {
        let result = body(py);
        forget_thread(py);
        // A child that the code forked has no other thread of the program's: ours must not keep it alive.
        if generation != fork_child::generation() {
            lifecycle::stop(py);
        }
        result
    })
}

/// Does the work. Whatever goes wrong stays inside the answer.
fn answer(work: Work, sink: &Sink) -> Event {
    match panic::catch_unwind(AssertUnwindSafe(|| work(sink))) {
        Ok(Some(event)) => event,
        Ok(None) => Event::Failed(Failure::new("the interpreter is shutting down")),
        Err(panic) => Event::Failed(
            Failure::new(format!("the probe failed: {}", panic_message(&*panic)))
                .with_hint("this is a defect of Probing; the target keeps running"),
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
