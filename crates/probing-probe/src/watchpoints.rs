//! Watchpoints on variables, attributes, items, tensors and environment variables.
//!
//! Each change is a row of `python.variables`, and may stop the thread that made it.
//!
//! A local variable is looked at where its function has written it (`writes.rs`). Anything else is a `path.rs`; the dictionaries
//! on its way tell when they change (`dict_watch.rs`), and what they cannot tell is compared at `lines.rs`; both are one
//! watch (`values.rs`). What a value was is `remembered.rs`, in `format.rs`; of tensors `tensors.rs` and `elements.rs` know more. `pending.rs`
//! holds back what may not be done in the middle of an assignment.

pub(crate) mod dict_watch;
pub(crate) mod elements;
pub(crate) mod format;
pub(crate) mod lines;
pub(crate) mod path;
pub(crate) mod pending;
pub(crate) mod remembered;
pub(crate) mod storage;
pub(crate) mod tensor_hooks;
pub(crate) mod tensors;
pub(crate) mod trap_handler;
pub(crate) mod values;
pub(crate) mod writes;

use std::sync::Arc;

use probing_proto::message::Failure;
use probing_proto::message::breakpoints::{
    Action, BreakpointEvent, BreakpointLocation, SetBreakpoint, SourceLocation, StopPolicy,
    StopReason,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString};

use self::path::Path;
use crate::breakpoints::evaluations::{EvaluationKind, evaluate};
use crate::breakpoints::events::has_fired;
use crate::breakpoints::index::breakpoint_index;
use crate::breakpoints::registry::Breakpoint;
use crate::breakpoints::{of_this_process, session, sessions, setting};
use crate::eval::traceback::text_of;
use crate::instrument::{settrace, sites};
use crate::python::call::{call, release};
use crate::python::current_thread;
use crate::python::embedded::embedded;
use crate::python::exc_info::Handled;
use crate::python::frame;
use crate::python::monitoring::NAME;
use crate::python::signal_handlers;
use crate::recording::{self, Variable};

pub(crate) use self::format::{format_value as in_words, type_name};
pub(crate) use self::lines::{are_on as look_at_lines, at_line as compare_at};
pub(crate) use self::path::named;
pub(crate) use self::path::own_attribute;
pub(crate) use self::pending::{has_some as has_pending, settle};
pub(crate) use self::writes::{
    Store, are_some as look_at_locals, at_instruction, at_line as compare_locals, at_site, bind,
};

/// Where the package keeps the tensors that a program has hooked.
const HOOKED: &str = "probing._tensors.hooked['";

/// What a point watches.
pub(crate) enum Watch {
    Local(writes::Local),
    Value(values::Value),
}

/// A change that was seen.
pub(crate) struct Change {
    /// In words; none when it was not bound.
    old: Option<String>,
    new: Option<String>,
    /// Where it was made, as far as that is known.
    at: Option<SourceLocation>,
    /// What it has become, when more is asked about it.
    value: Option<Py<PyAny>>,
    /// What changed a tensor in place.
    operation: Option<String>,
}

/// What a watch is, how it is told and what that costs; `None` for what is no watch.
pub(crate) fn watch(
    py: Python<'_>,
    wanted: &SetBreakpoint,
) -> Result<Option<(Watch, &'static str, String)>, Failure> {
    let monitoring = setting::has_monitoring(py);
    let watch = match &wanted.place {
        BreakpointLocation::Local { name, .. } => {
            let cost = "nothing elsewhere; about 0.1 µs each time it is written";
            let (by, cost) = if monitoring {
                (NAME, cost.to_owned())
            } else {
                (sites::NAME, format!("{cost}; {}", sites::LIMIT))
            };
            (Watch::Local(writes::Local::new(py, name)), by, cost)
        }
        BreakpointLocation::Value { path: asked } => of_value(py, Path::new(py, asked)?, asked)?,
        BreakpointLocation::Environment { name } => {
            of_value(py, Path::of_environment(py, name)?, name)?
        }
        _ => return Ok(None),
    };
    recording::make_room_for_variables(py);
    Ok(Some(watch))
}

