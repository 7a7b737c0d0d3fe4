//! Threads, frames and event loops in which evaluated code can run.
//!
//! The looking is done by `places.py`, loaded when first asked for.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};

use probing_proto::message::{Failure, FrameSelector};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::eval::interrupt::own_thread;
use crate::eval::traceback::text_of;
use crate::process::per_process::PerProcess;
use crate::python::call::{call, call_with};
use crate::python::embedded::embedded;
use crate::python::exc_info::Handled;
use crate::python::gil_cell::GilCell;
use crate::python::immortal::Immortal;
use crate::python::monitoring;

/// A thread of the program.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) ident: u64,
    pub(crate) name: String,
    pub(crate) is_main: bool,
}

impl Thread {
    /// `main`, a name, or an id.
    pub(crate) fn find(py: Python<'_>, wanted: &str) -> Result<Self, Failure> {
        let found = ask(py, "thread", (wanted,))?;
        let main: (u64, String) = extracted(&ask(py, "thread", ("main",))?)?;
        let (ident, name) = extracted(&found)?;
        Ok(Self {
            ident,
            name,
            is_main: ident == main.0,
        })
    }

    /// A frame of it.
    pub(crate) fn frame<'py>(
        &self,
        py: Python<'py>,
        wanted: &FrameSelector,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        match wanted {
            FrameSelector::Depth(depth) => ask(py, "frame", (self.ident, *depth)),
            FrameSelector::Function(name) => ask(py, "frame_of", (self.ident, name)),
        }
    }

    /// Whether its innermost code is in a file with this in its path. Where that cannot be told, it is not.
    pub(crate) fn is_in(&self, py: Python<'_>, path: &str) -> bool {
        let Ok(frame) = self.frame(py, &FrameSelector::Depth(0)) else {
            return false;
        };
        let code = frame.getattr("f_code");
        let file = code.and_then(|code| code.getattr("co_filename"));
        file.is_ok_and(|file| text_of(&file).contains(path))
    }

    /// The event loop that runs in it.
    pub(crate) fn running_loop<'py>(
        &self,
        py: Python<'py>,
    ) -> Result<Option<Bound<'py, PyAny>>, Failure> {
        let found = ask(py, "loop_of", (self.ident,))?;
        Ok((!found.is_none()).then_some(found))
    }
}

/// The event loop that code without a place of its own awaits on, and its thread.
pub(crate) fn any_loop(py: Python<'_>) -> Result<Option<(u64, Bound<'_, PyAny>)>, Failure> {
    let found = ask(py, "any_loop", ())?;
    if found.is_none() {
        return Ok(None);
    }
    extracted(&found).map(Some)
}

/// Makes a task of a coroutine.
pub(crate) fn start_on(
    event_loop: &Bound<'_, PyAny>,
    task: &Bound<'_, PyAny>,
) -> Result<(), Failure> {
    ask(event_loop.py(), "start_on", (event_loop, task)).map(drop)
}

/// Makes a loop that waits run a few bytecodes.
pub(crate) fn wake(event_loop: &Bound<'_, PyAny>) -> Result<(), Failure> {
    ask(event_loop.py(), "wake", (event_loop,)).map(drop)
}

/// Runs a coroutine to its end, in this thread.
pub(crate) fn run_alone(task: &Bound<'_, PyAny>) -> Result<(), Failure> {
    ask(task.py(), "run_alone", (task,)).map(drop)
}

/// A thread is to run something when it comes to its next line.
pub(crate) struct Visit {
    number: u64,
    visit: Py<PyAny>,
}

