//! What the interpreter tells, whichever way it does: a thread is at a line, begins a function, leaves one, raises.
//!
//! All of this runs in threads of the program, with the GIL held, in the middle of their code. Nothing is raised there.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use probing_proto::stops::{Action, Hold, Why};
use pyo3::prelude::*;

use super::armed::{Met, Passed, armed, armed_if_free};
use super::arming;
use super::evaluations::{NoValue, What, evaluate};
use super::frame;
use super::parking;
use super::points::Point;
use super::session;
use super::sites;
use super::states;
use super::steps;
use super::{actions, exceptions, signals, watches};
use crate::codes::{forget_globals, module_of};
use crate::forks;
use crate::guarded::release_error;
use crate::handled::Handled;
use crate::handlers;
use crate::interned::interned;

/// Whether an event is wanted again where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Again,
    Never,
}

/// How many steps are under way and threads hold the others: then every event matters.
static SPECIAL: AtomicU32 = AtomicU32::new(0);

/// How often code runs quietly at the moment, on all threads: where it does nowhere, none need ask what is its own.
static QUIETS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// How often this thread has said that nothing of it is to be looked at.
    static QUIET: Cell<u32> = const { Cell::new(0) };
}

/// Runs code in which nothing stops: our own, and what clients have evaluated.
pub(crate) fn quietly<T>(code: impl FnOnce() -> T) -> T {
    QUIETS.fetch_add(1, Ordering::AcqRel);
    QUIET.set(QUIET.get() + 1);
    let result = code();
    QUIET.set(QUIET.get() - 1);
    QUIETS.fetch_sub(1, Ordering::AcqRel);
    result
}

#[inline]
pub(super) fn is_quiet() -> bool {
    (QUIETS.load(Ordering::Relaxed) > 0 && QUIET.get() > 0)
        || forks::are_under_way()
        || !super::is_of_this_process()
}

pub(super) fn is_special() -> bool {
    SPECIAL.load(Ordering::Acquire) > 0
}

/// From now on every event matters; to be followed by [`end_special`].
pub(super) fn begin_special() {
    SPECIAL.fetch_add(1, Ordering::AcqRel);
}

pub(super) fn end_special() {
    SPECIAL.fetch_sub(1, Ordering::AcqRel);
}

/// In a forked child.
pub(super) fn forget_special() {
    SPECIAL.store(0, Ordering::Release);
}

/// A thread is at a line, and every event matters.
pub(super) fn line<'py>(
    py: Python<'py>,
    code: usize,
    line: u32,
    frame: Option<&Bound<'py, PyAny>>,
) -> After {
    if is_quiet() {
        return After::Again;
    }
    parking::park(py);
    let Some(frame) = frame.cloned().or_else(|| frame::current(py)) else {
        return After::Again;
    };
    let arrival = if steps::at_line(&frame, line) {
        Arrival::EndOfStep
    } else {
        Arrival::Line
    };
    let met = armed().at_line(code, line, || Some(frame.as_borrowed()));
    match (met, arrival) {
        (Met::Points(points), arrival) => reached(&frame, points, arrival),
        (_, Arrival::EndOfStep) => reached(&frame, Vec::new(), arrival),
        (Met::Nothing, _) => After::Never,
        (Met::NotNow, _) => After::Again,
    }
}

/// The same where a twin calls out next, on Pythons that have them.
pub(super) fn line_of_call(frame: &Bound<'_, PyAny>, (code, line, begins): (usize, u32, bool)) {
    if is_quiet() {
        return;
    }
    let mut arrival = Arrival::Line;
    if is_special() {
        parking::park(frame.py());
        if steps::at_line(frame, line) {
            arrival = Arrival::EndOfStep;
        }
    }
    let met =
        armed_if_free().and_then(|armed| Some(armed.code(code)?.at_call((line, begins), frame)));
    match met {
        Some(Met::Points(points)) => {
            reached(frame, points, arrival);
        }
        _ if arrival == Arrival::EndOfStep => {
            reached(frame, Vec::new(), arrival);
        }
        _ => {}
    }
}

/// A thread is where points are, in a function that called us. Whether it is to be told of the line once more, to stop there.
pub(super) fn called(frame: &Bound<'_, PyAny>, points: Vec<Passed>) -> bool {
    if is_quiet() {
        return false;
    }
    reached(frame, points, Arrival::Start);
    is_special() && steps::is_under_way()
}

/// A thread is where points are.
pub(super) fn points<'py>(
    py: Python<'py>,
    frame: Option<&Bound<'py, PyAny>>,
    points: Vec<Passed>,
) -> After {
    if is_quiet() {
        return After::Again;
    }
    match frame.cloned().or_else(|| frame::current(py)) {
        Some(frame) => reached(&frame, points, Arrival::Line),
        None => After::Again,
    }
}

/// A function begins.
pub(super) fn start<'py>(code: &Bound<'py, PyAny>, frame: Option<&Bound<'py, PyAny>>) -> After {
    let py = code.py();
    if is_quiet() {
        return After::Again;
    }
    let Some(frame) = frame.cloned().or_else(|| frame::current(py)) else {
        return After::Again;
    };
    seek(code, &frame);
    let is_stepped_into = is_special() && steps::at_start(&frame);
    let Some(armed) = armed_if_free() else {
        return After::Again;
    };
    let met = armed.at_start(code.as_ptr() as usize, &frame);
    drop(armed);
    match met {
        Met::Points(points) => reached(&frame, points, Arrival::Start),
        Met::NotNow => After::Again,
        Met::Nothing if is_stepped_into => After::Again,
        Met::Nothing => After::Never,
    }
}