fn of_value(
    py: Python<'_>,
    path: Path,
    asked: &str,
) -> Result<(Watch, &'static str, String), Failure> {
    let followed = path.follow(py);
    let is_tensor = followed.value.as_ref().is_some_and(tensors::is_tensor);
    let is_told = followed.tail >= path.parts.len();
    drop(followed);
    let value = values::Value::new(py, path, asked)?;
    let monitoring = setting::has_monitoring(py);
    let (by, cost) = match (monitoring, is_told, is_tensor) {
        (false, ..) => (
            settrace::NAME,
            "before Python 3.12 all code is traced: 2 to 7 times slower",
        ),
        (true, true, false) => (
            dict_watch::NAME,
            "nothing elsewhere; about 0.2 µs for each write of it",
        ),
        (true, _, true) => (
            NAME,
            "about 1 µs for each line of Python that any thread runs, to see changes in place",
        ),
        (true, false, false) => (
            NAME,
            "about 0.5 µs for each line of Python that any thread runs: not in a dictionary",
        ),
    };
    Ok((Watch::Value(value), by, cost.to_owned()))
}

/// Begins to watch what a path leads to.
pub(crate) fn begin(py: Python<'_>, point: &Arc<Breakpoint>) -> Result<(), Failure> {
    let Some(value) = values::watched_value(point) else {
        return Ok(());
    };
    dict_watch::claim(py)?;
    breakpoint_index(py).values.push(Arc::clone(point));
    let mut now = value.begin(py, point);
    if let Some(now) = &mut now
        && let Some(tensor) = value.now(py).filter(|_| point.request.stats)
        && tensors::is_tensor(&tensor)
    {
        // What it was before its first change is told with its numbers, too.
        add_numbers(&tensor, now);
        value.remember(py, now);
    }
    point.saw(now);
    lines::refresh(py);
    Ok(())
}

/// Ends a watch; it is out of what is armed already.
pub(crate) fn end(py: Python<'_>, point: &Arc<Breakpoint>) {
    let Some(value) = values::watched_value(point) else {
        return;
    };
    for dict in value.end(py, point) {
        release(dict.into_bound(py).into_any());
    }
    lines::refresh(py);
    dict_watch::release_if_idle(py);
}

/// In a forked child.
pub(crate) fn forget(py: Python<'_>, points: &[Arc<Breakpoint>]) {
    pending::forget();
    for point in points {
        end(py, point);
    }
    lines::forget(py);
}

/// A watch has seen a change; whether this time counts.
fn count(point: &Breakpoint) -> bool {
    let counts = point.is_armed() && point.hit();
    if counts {
        point.fire();
    }
    counts
}

/// Changes were seen, in this thread, where something may be done about them.
fn seen(frame: &Bound<'_, PyAny>, changes: Vec<(Arc<Breakpoint>, Change)>) {
    if let Some((why, hold)) = done_about(frame, changes) {
        session::stop(&frame::stack(frame), why, Some(hold));
    }
}

/// Does what is to be done about changes, but for stopping: why, if one is to stop this thread.
fn done_about(
    frame: &Bound<'_, PyAny>,
    changes: Vec<(Arc<Breakpoint>, Change)>,
) -> Option<(StopReason, StopPolicy)> {
    let py = frame.py();
    let mut stop: Option<(StopReason, StopPolicy)> = None;
    for (point, mut change) in changes {
        let counts = if point.only_counts() && !point.request.once {
            count(&point)
        } else {
            let has_fired = || has_fired((frame, None), &point, false);
            signal_handlers::kept_out(py, || Handled::aside(py, has_fired))
        };
        if !counts {
            continue;
        }
        if change.value.is_some() {
            let add = || add_statistics(py, &point, &mut change);
            signal_handlers::kept_out(py, || Handled::aside(py, add));
        }
        record(py, &point, &change);
        if point.request.action == Action::Stop && stop.is_none() {
            let Change { old, new, .. } = change;
            let why = StopReason::Changed {
                point: point.id,
                name: name(&point),
                old: old.unwrap_or_else(|| NOT_BOUND.to_owned()),
                new: new.unwrap_or_else(|| NOT_BOUND.to_owned()),
            };
            stop = Some((why, point.request.hold));
        }
    }
    stop
}

const NOT_BOUND: &str = "<not bound>";

/// A value that a watch reports. Python keeps variables of the environment as bytes; the program reads text. Of a tensor the
/// version counter, or some elements, may be all that changes.
///
/// Runs no Python, of the program's modes of torch neither (`tensors::Unheard`), and no handler of a signal.
fn shown(point: &Breakpoint, value: &Bound<'_, PyAny>) -> String {
    signal_handlers::kept_out(value.py(), || in_full(point, value))
}

