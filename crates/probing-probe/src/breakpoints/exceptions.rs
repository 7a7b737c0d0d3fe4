//! Breakpoints on raised and on uncaught exceptions.
//!
//! Each is a row of `python.exceptions`, with the stack of the moment; it may stop the thread.

use std::sync::{Arc, Mutex, PoisonError};

use probing_proto::message::Failure;
use probing_proto::message::breakpoints::{Action, BreakpointLocation, StopPolicy, StopReason};
use pyo3::exceptions::PyBaseException;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType, PyWeakrefReference};

use crate::breakpoints::actions;
use crate::breakpoints::evaluations::{EvaluationKind, NoValue, evaluate};
use crate::breakpoints::events::{self, has_fired};
use crate::breakpoints::index::{breakpoint_index, try_breakpoint_index};
use crate::breakpoints::interrupts;
use crate::breakpoints::registry::Breakpoint;
use crate::breakpoints::session;
use crate::python::call::call;
use crate::python::current_thread;
use crate::python::embedded::embedded;
use crate::python::exc_info::Handled;
use crate::python::frame;
use crate::python::gil_cell::{GilCell, GilGuard};
use crate::python::immortal::Immortal;
use crate::python::signal_handlers;
use crate::recording::{Exception, exception as record};

/// Points that wait for exceptions that nobody catches; our hooks are set while there are some. Reached with the GIL held only.
static UNCAUGHT: Mutex<Uncaught> = Mutex::new(Uncaught {
    points: Vec::new(),
    are_hooks_set: false,
});

struct Uncaught {
    points: Vec<Arc<Breakpoint>>,
    are_hooks_set: bool,
}

/// Classes that no point waits for: most exceptions of a program are of few.
static UNWANTED: GilCell<IgnoredClasses> = GilCell::new(IgnoredClasses {
    modules: 0,
    classes: Vec::new(),
});
const MAX_UNWANTED: usize = 16;

struct IgnoredClasses {
    /// How many modules were loaded then: a new one may give a class another name.
    modules: isize,
    classes: Vec<IgnoredClass>,
}

/// One of them, not kept alive.
struct IgnoredClass {
    address: usize,
    class: Py<PyWeakrefReference>,
}

/// Whether there can be exceptions of the class that a point is to wait for; and what to say where none is loaded yet.
pub(crate) fn check(py: Python<'_>, place: &BreakpointLocation) -> Result<Option<String>, Failure> {
    let BreakpointLocation::Raise {
        exception: Some(wanted),
    } = place
    else {
        return Ok(None);
    };
    let told = function(py, "check").and_then(|check| call(&check, (wanted,)));
    let told = told.and_then(|told| told.extract::<(bool, Option<String>)>());
    match told {
        Ok((true, note)) => Ok(note),
        Ok((false, reason)) => Err(Failure::new(reason.unwrap_or_default()).with_hint(
            "name a class as the program does: ValueError, json.JSONDecodeError, my_package.MyError",
        )),
        Err(error) => Err(Failure::new(format!("cannot find {wanted}: {error}"))),
    }
}

/// Has a point be told of exceptions.
pub(crate) fn arm(py: Python<'_>, point: &Arc<Breakpoint>) -> PyResult<()> {
    match point.request.place {
        BreakpointLocation::Raise { .. } => {
            breakpoint_index(py).raises.push(Arc::clone(point));
            forget_unwanted(py);
        }
        BreakpointLocation::Uncaught => {
            let needs_hooks = {
                let mut uncaught = uncaught();
                uncaught.points.push(Arc::clone(point));
                !std::mem::replace(&mut uncaught.are_hooks_set, true)
            };
            if needs_hooks && let Err(error) = ask_hooks(py, "set") {
                uncaught().are_hooks_set = false;
                return Err(error);
            }
        }
        _ => {}
    }
    Ok(())
}

pub(crate) fn disarm(py: Python<'_>, point: &Arc<Breakpoint>) {
    let is_last = {
        let mut uncaught = uncaught();
        uncaught.points.retain(|other| !Arc::ptr_eq(other, point));
        uncaught.points.is_empty() && std::mem::replace(&mut uncaught.are_hooks_set, false)
    };
    if is_last {
        // What the program has done to its hooks meanwhile is its own.
        drop(ask_hooks(py, "unset"));
    }
}

/// In a forked child.
pub(crate) fn forget(py: Python<'_>) {
    let points = uncaught().points.clone();
    for point in &points {
        disarm(py, point);
    }
}