type Errand = Box<dyn FnOnce(Python<'_>) + Send>;

/// A visit that has not come to pass.
struct PendingVisit {
    number: u64,
    /// The thread.
    ident: u64,
    errand: Errand,
    /// `Visit` of `places.py`, once it is there.
    visit: Option<Py<PyAny>>,
}

/// A child of a fork leaves its parent's visits alone.
static AWAITED: PerProcess<GilCell<Vec<PendingVisit>>> = PerProcess::new();

impl Visit {
    /// `arrived` is called in that thread, once, with the GIL held.
    pub(crate) fn begin(
        py: Python<'_>,
        thread: &Thread,
        arrived: impl FnOnce(Python<'_>) + Send + 'static,
    ) -> Result<Self, Failure> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        // One for all threads and visits: the interpreter may be about to call it when a visit ends.
        static ARRIVE: PyOnceLock<Immortal> = PyOnceLock::new();
        let tool = if py.version_info() >= (3, 12) {
            Some(monitoring::short_tool(py)?)
        } else {
            None
        };
        let arrive = ARRIVE.get_or_try_init(py, || {
            Immortal::closure(py, c"arrive", |args| {
                arrive(args.py());
                Ok(args.py().None())
            })
        });
        let arrive = arrive.map_err(|error| failure(py, &error))?;
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        awaited().borrow_mut(py).push(PendingVisit {
            number,
            ident: thread.ident,
            errand: Box::new(arrived),
            visit: None,
        });
        let visit = ask(py, "Visit", (thread.ident, arrive.bind(py), tool));
        let visit = visit.inspect_err(|_| drop(take_awaited(py, |it| it.number == number)))?;
        // It may have arrived by now: Python code of ours ran.
        if let Some(awaited) = awaited()
            .borrow_mut(py)
            .iter_mut()
            .find(|it| it.number == number)
        {
            awaited.visit = Some(visit.clone().unbind());
        }
        Ok(Self {
            number,
            visit: visit.unbind(),
        })
    }

    /// The thread may have come to other functions since.
    pub(crate) fn renew(&self, py: Python<'_>) {
        // A thread that has ended is in no function; then it never comes.
        drop(call_method(self.visit.bind(py), "arm"));
    }

    /// Takes everything back.
    pub(crate) fn end(&self, py: Python<'_>) {
        drop(take_awaited(py, |it| it.number == self.number));
        drop(call_method(self.visit.bind(py), "end"));
    }
}

/// A thread has come to a line of a function that somebody waits in. Other threads may be in the same functions; and a second
/// line comes while the first is served.
fn arrive(py: Python<'_>) {
    let ident = own_thread();
    let is_here = |it: &PendingVisit| it.ident == ident;
    let Some(PendingVisit { errand, visit, .. }) = take_awaited(py, is_here) else {
        return;
    };
    if let Some(visit) = visit {
        drop(call_method(visit.bind(py), "end"));
    }
    // A panic would become an exception in the program's code.
    let served = AssertUnwindSafe(|| Handled::aside(py, || errand(py)));
    drop(panic::catch_unwind(served));
}

fn awaited() -> &'static GilCell<Vec<PendingVisit>> {
    AWAITED.get_or_init(|| GilCell::new(Vec::new()))
}

/// Taken out, to be dropped outside.
fn take_awaited(py: Python<'_>, is_it: impl Fn(&PendingVisit) -> bool) -> Option<PendingVisit> {
    let mut awaited = AWAITED.get()?.try_borrow_mut(py)?;
    let place = awaited.iter().position(is_it)?;
    Some(awaited.remove(place))
}

fn call_method<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    call(&object.getattr(name)?, ())
}

/// What cancels the task that runs now.
pub(crate) fn canceller(py: Python<'_>) -> Result<Bound<'_, PyAny>, Failure> {
    ask(py, "canceller", ())
}

/// Calls a function of `places.py`.
fn ask<'py>(
    py: Python<'py>,
    function: &str,
    args: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error: Into<PyErr>>,
) -> Result<Bound<'py, PyAny>, Failure> {
    let args = args.into_pyobject(py).map_err(Into::into);
    args.and_then(|args| ask_with(py, function, args))
        .map_err(|error| failure(py, &error))
}

fn ask_with<'py>(
    py: Python<'py>,
    function: &str,
    args: Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace =
        NAMESPACE.get_or_try_init(py, || embedded!(py, "thread_lookup.py").map(Bound::unbind))?;
    call_with(&namespace.bind(py).as_any().get_item(function)?, args, None)
}

fn extracted<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>>(
    answer: &'a Bound<'py, PyAny>,
) -> Result<T, Failure> {
    answer
        .extract()
        .map_err(|error| failure(answer.py(), &error))
}

/// A refusal in words; anything else as it is.
fn failure(py: Python<'_>, error: &PyErr) -> Failure {
    let words = || -> PyResult<(String, String)> {
        let arguments = error.value(py).getattr("args")?;
        Ok((
            text_of(&arguments.get_item(0)?),
            text_of(&arguments.get_item(1)?),
        ))
    };
    match words() {
        Ok((why, hint)) => Failure::new(why).with_hint(hint),
        Err(_) => Failure::new(format!("cannot find a thread or frame to run in: {error}")),
    }
}
