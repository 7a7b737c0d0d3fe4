//! Code that looks at gradients, in a program that uses torch.
//!
//! torch's engine assigns `grad` in C++, with neither the GIL nor a lock: a second thread that reads it at that moment
//! crashes the program. So such code is not run beside the program, but by its main thread between two bytecodes, when
//! `backward()` is not running. A main thread that does not come to one for long is not changing gradients either.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use probing_proto::message::{Failure, Outcome};
use pyo3::prelude::*;

use crate::eval::code::{Code, Nested};
use crate::eval::evaluation::Evaluation;
use crate::eval::outcome_channel::Handoff;
use crate::eval::thread_lookup::{self, Thread};
use crate::python::pending_call;
use crate::requests::worker;

/// What code names that reads or writes gradients.
const NAMES: [&str; 6] = [
    "grad",
    "main_grad",
    "backward",
    "zero_grad",
    "clip_grad_norm_",
    "clip_grad_value_",
];
/// How long to wait for a main thread that is in other C code.
const MAIN_THREAD_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for one that is inside `backward()`.
const PATIENCE_WITH_BACKWARD: Duration = Duration::from_secs(10);

/// Whether the code names gradients, and there can be some.
pub(crate) fn are_named_in(py: Python<'_>, code: &Code) -> PyResult<bool> {
    let modules = py.import("sys")?.getattr("modules")?;
    if !modules.contains("torch.autograd")? {
        return Ok(false);
    }
    let nested = code.nested_names(py, Nested::Anything)?;
    for name in NAMES {
        if nested.iter().any(|other| other == name) || code.mentions(py, name)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Code that the main thread is to run at its next bytecode, or the thread that answers, if that takes too long.
pub(crate) struct MainThreadEval {
    evaluation: Arc<Mutex<Option<Evaluation>>>,
    pub(crate) main: Thread,
    since: Instant,
}

impl MainThreadEval {
    /// Tells the main thread of it. The outcome is handed over, unless [`Turn::or_here`] has it.
    pub(crate) fn begin(
        py: Python<'_>,
        evaluation: Evaluation,
        handoff: &Handoff,
    ) -> Result<Self, Failure> {
        let main = Thread::find(py, "main")?;
        let event_loop = main.running_loop(py)?;
        evaluation.sink.interrupt.await_thread(main.ident);
        let turn = Self {
            evaluation: Arc::new(Mutex::new(Some(evaluation))),
            main,
            since: Instant::now(),
        };
        let (evaluation, receiver) = (Arc::clone(&turn.evaluation), handoff.clone());
        // When the interpreter takes no more such calls, nobody comes for it but this thread.
        pending_call::send(Box::new(move |py| {
            if let Some(evaluation) = take(&evaluation) {
                receiver.give(evaluation.run(py));
            }
        }));
        if let Some(event_loop) = event_loop {
            thread_lookup::wake(&event_loop)?;
        }
        Ok(turn)
    }

    /// Runs the code here and now if the main thread has not come to it for too long.
    pub(crate) fn or_here(&self) -> Option<Outcome> {
        let waited = self.since.elapsed();
        if waited < MAIN_THREAD_TIMEOUT {
            return None;
        }
        worker::with_interpreter(|py| {
            // Both that, and whether somebody has taken it, hold while the GIL is ours.
            if waited < PATIENCE_WITH_BACKWARD && self.main.is_in(py, "torch/autograd/") {
                return None;
            }
            take(&self.evaluation).map(|evaluation| evaluation.run(py))
        })
        .flatten()
    }
}

fn take(evaluation: &Mutex<Option<Evaluation>>) -> Option<Evaluation> {
    evaluation
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
}
