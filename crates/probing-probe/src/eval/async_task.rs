//! Code that awaits, as a coroutine that an event loop can drive.
//!
//! It is not handed to the loop as it is: each of its steps is taken here, so that what it prints is known as its own,
//! that it can be interrupted while it computes, and that no exception of it (`SystemExit` would end the program's loop)
//! gets out.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;

use crate::eval::evaluation::Evaluation;
use crate::eval::outcome_channel::{Handoff, abandoned};
use crate::eval::thread_lookup;
use crate::python::call::{call, release};
use crate::python::signal_handlers::Installed;

/// The coroutine.
#[pyclass(frozen, name = "eval", module = "probing._probe")]
pub(crate) struct EvalTask {
    /// `None` while a step is taken, and at the end.
    running: Mutex<Option<Running>>,
}

struct Running {
    evaluation: Evaluation,
    handoff: Handoff,
    /// The first step was taken.
    taken_up: bool,
    next_piece: usize,
    /// The piece that awaits something.
    coroutine: Option<Py<PyAny>>,
}

/// How the loop goes on with it.
enum Resume<'py> {
    Send(Bound<'py, PyAny>),
    Throw(Bound<'py, PyAny>),
}

/// What a step came to.
enum Step<'py> {
    /// It awaits this.
    Awaits(Bound<'py, PyAny>),
    /// It has ended, with the text of its value.
    Ended(PyResult<Option<String>>),
}

impl EvalTask {
    /// Has not begun yet: it may be cancelled before the loop comes to it.
    pub(crate) fn new(evaluation: Evaluation, handoff: Handoff) -> Self {
        Self {
            running: Mutex::new(Some(Running {
                evaluation,
                handoff,
                taken_up: false,
                next_piece: 0,
                coroutine: None,
            })),
        }
    }

    fn take(&self) -> Option<Running> {
        self.lock().take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step<'py>(&self, py: Python<'py>, resume: Resume<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut running = self.take().ok_or_else(|| {
            PyRuntimeError::new_err("it has ended, or is in the middle of a step")
        })?;
        let sink = running.evaluation.sink.clone();
        if !running.taken_up {
            if !sink.interrupt.has_begun() && !sink.interrupt.begin() {
                running.handoff.give(abandoned());
                return Err(PyStopIteration::new_err(()));
            }
            running.taken_up = true;
            // Without these it is only harder to cancel, and its tasks print for the program.
            drop(sink.mark_context(py));
            drop(thread_lookup::canceller(py).map(|cancel| sink.interrupt.cancel_with(cancel)));
        }
        let installed = Installed::now(py);
        match sink.lend(|| sink.interrupt.allow(py, || running.advance(py, resume))) {
            Step::Awaits(awaited) => {
                *self.lock() = Some(running);
                // The exception may have come just after the step.
                if sink.interrupt.is_requested() {
                    sink.interrupt.cancel_task(py);
                }
                Ok(awaited)
            }
            Step::Ended(result) => {
                let result = running.evaluation.names.settle(py).and(result);
                let outcome = sink.lend(|| Evaluation::outcome(py, result, &installed));
                running.handoff.give(outcome);
                sink.interrupt.forget_task(py);
                running.evaluation.release(py);
                Err(PyStopIteration::new_err(()))
            }
        }
    }
}

impl Running {
    fn advance<'py>(&mut self, py: Python<'py>, resume: Resume<'py>) -> Step<'py> {
        match self.try_advance(py, resume) {
            Ok(step) => step,
            Err(error) => Step::Ended(Err(error)),
        }
    }

    fn try_advance<'py>(
        &mut self,
        py: Python<'py>,
        mut resume: Resume<'py>,
    ) -> PyResult<Step<'py>> {
        let mut value = None;
        loop {
            if let Some(coroutine) = &self.coroutine {
                match resume_with(coroutine.bind(py), &resume) {
                    Ok(awaited) => return Ok(Step::Awaits(awaited)),
                    Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                        value = Some(error.value(py).getattr("value")?);
                    }
                    Err(error) => return Err(error),
                }
                if let Some(ended) = self.coroutine.take() {
                    release(ended.into_bound(py));
                }
            } else if let Resume::Throw(exception) = resume {
                return Err(PyErr::from_value(exception));
            }
            resume = Resume::Send(py.None().into_bound(py));
            let Some(piece) = self.evaluation.code.pieces.get(self.next_piece) else {
                let last = self.evaluation.code.pieces.last();
                let is_wanted = last.is_some_and(|piece| piece.is_last_expression);
                let value = value.filter(|_| is_wanted);
                return Ok(Step::Ended(self.evaluation.show(py, value)));
            };
            self.next_piece += 1;
            let result = self.evaluation.names.run(py, piece)?;
            if piece.is_coroutine {
                self.coroutine = Some(result.unbind());
            } else {
                value = Some(result);
            }
        }
    }
}

fn resume_with<'py>(
    coroutine: &Bound<'py, PyAny>,
    resume: &Resume<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    match resume {
        Resume::Send(value) => call(&coroutine.getattr("send")?, (value,)),
        Resume::Throw(exception) => call(&coroutine.getattr("throw")?, (exception,)),
    }
}

#[pymethods]
impl EvalTask {
    fn send<'py>(&self, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.step(value.py(), Resume::Send(value))
    }

    /// As generators have it: an exception; or a class, perhaps with a value.
    #[pyo3(signature = (exception, value = None, traceback = None))]
    fn throw<'py>(
        &self,
        exception: Bound<'py, PyAny>,
        value: Option<Bound<'py, PyAny>>,
        traceback: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        drop(traceback);
        let exception = match value.filter(|value| !value.is_none()) {
            Some(value) => value,
            None if exception.is_instance_of::<pyo3::types::PyType>() => call(&exception, ())?,
            None => exception,
        };
        self.step(exception.py(), Resume::Throw(exception))
    }

    /// The loop will not go on with it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(running) = self.take() else {
            return Ok(());
        };
        if let Some(coroutine) = &running.coroutine {
            call(&coroutine.bind(py).getattr("close")?, ())?;
        }
        running.handoff.give(abandoned());
        Ok(())
    }

    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[classattr]
    fn __qualname__() -> &'static str {
        "eval"
    }
}