fn in_full(point: &Breakpoint, value: &Bound<'_, PyAny>) -> String {
    if matches!(point.request.place, BreakpointLocation::Environment { .. })
        && let Ok(bytes) = value.cast_exact::<PyBytes>()
        && let Ok(text) = std::str::from_utf8(bytes.as_bytes())
    {
        return format::format_value(PyString::new(value.py(), text).as_any());
    }
    let mut shown = format::format_value(value);
    if !tensors::is_tensor(value) {
        return shown;
    }
    if let Some(version) = tensors::version(value) {
        shown.push_str(&format!(" version={}", version.count));
    }
    // Statistics say in their own way what it holds.
    if let Some(values) = elements::first(value).filter(|_| !point.request.stats) {
        shown.push_str(&format!(" values={values}"));
    }
    shown
}

/// Of a tensor, where that was asked for.
fn add_statistics(py: Python<'_>, point: &Arc<Breakpoint>, change: &mut Change) {
    let Some(value) = change.value.take() else {
        return;
    };
    let value = value.into_bound(py);
    if let Some(new) = &mut change.new
        && tensors::is_tensor(&value)
        && let Ok(true) = evaluate(py, point, EvaluationKind::Statistics, || {
            Ok(add_numbers(&value, new))
        })
    {
        match &point.watch {
            Some(Watch::Local(local)) => local.remember(py, new),
            Some(Watch::Value(value)) => {
                value.remember(py, new);
                point.saw(Some(new.clone()));
            }
            None => {}
        }
    }
    release(value);
}

/// Adds the numbers of a tensor to what it is called; whether there are some.
fn add_numbers(value: &Bound<'_, PyAny>, words: &mut String) -> bool {
    let py = value.py();
    let told = function(py, "statistics").and_then(|it| call(&it, (value,)));
    match told {
        Ok(told) if !told.is_none() => {
            words.push(' ');
            words.push_str(&text_of(&told));
            true
        }
        _ => false,
    }
}

/// A tensor in words, with its numbers; also one of a class of the program.
pub(crate) fn with_numbers(tensor: &Bound<'_, PyAny>) -> String {
    let mut told = format::format_value(tensor);
    signal_handlers::aside(tensor.py(), || add_numbers(tensor, &mut told));
    told
}

/// What a line does to a tensor in place, as far as its code tells.
fn operation(code: &Bound<'_, PyAny>, line: u32) -> Option<String> {
    let py = code.py();
    let told = || function(py, "operation").and_then(|it| call(&it, (code, line)));
    signal_handlers::kept_out(py, told).ok()?.extract().ok()?
}

/// As it was asked for.
fn name(point: &Breakpoint) -> String {
    match &point.request.place {
        BreakpointLocation::Local { name, .. } => name.clone(),
        BreakpointLocation::Value { path } => hooked_name(path).unwrap_or(path).to_owned(),
        BreakpointLocation::Environment { name } => format!("env:{name}"),
        _ => String::new(),
    }
}

/// What `probing.hook_tensor` calls it.
fn hooked_name(path: &str) -> Option<&str> {
    path.strip_prefix(HOOKED)?.strip_suffix("']")
}

/// A row of `python.variables`, and news for those who follow. Runs no Python.
fn record(py: Python<'_>, point: &Breakpoint, change: &Change) {
    let name = name(point);
    let thread_name = current_thread::name(py);
    let row = Variable {
        point: Some(point.id.0),
        name: &name,
        old: change.old.as_deref(),
        new: change.new.as_deref(),
        thread: None,
        thread_name: &thread_name,
        at: change.at.as_ref(),
        operation: change.operation.as_deref(),
    };
    recording::variable(py, &row);
    if sessions::are_followed() {
        let told = |value: &Option<String>| value.clone().unwrap_or_else(|| NOT_BOUND.to_owned());
        of_this_process().announce(&BreakpointEvent::Changed {
            point: point.id,
            name,
            old: told(&change.old),
            new: told(&change.new),
            at: change.at.clone().unwrap_or_else(nowhere),
            thread_name,
        });
    }
}

/// Where code that is no Python made a change.
fn nowhere() -> SourceLocation {
    SourceLocation {
        func: "?".to_owned(),
        file: "?".to_owned(),
        lineno: 0,
    }
}

/// A function of `watches.py`.
fn function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace =
        NAMESPACE.get_or_try_init(py, || embedded!(py, "watchpoints.py").map(Bound::unbind))?;
    namespace.bind(py).as_any().get_item(name)
}