fn uncaught() -> std::sync::MutexGuard<'static, Uncaught> {
    UNCAUGHT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls a method of `Hooks`, of which there is one: what it has put before the program's hooks is called without a reference
/// by some Pythons.
fn ask_hooks(py: Python<'_>, method: &str) -> PyResult<()> {
    static HOOKS: PyOnceLock<Immortal> = PyOnceLock::new();
    let hooks = HOOKS.get_or_try_init(py, || {
        let tell = Immortal::closure(py, c"not_caught", |args| {
            tell(args);
            Ok(args.py().None())
        })?;
        call(&function(py, "Hooks")?, (tell.bind(py),)).map(Immortal::new)
    })?;
    call(&hooks.bind(py).getattr(method)?, ()).map(drop)
}

/// A hook was called: with what reads its arguments, and these.
fn tell(args: &Bound<'_, PyTuple>) {
    let (Ok(read), Ok(given)) = (args.get_item(0), args.get_item(1)) else {
        return;
    };
    let Ok(given) = given.cast_into::<PyTuple>() else {
        return;
    };
    if events::is_quiet() {
        return;
    }
    let py = args.py();
    signal_handlers::kept_out(py, || {
        let read = call(&read, given).and_then(|read| read.extract());
        let read: Option<(String, Bound<'_, PyAny>)> = interrupts::own(py, read);
        if let Some((kind, exception)) = read
            && exception.is_instance_of::<PyBaseException>()
        {
            not_caught(&kind, &exception);
        }
    });
    signal_handlers::run_soon();
}

fn unwanted(py: Python<'_>) -> GilGuard<'_, IgnoredClasses> {
    UNWANTED.borrow_mut(py)
}

fn forget_unwanted(py: Python<'_>) {
    let forgotten = std::mem::take(&mut unwanted(py).classes);
    drop(forgotten);
}

/// How many modules are loaded.
#[expect(unsafe_code, reason = "asked at each exception")]
fn module_count(_py: Python<'_>) -> isize {
    // SAFETY: the GIL is held; the dictionary is borrowed. It is asked for its size only if it is one.
    unsafe { ffi::PyDict_Size(ffi::PyImport_GetModuleDict()) }
}

/// Whether a point may wait for exceptions of this class. Told quickly, as any may be raised a million times a second.
#[inline]
pub(crate) fn may_be_wanted(class: &Bound<'_, PyType>) -> bool {
    let py = class.py();
    let address = class.as_ptr() as usize;
    let is_it = |unwanted: &IgnoredClass| {
        // Another class may have the address of one that is no more.
        let is_alive = || unwanted.class.bind(class.py()).upgrade().is_some();
        unwanted.address == address && is_alive()
    };
    let unwanted = unwanted(py);
    !unwanted.classes.iter().any(is_it) || unwanted.modules != module_count(class.py())
}

/// No point waits for exceptions of this class.
fn is_unwanted(class: &Bound<'_, PyType>) {
    let py = class.py();
    let modules = module_count(class.py());
    if unwanted(py).modules != modules {
        forget_unwanted(py);
    }
    if let Ok(reference) = PyWeakrefReference::new(class) {
        let mut unwanted = unwanted(py);
        unwanted.modules = modules;
        let classes = &mut unwanted.classes;
        let dropped = (classes.len() >= MAX_UNWANTED).then(|| classes.remove(0));
        classes.push(IgnoredClass {
            address: class.as_ptr() as usize,
            class: reference.unbind(),
        });
        drop(unwanted);
        drop(dropped);
    }
}

/// An exception is raised in a frame, the first that it comes through.
pub(crate) fn raised(frame: &Bound<'_, PyAny>, exception: &Bound<'_, PyAny>) {
    let py = frame.py();
    let Some(points) = try_breakpoint_index(py).map(|armed| armed.raises.clone()) else {
        return;
    };
    let stop = Handled::aside(frame.py(), || met(&points, frame, exception));
    if let Some((why, hold)) = stop {
        session::stop(&frame::stack(frame), why, Some(hold));
    }
}

/// Does what the points that wait for this exception are to do; why the thread is to stop, if it is.
fn met(
    points: &[Arc<Breakpoint>],
    frame: &Bound<'_, PyAny>,
    exception: &Bound<'_, PyAny>,
) -> Option<(StopReason, StopPolicy)> {
    let answers = points
        .iter()
        .map(|point| (point, is_meant(point, exception)));
    let answers: Vec<_> = answers.collect();
    if answers.iter().all(|(_, is_meant)| *is_meant == Some(false)) {
        is_unwanted(&exception.get_type());
    }
    let mut stop = None;
    for (point, _) in answers.iter().filter(|(_, is)| *is == Some(true)) {
        if has_fired((frame, None), point, false) {
            let (name, message) = seen(point, "raised", (exception, &frame::stack(frame)));
            if point.request.action == Action::Stop {
                let why = StopReason::Raised {
                    point: point.id,
                    exception: name,
                    message,
                    uncaught: false,
                };
                stop.get_or_insert((why, point.request.hold));
            }
        }
    }
    stop
}

/// An exception that nobody catches has come to its end.
fn not_caught(kind: &str, exception: &Bound<'_, PyAny>) {
    let py = exception.py();
    let points = uncaught().points.clone();
    let frames = function(py, "frames")
        .and_then(|frames| call(&frames, (exception,)))
        .and_then(|frames| frames.extract::<Vec<Bound<'_, PyAny>>>());
    let frames = interrupts::own(py, frames).unwrap_or_default();
    let Some(innermost) = frames.first() else {
        return;
    };
    let mut stop = None;
    for point in &points {
        if !has_fired((innermost, None), point, false) {
            continue;
        }
        let (name, message) = seen(point, kind, (exception, &frames));
        if point.request.action == Action::Stop {
            let why = StopReason::Raised {
                point: point.id,
                exception: name,
                message,
                uncaught: true,
            };
            stop.get_or_insert((why, point.request.hold));
        }
    }
    if let Some((why, hold)) = stop {
        session::stop(&frames, why, Some(hold));
    }
}

/// Whether an exception is of the class that a point waits for; `None` when that cannot be told now.
fn is_meant(point: &Breakpoint, exception: &Bound<'_, PyAny>) -> Option<bool> {
    let BreakpointLocation::Raise {
        exception: Some(wanted),
    } = &point.request.place
    else {
        return Some(true);
    };
    let is_it = function(exception.py(), "is_a").and_then(|is_a| call(&is_a, (exception, wanted)));
    let is_it = is_it.and_then(|is_it| is_it.is_truthy());
    interrupts::own(exception.py(), is_it)
}

/// Stands for a message that took too long.
const NO_MESSAGE: &str = "<not read: it did not end in time>";

/// What an exception says, and the classes and messages of those that it came from.
type Described = ((String, String), Vec<(String, String)>);

/// Records an exception; its class and what it says. That may be computed by the program: it has as long as an expression.
fn seen(
    point: &Arc<Breakpoint>,
    kind: &str,
    (exception, frames): (&Bound<'_, PyAny>, &[Bound<'_, PyAny>]),
) -> (String, String) {
    let py = exception.py();
    let ask = |name: &str| function(py, name).and_then(|it| call(&it, (exception,)));
    let said = evaluate(
        py,
        point,
        EvaluationKind::Message,
        || -> PyResult<Described> { Ok((ask("described")?.extract()?, ask("chain")?.extract()?)) },
    );
    let name = || {
        let named = ask("named").and_then(|it| it.extract());
        interrupts::own(py, named).unwrap_or_else(|| "?".to_owned())
    };
    let ((name, message), chain) = match said {
        Ok(said) => said,
        Err(NoValue::Interrupted) => ((name(), NO_MESSAGE.to_owned()), Vec::new()),
        Err(NoValue::Raised(error)) => {
            interrupts::own::<()>(py, Err(error));
            ((name(), String::new()), Vec::new())
        }
    };
    let chain = (!chain.is_empty())
        .then(|| serde_json::to_string(&chain).ok())
        .flatten();
    if point.has_room() {
        record(
            py,
            &Exception {
                point: Some(point.id.0),
                kind,
                class: &name,
                message: &message,
                thread_name: &current_thread::name(py),
                at: frames.first().map(frame::spot_of).as_ref(),
                chain: chain.as_deref(),
                frames: actions::frames_told(frames).as_deref(),
            },
        );
    }
    (name, message)
}

/// A function of `exceptions.py`.
fn function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace =
        NAMESPACE.get_or_try_init(py, || embedded!(py, "exceptions.py").map(Bound::unbind))?;
    namespace.bind(py).as_any().get_item(name)
}