/// A generator or a coroutine goes on.
pub(super) fn resume<'py>(code: &Bound<'py, PyAny>, frame: Option<&Bound<'py, PyAny>>) -> After {
    if is_quiet() {
        return After::Again;
    }
    let Some(frame) = frame.cloned().or_else(|| frame::current(code.py())) else {
        return After::Again;
    };
    seek(code, &frame);
    if is_special() && steps::at_start(&frame) {
        After::Again
    } else {
        After::Never
    }
}

/// A function ends, by returning a value or by an exception.
pub(super) fn end<'py>(
    py: Python<'py>,
    frame: Option<&Bound<'py, PyAny>>,
    value: Option<&Bound<'py, PyAny>>,
) {
    if !is_special() || is_quiet() {
        return;
    }
    let Some(frame) = frame.cloned().or_else(|| frame::current(py)) else {
        return;
    };
    if steps::at_end(&frame, value.is_some()) {
        let value = value.map(watches::in_words).unwrap_or_default();
        session::stop(&frame::stack(&frame), Why::Returned { value }, None);
    }
}

/// An exception is raised.
pub(super) fn raised<'py>(
    frame: Option<&Bound<'py, PyAny>>,
    exception: &Bound<'py, PyAny>,
    traceback: &Bound<'py, PyAny>,
) {
    let py = exception.py();
    if is_quiet() {
        return;
    }
    // On its way out it is told again in every frame.
    let next = traceback.getattr(interned!(py, "tb_next"));
    let is_first = next.map_or(true, |next| next.is_none());
    if is_first && let Some(frame) = frame.cloned().or_else(|| frame::current(py)) {
        handlers::kept_out(py, || exceptions::raised(&frame, exception));
    }
}

/// Code that begins may be what points wait for.
fn seek(code: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) {
    let address = code.as_ptr() as usize;
    let Some(seekers) = armed_if_free().map(|mut armed| armed.seekers_of(address)) else {
        return;
    };
    if seekers.is_empty() || sites::is_twin(address) {
        return;
    }
    handlers::kept_out(code.py(), || bind_in(&seekers, code, frame));
}

fn bind_in(seekers: &[Arc<Point>], code: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) {
    let module = module_of(frame);
    let globals = frame::globals(frame).ok();
    for point in seekers {
        if let Some(finder) = &point.finder
            && let Some(found) = signals::own(code.py(), finder.bind(code, &module))
        {
            let is_found = !found.is_empty();
            // Another function of that name, which has no such variable.
            drop(arming::bind(point, found, globals.as_ref()));
            if is_found {
                forget_globals(code.py());
            }
        }
    }
}

/// How a thread came to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// A function begins: it has not come to its first line yet.
    Start,
    Line,
    EndOfStep,
}

/// A thread is at a place.
fn reached(frame: &Bound<'_, PyAny>, points: Vec<Passed>, arrival: Arrival) -> After {
    let py = frame.py();
    let mut stop: Option<(Why, Hold)> = None;
    let mut visit = || {
        for Passed { point, holds, line } in &points {
            if has_fired((frame, Some(*line)), point, *holds)
                && stop.is_none()
                && point.armed.action == Action::Stop
            {
                let why = Why::Breakpoint { point: point.id };
                stop = Some((why, point.armed.hold));
            }
        }
    };
    // What only counts runs nothing.
    if points.iter().all(|passed| passed.point.only_counts()) {
        visit();
    } else {
        handlers::kept_out(py, || Handled::aside(py, || states::untraced(py, visit)));
    }
    match (arrival, stop) {
        (Arrival::Start, Some((why, hold))) => session::stop_inside(frame, why, hold),
        (_, Some((why, hold))) => session::stop(&frame::stack(frame), why, Some(hold)),
        (Arrival::EndOfStep, None) => session::stop(&frame::stack(frame), Why::Step, None),
        (_, None) => {}
    }
    After::Again
}

/// Whether something was done for a point, or is to be.
pub(super) fn has_fired(
    (frame, line): (&Bound<'_, PyAny>, Option<u32>),
    point: &Arc<Point>,
    is_known_to_hold: bool,
) -> bool {
    let py = frame.py();
    if !point.is_armed() || !(is_known_to_hold || holds(frame, point)) || !point.hit() {
        return false;
    }
    point.fire();
    actions::act((frame, line), point);
    // One that is to stop has not yet, where no thread may.
    let is_passed = point.armed.action == Action::Stop && forks::are_handled(py);
    if point.armed.once && !is_passed {
        arming::disarm_itself(py, point, "it was to be met once, and was");
    }
    true
}

/// Whether a point's condition holds. An error in it disarms the point.
fn holds(frame: &Bound<'_, PyAny>, point: &Arc<Point>) -> bool {
    let Some(condition) = &point.condition else {
        return true;
    };
    let py = frame.py();
    let holds = evaluate(py, point, What::Condition, || condition.holds(frame));
    match holds {
        Ok(holds) => holds && point.is_armed(),
        Err(NoValue::Interrupted) => false,
        Err(NoValue::Raised(error)) => {
            let reason = format!("its condition raised {}", in_words(py, error));
            arming::disarm_itself(py, point, &reason);
            false
        }
    }
}

/// What an expression of a point raised. What a handler of a signal raised meanwhile is the program's.
pub(super) fn in_words(py: Python<'_>, error: PyErr) -> String {
    let words = crate::traceback::describe(py, &error);
    handlers::give_back(py, &error);
    release_error(py, error);
    if words.message.is_empty() {
        words.exception
    } else {
        format!("{}: {}", words.exception, words.message)
    }
}
