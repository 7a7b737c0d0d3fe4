//! What the interpreter tells, whichever way it does: a thread is at a line, begins a function, leaves one, raises.
//!
//! All of this runs in threads of the program, with the GIL held, in the middle of their code. Nothing is raised there.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use probing_proto::message::breakpoints::{Action, StopPolicy, StopReason};
use pyo3::prelude::*;

use crate::breakpoints::evaluations::{EvaluationKind, NoValue, evaluate};
use crate::breakpoints::index::{
    BreakpointHit, EventMatch, breakpoint_index, try_breakpoint_index,
};
use crate::breakpoints::registry::Breakpoint;
use crate::breakpoints::session;
use crate::breakpoints::setting;
use crate::breakpoints::stepping;
use crate::breakpoints::suspend_threads;
use crate::breakpoints::{actions, exceptions, interrupts};
use crate::instrument::probe_call;
use crate::process::fork_guard;
use crate::python::call::release_error;
use crate::python::code_search::{forget_globals, module_of};
use crate::python::exc_info::Handled;
use crate::python::frame;
use crate::python::interned::interned;
use crate::python::signal_handlers;
use crate::python::thread_state;
use crate::watchpoints;

/// Whether an event is wanted again where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
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
pub(crate) fn is_quiet() -> bool {
    (QUIETS.load(Ordering::Relaxed) > 0 && QUIET.get() > 0)
        || fork_guard::are_under_way()
        || !crate::breakpoints::is_of_this_process()
}

pub(crate) fn is_special() -> bool {
    SPECIAL.load(Ordering::Acquire) > 0
}

/// From now on every event matters; to be followed by [`end_special`].
pub(crate) fn begin_special() {
    SPECIAL.fetch_add(1, Ordering::AcqRel);
}

pub(crate) fn end_special() {
    SPECIAL.fetch_sub(1, Ordering::AcqRel);
}

/// In a forked child.
pub(crate) fn forget_special() {
    SPECIAL.store(0, Ordering::Release);
}

/// A thread is at a line, and every event matters.
pub(crate) fn line<'py>(
    py: Python<'py>,
    code: usize,
    line: u32,
    frame: Option<&Bound<'py, PyAny>>,
) -> After {
    if is_quiet() {
        return After::Again;
    }
    suspend_threads::park(py);
    let Some(frame) = frame.cloned().or_else(|| frame::current(py)) else {
        return After::Again;
    };
    let arrival = if stepping::at_line(&frame, line) {
        Arrival::EndOfStep
    } else {
        Arrival::Line
    };
    let met = breakpoint_index(py).at_line(code, line, || Some(frame.as_borrowed()));
    match (met, arrival) {
        (EventMatch::Hits(points), arrival) => reached(&frame, points, arrival),
        (_, Arrival::EndOfStep) => reached(&frame, Vec::new(), arrival),
        (EventMatch::Nothing, _) => After::Never,
        (EventMatch::NotNow, _) => After::Again,
    }
}

/// The same where a twin calls out next, on Pythons that have them.
pub(crate) fn line_of_call(frame: &Bound<'_, PyAny>, (code, line, begins): (usize, u32, bool)) {
    let py = frame.py();
    if is_quiet() {
        return;
    }
    let mut arrival = Arrival::Line;
    if is_special() {
        suspend_threads::park(frame.py());
        if stepping::at_line(frame, line) {
            arrival = Arrival::EndOfStep;
        }
    }
    let met = try_breakpoint_index(py)
        .and_then(|armed| Some(armed.code(code)?.at_call((line, begins), frame)));
    match met {
        Some(EventMatch::Hits(points)) => {
            reached(frame, points, arrival);
        }
        _ if arrival == Arrival::EndOfStep => {
            reached(frame, Vec::new(), arrival);
        }
        _ => {}
    }
}

/// A thread is where points are, in a function that called us. Whether it is to be told of the line once more, to stop there.
pub(crate) fn called(frame: &Bound<'_, PyAny>, points: Vec<BreakpointHit>) -> bool {
    if is_quiet() {
        return false;
    }
    reached(frame, points, Arrival::Start);
    is_special() && stepping::is_under_way(frame.py())
}

/// A thread is where points are.
pub(crate) fn points<'py>(
    py: Python<'py>,
    frame: Option<&Bound<'py, PyAny>>,
    points: Vec<BreakpointHit>,
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
pub(crate) fn start<'py>(code: &Bound<'py, PyAny>, frame: Option<&Bound<'py, PyAny>>) -> After {
    let py = code.py();
    if is_quiet() {
        return After::Again;
    }
    let Some(frame) = frame.cloned().or_else(|| frame::current(py)) else {
        return After::Again;
    };
    seek(code, &frame);
    let is_stepped_into = is_special() && stepping::at_start(&frame);
    let Some(armed) = try_breakpoint_index(py) else {
        return After::Again;
    };
    let met = armed.at_start(code.as_ptr() as usize, &frame);
    drop(armed);
    match met {
        EventMatch::Hits(points) => reached(&frame, points, Arrival::Start),
        EventMatch::NotNow => After::Again,
        EventMatch::Nothing if is_stepped_into => After::Again,
        EventMatch::Nothing => After::Never,
    }
}

