//! Watches: a variable, an attribute, an item, a tensor, a variable of the environment. Each change is a row of
//! `python.variables`, and may stop the thread that made it.
//!
//! A local variable is looked at where its function has written it (`writes.rs`). Anything else is a `path.rs`; the dictionaries
//! on its way tell when they change (`dictionaries.rs`), and what they cannot tell is compared at `lines.rs`; both are one
//! watch (`values.rs`). What a value was is `remembered.rs`, in `words.rs`; of tensors `tensors.rs` knows more. `pending.rs`
//! holds back what may not be done in the middle of an assignment.

mod dictionaries;
mod lines;
mod path;
mod pending;
mod remembered;
pub(crate) mod tensors;
mod values;
mod words;
mod writes;

use std::sync::Arc;

use probing_proto::message::Failure;
use probing_proto::stops::{Action, Arm, Hold, Place, Spot, StopNews, Why};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use self::path::Path;
use super::armed::armed;
use super::evaluations::{What, evaluate};
use super::events::has_fired;
use super::frame;
use super::points::Point;
use super::{arming, of_this_process, session, sessions, sites, thread, tracing};
use crate::eval;
use crate::guarded::{call, release};
use crate::handled::Handled;
use crate::handlers;
use crate::monitoring::NAME;
use crate::recording::{self, Variable};
use crate::traceback::text_of;

pub(super) use self::lines::{are_on as look_at_lines, at_line as compare_at};
pub(super) use self::path::{named, own_attribute};
pub(super) use self::pending::{has_some as has_pending, settle};
pub(super) use self::words::{of as in_words, type_name};
pub(super) use self::writes::{
    Store, are_some as look_at_locals, at_instruction, at_line as compare_locals, at_site, bind,
};

/// Where the package keeps the tensors that a program has hooked.
const HOOKED: &str = "probing._tensors.hooked['";

/// What a point watches.
pub(super) enum Watch {
    Local(writes::Local),
    Value(values::Value),
}

/// A change that was seen.
pub(super) struct Change {
    /// In words; none when it was not bound.
    old: Option<String>,
    new: Option<String>,
    /// Where it was made, as far as that is known.
    at: Option<Spot>,
    /// What it has become, when more is asked about it.
    value: Option<Py<PyAny>>,
    /// What changed a tensor in place.
    operation: Option<String>,
}

