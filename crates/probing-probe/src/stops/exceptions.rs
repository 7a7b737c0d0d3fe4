//! Exceptions: as they are raised, by type, and those that nobody catches. Each is a row of `python.exceptions`, with the
//! stack of the moment; it may stop the thread.

use std::sync::{Arc, Mutex, PoisonError};

use probing_proto::stops::{Action, Place, Why};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType, PyWeakrefReference};

use super::actions;
use super::armed::{armed, armed_if_free};
use super::events::{self, has_fired};
use super::frame;
use super::lent::{Lent, UnderGil};
use super::points::Point;
use super::session;
use super::signals;
use super::thread;
use crate::eval;
use crate::guarded::call;
use crate::handled::Handled;
use crate::handlers;
use crate::immortal::Immortal;
use crate::recording::{Exception, exception as record};
use crate::traceback::text_of;

/// Points that wait for exceptions that nobody catches; our hooks are set while there are some. Reached with the GIL held only.
static UNCAUGHT: Mutex<Uncaught> = Mutex::new(Uncaught {
    points: Vec::new(),
    are_hooks_set: false,
});

struct Uncaught {
    points: Vec<Arc<Point>>,
    are_hooks_set: bool,
}

/// Classes that no point waits for: most exceptions of a program are of few.
static UNWANTED: UnderGil<Vec<Unwanted>> = UnderGil::new(Vec::new());
const MAX_UNWANTED: usize = 16;

/// One of them, not kept alive.
struct Unwanted {
    address: usize,
    class: Py<PyWeakrefReference>,
}

/// Has a point be told of exceptions.
pub(super) fn arm(py: Python<'_>, point: &Arc<Point>) -> PyResult<()> {
    match point.armed.place {
        Place::Raise { .. } => {
            armed().raises.push(Arc::clone(point));
            let forgotten = std::mem::take(&mut *unwanted());
            drop(forgotten);
        }
        Place::Uncaught => {
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

pub(super) fn disarm(py: Python<'_>, point: &Arc<Point>) {
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
pub(super) fn forget(py: Python<'_>) {
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

fn tell(args: &Bound<'_, PyTuple>) {
    if let (Ok(kind), Ok(exception)) = (args.get_item(0), args.get_item(1))
        && !events::is_quiet()
    {
        handlers::kept_out(args.py(), || not_caught(&text_of(&kind), &exception));
        handlers::run_soon();
    }
}

fn unwanted() -> Lent<'static, Vec<Unwanted>> {
    UNWANTED.lend()
}

/// Whether a point may wait for exceptions of this class. Told quickly, as any may be raised a million times a second.
#[inline]
pub(super) fn may_be_wanted(class: &Bound<'_, PyType>) -> bool {
    let address = class.as_ptr() as usize;
    let is_it = |unwanted: &Unwanted| {
        // Another class may have the address of one that is no more.
        let is_alive = || unwanted.class.bind(class.py()).upgrade().is_some();
        unwanted.address == address && is_alive()
    };
    !unwanted().iter().any(is_it)
}

/// No point waits for exceptions of this class.
fn is_unwanted(class: &Bound<'_, PyType>) {
    if let Ok(reference) = PyWeakrefReference::new(class) {
        let mut unwanted = unwanted();
        let dropped = (unwanted.len() >= MAX_UNWANTED).then(|| unwanted.remove(0));
        unwanted.push(Unwanted {
            address: class.as_ptr() as usize,
            class: reference.unbind(),
        });
        drop(unwanted);
        drop(dropped);
    }
}

/// An exception is raised in a frame, the first that it comes through.
pub(super) fn raised(frame: &Bound<'_, PyAny>, exception: &Bound<'_, PyAny>) {
    let Some(points) = armed_if_free().map(|armed| armed.raises.clone()) else {
        return;
    };
    let meant = points.iter().filter(|point| is_meant(point, exception));
    let meant: Vec<_> = meant.collect();
    if meant.is_empty() {
        is_unwanted(&exception.get_type());
        return;
    }
    let py = frame.py();
    let mut stop = None;
    Handled::aside(py, || {
        for point in meant {
            if has_fired((frame, None), point, false) {
                let (name, message) = seen(point, "raised", (exception, &frame::stack(frame)));
                if point.armed.action == Action::Stop {
                    let why = Why::Raised {
                        point: point.id,
                        exception: name,
                        message,
                        uncaught: false,
                    };
                    stop.get_or_insert((why, point.armed.hold));
                }
            }
        }
    });
    if let Some((why, hold)) = stop {
        session::stop(&frame::stack(frame), why, Some(hold));
    }
}

/// An exception that nobody catches has come to its end.
fn not_caught(kind: &str, exception: &Bound<'_, PyAny>) {
    let py = exception.py();
    let points = uncaught().points.clone();
    let frames = function(py, "frames")
        .and_then(|frames| call(&frames, (exception,)))
        .and_then(|frames| frames.extract::<Vec<Bound<'_, PyAny>>>());
    let frames = signals::own(py, frames).unwrap_or_default();
    let Some(innermost) = frames.first() else {
        return;
    };
    let mut stop = None;
    for point in &points {
        if !has_fired((innermost, None), point, false) {
            continue;
        }
        let (name, message) = seen(point, kind, (exception, &frames));
        if point.armed.action == Action::Stop {
            let why = Why::Raised {
                point: point.id,
                exception: name,
                message,
                uncaught: true,
            };
            stop.get_or_insert((why, point.armed.hold));
        }
    }
    if let Some((why, hold)) = stop {
        session::stop(&frames, why, Some(hold));
    }
}

/// Whether an exception is of the class that a point waits for.
fn is_meant(point: &Point, exception: &Bound<'_, PyAny>) -> bool {
    let Place::Raise {
        exception: Some(wanted),
    } = &point.armed.place
    else {
        return true;
    };
    let is_it = function(exception.py(), "is_a").and_then(|is_a| call(&is_a, (exception, wanted)));
    let is_it = is_it.and_then(|is_it| is_it.is_truthy());
    signals::own(exception.py(), is_it).unwrap_or(false)
}

/// Records an exception; its class and what it says.
fn seen(
    point: &Point,
    kind: &str,
    (exception, frames): (&Bound<'_, PyAny>, &[Bound<'_, PyAny>]),
) -> (String, String) {
    let py = exception.py();
    let ask = |name: &str| function(py, name).and_then(|it| call(&it, (exception,)));
    let described = ask("described").and_then(|it| it.extract::<(String, String)>());
    let described = signals::own(py, described);
    let (name, message) = described.unwrap_or_else(|| ("?".to_owned(), String::new()));
    let chain = ask("chain").and_then(|it| it.extract::<Vec<(String, String)>>());
    let chain = signals::own(py, chain).unwrap_or_default();
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
                thread_name: &thread::name(py),
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
    let namespace = NAMESPACE.get_or_try_init(py, || {
        eval::namespace_of(py, include_str!("exceptions.py"), "<probing>").map(Bound::unbind)
    })?;
    namespace.bind(py).as_any().get_item(name)
}