/// A generator or a coroutine goes on.
pub(crate) fn resume<'py>(code: &Bound<'py, PyAny>, frame: Option<&Bound<'py, PyAny>>) -> After {
    if is_quiet() {
        return After::Again;
    }
    let Some(frame) = frame.cloned().or_else(|| frame::current(code.py())) else {
        return After::Again;
    };
    seek(code, &frame);
    if is_special() && stepping::at_start(&frame) {
        After::Again
    } else {
        After::Never
    }
}

/// A function ends, by returning a value or by an exception.
pub(crate) fn end<'py>(
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
    if stepping::at_end(&frame, value.is_some()) {
        let value = value.map(watchpoints::in_words).unwrap_or_default();
        session::stop(&frame::stack(&frame), StopReason::Returned { value }, None);
    }
}

/// An exception is raised.
pub(crate) fn raised<'py>(
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
        signal_handlers::kept_out(py, || exceptions::raised(&frame, exception));
    }
}

/// Code that begins may be what points wait for.
fn seek(code: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) {
    let py = code.py();
    // One that has a point already may run in its twin.
    let own = probe_call::own_code(code.clone());
    let address = own.as_ptr() as usize;
    let Some(seekers) = try_breakpoint_index(py).map(|mut armed| armed.seekers_of(address)) else {
        return;
    };
    if !seekers.is_empty() {
        signal_handlers::kept_out(code.py(), || bind_in(&seekers, &own, frame));
    }
}

fn bind_in(seekers: &[Arc<Breakpoint>], code: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) {
    let module = module_of(frame);
    let globals = frame::globals(frame).ok();
    for point in seekers {
        if let Some(finder) = &point.finder
            && let Some(found) = interrupts::own(code.py(), finder.bind(code, &module))
        {
            let is_found = !found.is_empty();
            // Another function of that name, which has no such variable.
            drop(setting::bind(point, found, globals.as_ref()));
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
fn reached(frame: &Bound<'_, PyAny>, points: Vec<BreakpointHit>, arrival: Arrival) -> After {
    let py = frame.py();
    let mut stop: Option<(StopReason, StopPolicy)> = None;
    let mut visit = || {
        for BreakpointHit { point, holds, line } in &points {
            if has_fired((frame, Some(*line)), point, *holds)
                && stop.is_none()
                && point.request.action == Action::Stop
            {
                let why = StopReason::Breakpoint { point: point.id };
                stop = Some((why, point.request.hold));
            }
        }
    };
    // What only counts runs nothing.
    if points.iter().all(|passed| passed.point.only_counts()) {
        visit();
    } else {
        signal_handlers::kept_out(py, || {
            Handled::aside(py, || thread_state::untraced(py, visit));
        });
    }
    match (arrival, stop) {
        (Arrival::Start, Some((why, hold))) => session::stop_inside(frame, why, hold),
        (_, Some((why, hold))) => session::stop(&frame::stack(frame), why, Some(hold)),
        (Arrival::EndOfStep, None) => session::stop(&frame::stack(frame), StopReason::Step, None),
        (_, None) => {}
    }
    After::Again
}

/// Whether something was done for a point, or is to be.
pub(crate) fn has_fired(
    (frame, line): (&Bound<'_, PyAny>, Option<u32>),
    point: &Arc<Breakpoint>,
    is_known_to_hold: bool,
) -> bool {
    let py = frame.py();
    if !point.is_armed() || !(is_known_to_hold || holds(frame, point)) || !point.hit() {
        return false;
    }
    point.fire();
    actions::act((frame, line), point);
    // One that is to stop has not yet, where no thread may.
    let is_passed = point.request.action == Action::Stop && fork_guard::are_handled(py);
    if point.request.once && !is_passed {
        setting::disarm_itself(py, point, "it was set for one hit");
    }
    true
}

/// Whether a point's condition holds. An error in it disarms the point.
fn holds(frame: &Bound<'_, PyAny>, point: &Arc<Breakpoint>) -> bool {
    let Some(condition) = &point.condition else {
        return true;
    };
    let py = frame.py();
    let holds = evaluate(py, point, EvaluationKind::Condition, || {
        condition.holds(frame)
    });
    match holds {
        Ok(holds) => holds && point.is_armed(),
        Err(NoValue::Interrupted) => false,
        Err(NoValue::Raised(error)) => {
            let reason = format!("its condition raised {}", in_words(py, error));
            setting::disarm_itself(py, point, &reason);
            false
        }
    }
}

/// What an expression of a point raised. What a handler of a signal raised meanwhile is the program's.
pub(crate) fn in_words(py: Python<'_>, error: PyErr) -> String {
    let words = crate::eval::traceback::describe(py, &error);
    signal_handlers::give_back(py, &error);
    release_error(py, error);
    if words.message.is_empty() {
        words.exception
    } else {
        format!("{}: {}", words.exception, words.message)
    }
}
