//! Running a piece of code with the program's live names.
//!
//! The interpreter's own `eval` is called from here, so no frame of ours is in any traceback.

use std::sync::atomic::{AtomicU64, Ordering};

use probing_proto::message::{Eval, Outcome, fit};
use pyo3::exceptions::{PySyntaxError, PyValueError};
use pyo3::prelude::*;

use crate::eval::code::Code;
use crate::eval::last_value::{self, ConnectionValue};
use crate::eval::namespace::Names;
use crate::eval::outcome_channel::abandoned;
use crate::eval::storage;
use crate::eval::traceback;
use crate::python::call::{call, release_error};
use crate::python::embedded::builtins;
use crate::python::signal_handlers::{self, Installed};
use crate::python::text::text_of;
use crate::requests::output_sink::Sink;

/// Code that is ready to run, on whichever thread.
pub(crate) struct Evaluation {
    pub(crate) code: Code,
    pub(crate) names: Names,
    pub(crate) sink: Sink,
    /// What `_` is for this client.
    held: ConnectionValue,
    wish: EvalOptions,
}

/// What a client wants of the value of a last expression.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EvalOptions {
    /// To have it held.
    keep: bool,
    /// To know where it is, and not what it is.
    storage: bool,
}

impl EvalOptions {
    pub(crate) fn of(eval: &Eval) -> Self {
        Self {
            keep: eval.keep,
            storage: eval.storage,
        }
    }
}

/// Compiles `source`; what is wrong with it is its outcome.
pub(crate) fn compile(py: Python<'_>, source: &str) -> Result<Code, Outcome> {
    let file = next_file_name();
    match Code::compile(py, source, &file) {
        Ok(code) => {
            traceback::remember_source(file, source);
            Ok(code)
        }
        Err(error) if is_syntax_error(py, &error) => Err(Outcome::SyntaxError {
            text: traceback::place(py, &error),
        }),
        Err(error) => Err(Outcome::Raised(traceback::describe(py, &error))),
    }
}

/// Each eval's own, so that tracebacks find the lines of the right one.
fn next_file_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    format!("<eval {}>", COUNT.fetch_add(1, Ordering::Relaxed))
}

fn is_syntax_error(py: Python<'_>, error: &PyErr) -> bool {
    // Before 3.12 a NUL in the source is a ValueError.
    error.is_instance_of::<PySyntaxError>(py) || error.is_instance_of::<PyValueError>(py)
}

impl Evaluation {
    /// In `__main__`, or in a frame.
    pub(crate) fn new(
        py: Python<'_>,
        code: Code,
        frame: Option<&Bound<'_, PyAny>>,
        client: (Sink, ConnectionValue, EvalOptions),
    ) -> PyResult<Self> {
        let (sink, held, wish) = client;
        let last = || last_value::recall(py, &held).map(Bound::unbind);
        let names = match frame {
            Some(frame) => Names::of_frame(py, &code, frame, last)?,
            None => Names::of_main(py, &code, last)?,
        };
        Ok(Self {
            code,
            names,
            sink,
            held,
            wish,
        })
    }

    /// In a frame of this very thread, which stands still: what is assigned there is the frame's.
    pub(crate) fn at_stop(
        py: Python<'_>,
        code: Code,
        frame: &Bound<'_, PyAny>,
        client: (Sink, ConnectionValue, EvalOptions),
    ) -> PyResult<Self> {
        let (sink, held, wish) = client;
        let last = || last_value::recall(py, &held).map(Bound::unbind);
        let names = Names::of_standing_frame(py, &code, frame, last)?;
        Ok(Self {
            code,
            names,
            sink,
            held,
            wish,
        })
    }

    /// Runs it in this thread until it ends or is interrupted; code that awaits nothing.
    pub(crate) fn run(self, py: Python<'_>) -> Outcome {
        let interrupt = &self.sink.interrupt;
        if !interrupt.begin() {
            return abandoned();
        }
        let outcome = self.sink.lend(|| {
            let installed = Installed::now(py);
            let execute = || signal_handlers::let_in(py, || self.execute(py));
            let result = interrupt.allow(py, execute);
            Self::outcome(py, result, &installed)
        });
        self.release(py);
        outcome
    }

    fn execute(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let mut value = None;
        for piece in &self.code.pieces {
            value = Some(self.names.run(py, piece)?).filter(|_| piece.is_last_expression);
        }
        self.show(py, value)
    }

    /// The text of the last expression's value, unless that is `None`.
    pub(crate) fn show(
        &self,
        py: Python<'_>,
        value: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Option<String>> {
        let Some(value) = value.filter(|value| !value.is_none()) else {
            return Ok(None);
        };
        last_value::keep(&value, self.wish.keep.then_some(&self.held));
        if self.wish.storage {
            return storage::describe_storage(&value).map(Some);
        }
        let shown = call(builtins(py)?.repr.bind(py), (value,))?;
        Ok(Some(fit(text_of(&shown))))
    }

    /// What it came to; `installed` are the program's handlers of signals as it began.
    pub(crate) fn outcome(
        py: Python<'_>,
        result: PyResult<Option<String>>,
        installed: &Installed<'_>,
    ) -> Outcome {
        match result {
            Ok(value) => Outcome::Finished { value },
            Err(error) => {
                let raised = traceback::describe(py, &error);
                signal_handlers::give_back_since(installed, py, &error);
                // With it go the frames it came through and all that they held.
                release_error(py, error);
                Outcome::Raised(raised)
            }
        }
    }

    /// With it may go the last reference to a frame.
    pub(crate) fn release(self, py: Python<'_>) {
        self.names.release(py);
    }
}