/// What a watch is, how it is told and what that costs; `None` for what is no watch.
pub(super) fn watch(
    py: Python<'_>,
    wanted: &Arm,
) -> Result<Option<(Watch, &'static str, String)>, Failure> {
    let monitoring = arming::has_monitoring(py);
    let watch = match &wanted.place {
        Place::Local { name, .. } => {
            let cost = "nothing elsewhere; about 0.1 µs each time it is written";
            let (by, cost) = if monitoring {
                (NAME, cost.to_owned())
            } else {
                (sites::NAME, format!("{cost}; {}", sites::LIMIT))
            };
            (Watch::Local(writes::Local::new(py, name)), by, cost)
        }
        Place::Value { path: asked } => of_value(py, Path::new(py, asked)?, asked)?,
        Place::Environment { name } => of_value(py, Path::of_environment(py, name)?, name)?,
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
    let monitoring = arming::has_monitoring(py);
    let (by, cost) = match (monitoring, is_told, is_tensor) {
        (false, ..) => (
            tracing::NAME,
            "Python before 3.12 has to trace: code runs 2 to 7 times slower",
        ),
        (true, true, false) => (
            dictionaries::NAME,
            "nothing elsewhere; about 0.2 µs for each write of it",
        ),
        (true, _, true) => (
            NAME,
            "about 1 µs for each line of Python that any thread runs, to see changes in place",
        ),
        (true, false, false) => (
            NAME,
            "about 0.5 µs for each line of Python that any thread runs: it is in no dictionary",
        ),
    };
    Ok((Watch::Value(value), by, cost.to_owned()))
}

/// Begins to watch what a path leads to.
pub(super) fn begin(py: Python<'_>, point: &Arc<Point>) -> Result<(), Failure> {
    let Some(value) = values::of(point) else {
        return Ok(());
    };
    dictionaries::claim(py)?;
    armed().values.push(Arc::clone(point));
    let mut now = value.begin(py, point);
    if let Some(now) = &mut now
        && let Some(tensor) = value.now(py).filter(|_| point.armed.stats)
        && tensors::is_tensor(&tensor)
    {
        // What it was before its first change is told with its numbers, too.
        add_numbers(&tensor, now);
        value.remember(now);
    }
    point.note(Some(match now {
        Some(now) => format!("now {now}"),
        None => "not bound yet: armed for when it is".to_owned(),
    }));
    lines::refresh(py);
    Ok(())
}

/// Ends a watch; it is out of what is armed already.
pub(super) fn end(py: Python<'_>, point: &Arc<Point>) {
    let Some(value) = values::of(point) else {
        return;
    };
    for dict in value.end(point) {
        release(dict.into_bound(py).into_any());
    }
    lines::refresh(py);
    dictionaries::release_if_idle(py);
}

/// In a forked child.
pub(super) fn forget(py: Python<'_>, points: &[Arc<Point>]) {
    pending::forget();
    for point in points {
        end(py, point);
    }
    lines::forget(py);
}

/// A watch has seen a change; whether this time counts.
fn count(point: &Point) -> bool {
    let counts = point.is_armed() && point.hit();
    if counts {
        point.fire();
    }
    counts
}

/// Changes were seen, in this thread, where something may be done about them.
fn seen(frame: &Bound<'_, PyAny>, changes: Vec<(Arc<Point>, Change)>) {
    if let Some((why, hold)) = done_about(frame, changes) {
        session::stop(&frame::stack(frame), why, Some(hold));
    }
}

/// Does what is to be done about changes, but for stopping: why, if one is to stop this thread.
fn done_about(frame: &Bound<'_, PyAny>, changes: Vec<(Arc<Point>, Change)>) -> Option<(Why, Hold)> {
    let py = frame.py();
    let mut stop: Option<(Why, Hold)> = None;
    for (point, mut change) in changes {
        let counts = if point.only_counts() && !point.armed.once {
            count(&point)
        } else {
            let has_fired = || has_fired((frame, None), &point, false);
            handlers::kept_out(py, || Handled::aside(py, has_fired))
        };
        if !counts {
            continue;
        }
        if change.value.is_some() {
            let add = || add_statistics(py, &point, &mut change);
            handlers::kept_out(py, || Handled::aside(py, add));
        }
        record(py, &point, &change);
        if point.armed.action == Action::Stop && stop.is_none() {
            let Change { old, new, .. } = change;
            let why = Why::Changed {
                point: point.id,
                name: name(&point),
                old: old.unwrap_or_else(|| NOT_BOUND.to_owned()),
                new: new.unwrap_or_else(|| NOT_BOUND.to_owned()),
            };
            stop = Some((why, point.armed.hold));
        }
    }
    stop
}

const NOT_BOUND: &str = "<not bound>";

/// Of a tensor, where that was asked for.
fn add_statistics(py: Python<'_>, point: &Arc<Point>, change: &mut Change) {
    let Some(value) = change.value.take() else {
        return;
    };
    let value = value.into_bound(py);
    if let Some(new) = &mut change.new
        && tensors::is_tensor(&value)
        && let Ok(true) = evaluate(py, point, What::Statistics, || Ok(add_numbers(&value, new)))
    {
        match &point.watch {
            Some(Watch::Local(local)) => local.remember(new),
            Some(Watch::Value(value)) => value.remember(new),
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
pub(super) fn with_numbers(tensor: &Bound<'_, PyAny>) -> String {
    let mut told = words::of(tensor);
    add_numbers(tensor, &mut told);
    told
}

/// What a line does to a tensor in place, as far as its code tells.
fn operation(code: &Bound<'_, PyAny>, line: u32) -> Option<String> {
    let py = code.py();
    let told = || function(py, "operation").and_then(|it| call(&it, (code, line)));
    handlers::kept_out(py, told).ok()?.extract().ok()?
}

/// As it was asked for.
fn name(point: &Point) -> String {
    match &point.armed.place {
        Place::Local { name, .. } => name.clone(),
        Place::Value { path } => hooked_name(path).unwrap_or(path).to_owned(),
        Place::Environment { name } => format!("env:{name}"),
        _ => String::new(),
    }
}

/// What `probing.hook_tensor` calls it.
fn hooked_name(path: &str) -> Option<&str> {
    path.strip_prefix(HOOKED)?.strip_suffix("']")
}

/// A row of `python.variables`, and news for those who follow. Runs no Python.
fn record(py: Python<'_>, point: &Point, change: &Change) {
    let name = name(point);
    let thread_name = thread::name(py);
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
        of_this_process().announce(&StopNews::Changed {
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
fn nowhere() -> Spot {
    Spot {
        func: "?".to_owned(),
        file: "?".to_owned(),
        lineno: 0,
    }
}

/// A function of `watches.py`.
fn function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace = NAMESPACE.get_or_try_init(py, || {
        eval::namespace_of(py, include_str!("watches.py"), "<probing>").map(Bound::unbind)
    })?;
    namespace.bind(py).as_any().get_item(name)
}
