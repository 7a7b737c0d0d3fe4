//! Steps: where a thread that goes on stops again.
//!
//! A step has frames at whose next line the thread stops: the one it began in, and those that called it, for when it ends.
//! A generator or a coroutine may be left and come back to: its callers count only when it has really ended, unless the step
//! goes into whatever runs next. A step ends at another line than it began at, or in another frame: a loop or a comprehension
//! of one line is one step.

use std::sync::Arc;

use probing_proto::message::Failure;
use probing_proto::message::breakpoints as proto;
use probing_proto::message::breakpoints::{ResumeReason, StepCall, StopReason};
use pyo3::prelude::*;

use crate::breakpoints::events;
use crate::breakpoints::index::breakpoint_index;
use crate::breakpoints::interrupts;
use crate::breakpoints::of_this_process;
use crate::breakpoints::session::Session;
use crate::breakpoints::setting;
use crate::eval::interrupt::own_thread;
use crate::instrument::settrace;
use crate::python::call::call;
use crate::python::code_search;
use crate::python::frame::{self, code_of};
use crate::python::signal_handlers;

/// Callers whose lines are looked at: a step that ends deeper than this below goes on.
const MAX_CALLERS: usize = 100;

/// A step under way.
pub(crate) struct Step {
    pub(crate) session: Arc<Session>,
    kind: proto::Step,
    my_code: bool,
    /// Why the thread stops at its end, if not because of the step.
    why: Option<StopReason>,
    /// The outermost frame of the thread: behind its end there are no lines.
    outermost: Py<PyAny>,
    /// The frame that it began in.
    own: Py<PyAny>,
    /// The line there, if that frame was at one.
    began_at: Option<u32>,
    /// Frames at whose next line it ends.
    targets: Vec<Py<PyAny>>,
    /// The frame after whose end its callers are targets.
    until_end_of: Option<Py<PyAny>>,
    /// Code objects that are told to tell us.
    watched: Vec<Py<PyAny>>,
}

/// The thread of `frame` goes on until the step ends; then it stops, because of the step or for a reason of its own.
pub(crate) fn begin(
    session: &Arc<Session>,
    frame: &Bound<'_, PyAny>,
    asked: &StepCall,
    why: Option<StopReason>,
) -> Result<(), Failure> {
    // Before 3.12 code is made for it in Python.
    signal_handlers::kept_out(frame.py(), || begun(session, frame, asked, why))
}

fn begun(
    session: &Arc<Session>,
    frame: &Bound<'_, PyAny>,
    asked: &StepCall,
    why: Option<StopReason>,
) -> Result<(), Failure> {
    let py = frame.py();
    // What stopped it may be disarmed by now.
    setting::claim(py)?;
    if !setting::has_monitoring(py) && settrace::is_left_out(py) {
        return Err(
            Failure::new("this thread cannot take steps: another tool traces it")
                .with_hint("`c` resumes it; Python before 3.12 lets one tool trace a thread"),
        );
    }
    let mut own = frame.clone();
    if let proto::Step::Out { frame: depth } | proto::Step::Return { frame: depth } = asked.step {
        for _ in 0..depth {
            own = frame::caller_of(&own).unwrap_or(own);
        }
    }
    let is_out = matches!(
        asked.step,
        proto::Step::Out { .. } | proto::Step::Return { .. }
    );
    let is_into = asked.step == proto::Step::Into;
    let waits_for_end = !is_into && frame::suspends(&code_of(&own));
    let mut targets = Vec::new();
    if !is_out {
        targets.push(own.clone());
    }
    if !waits_for_end {
        targets.extend(callers_of(&own));
    }
    let step = Step {
        session: Arc::clone(session),
        kind: asked.step,
        my_code: asked.my_code,
        // A function that has just begun has not come to its first line, which may be that of its name.
        began_at: why.is_none().then(|| frame::line_of(&own)),
        why,
        outermost: frame::outermost(frame).unbind(),
        until_end_of: waits_for_end.then(|| own.clone().unbind()),
        own: own.unbind(),
        targets: targets.iter().map(|it| it.clone().unbind()).collect(),
        watched: Vec::new(),
    };
    let ending = step.ending(py);
    breakpoint_index(py).steps.insert(own_thread(), step);
    events::begin_special();
    watch(targets.iter().map(code_of).collect());
    for code in ending {
        breakpoint_index(py).code_mut(&code).enders += 1;
        setting::tell_again(&code);
    }
    setting::refresh(py);
    if is_into {
        setting::restart(py);
    }
    Ok(())
}

/// Takes a thread's step away, if it takes one; nothing of it is left. Tells why the thread was to stop at its end, if not
/// because of the step.
pub(crate) fn finish(py: Python<'_>, thread: u64) -> Option<(Arc<Session>, Option<StopReason>)> {
    signal_handlers::kept_out(py, || finished(py, thread))
}

fn finished(py: Python<'_>, thread: u64) -> Option<(Arc<Session>, Option<StopReason>)> {
    let step = breakpoint_index(py).steps.remove(&thread)?;
    events::end_special();
    let mut codes: Vec<_> = step.watched.iter().map(|it| it.bind(py).clone()).collect();
    for code in &codes {
        let mut armed = breakpoint_index(py);
        let arms = armed.code_mut(code);
        arms.steppers = arms.steppers.saturating_sub(1);
    }
    for code in step.ending(py) {
        let mut armed = breakpoint_index(py);
        let arms = armed.code_mut(&code);
        arms.enders = arms.enders.saturating_sub(1);
        drop(armed);
        codes.push(code);
    }
    for code in &codes {
        setting::tell_again(code);
    }
    setting::settle(py);
    Some((step.session, step.why))
}

impl Step {
    /// The code of the frames whose ends matter.
    fn ending<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyAny>> {
        let returning = matches!(self.kind, proto::Step::Return { .. }).then_some(&self.own);
        let frames = self.until_end_of.iter().chain([&self.outermost]);
        let frames = frames.chain(returning);
        frames.map(|frame| code_of(frame.bind(py))).collect()
    }
}

/// The thread is at a line; whether its step ends there.
pub(crate) fn at_line(frame: &Bound<'_, PyAny>, line: u32) -> bool {
    let py = frame.py();
    let armed = breakpoint_index(py);
    let Some(step) = armed.steps.get(&own_thread()) else {
        return false;
    };
    let is_target = step.targets.iter().any(|target| target.is(frame));
    let is_far_enough = !step.own.is(frame)
        || match step.kind {
            proto::Step::Until { line: wanted } => line >= wanted,
            _ => step.began_at != Some(line),
        };
    let my_code = step.my_code;
    drop(armed);
    is_target && is_far_enough && !(my_code && is_of_library(py, &code_of(frame)))
}

/// A function begins or goes on; whether the step looks at it.
pub(crate) fn at_start(frame: &Bound<'_, PyAny>) -> bool {
    let py = frame.py();
    let mut armed = breakpoint_index(py);
    let Some(step) = armed.steps.get_mut(&own_thread()) else {
        // Other threads take steps: what they come to must still be told.
        return armed
            .steps
            .values()
            .any(|step| step.kind == proto::Step::Into);
    };
    if step.kind != proto::Step::Into {
        return false;
    }
    let code = code_of(frame);
    let my_code = step.my_code;
    drop(armed);
    if my_code && is_of_library(py, &code) {
        return true;
    }
    let mut armed = crate::breakpoints::index::breakpoint_index(py);
    if let Some(step) = armed.steps.get_mut(&own_thread()) {
        step.targets.push(frame.clone().unbind());
    }
    drop(armed);
    watch(vec![code]);
    true
}

/// A function of this thread ends; whether the step ends there, where it `returns`.
pub(crate) fn at_end(frame: &Bound<'_, PyAny>, returns: bool) -> bool {
    let py = frame.py();
    let is_awaited = breakpoint_index(py)
        .steps
        .get(&own_thread())
        .is_some_and(|step| {
            matches!(step.kind, proto::Step::Return { .. }) && returns && step.own.is(frame)
        });
    if !is_awaited {
        ended(frame);
    }
    is_awaited
}

/// A function of this thread has ended.
fn ended(frame: &Bound<'_, PyAny>) {
    let py = frame.py();
    let mut armed = breakpoint_index(py);
    let Some(step) = armed.steps.get_mut(&own_thread()) else {
        return;
    };
    if step.outermost.is(frame) {
        drop(armed);
        if let Some((session, _)) = finish(py, own_thread()) {
            of_this_process().ended(&session, ResumeReason::ThreadEnded);
        }
        return;
    }
    if !step.until_end_of.as_ref().is_some_and(|it| it.is(frame)) {
        return;
    }
    let ended = step.until_end_of.take();
    drop(armed);
    let callers = callers_of(frame);
    let mut armed = crate::breakpoints::index::breakpoint_index(py);
    if let Some(step) = armed.steps.get_mut(&own_thread()) {
        step.targets
            .extend(callers.iter().map(|it| it.clone().unbind()));
    }
    let code = code_of(frame);
    let arms = armed.code_mut(&code);
    arms.enders = arms.enders.saturating_sub(1);
    drop(armed);
    drop(ended);
    setting::tell_again(&code);
    watch(callers.iter().map(code_of).collect());
    setting::refresh(py);
}

/// Whether any step is under way: it waits for the end of a frame, be it the thread's last one.
pub(crate) fn wait_for_ends(py: Python<'_>) -> bool {
    !breakpoint_index(py).steps.is_empty()
}

/// Whether this thread takes one.
pub(crate) fn is_under_way(py: Python<'_>) -> bool {
    breakpoint_index(py).steps.contains_key(&own_thread())
}

/// Whether any step goes into what begins.
pub(crate) fn go_into(py: Python<'_>) -> bool {
    let armed = breakpoint_index(py);
    armed.steps.values().any(|it| it.kind == proto::Step::Into)
}

fn callers_of<'py>(frame: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let stack = frame::stack(frame);
    stack.into_iter().skip(1).take(MAX_CALLERS).collect()
}

/// Has the lines of these told, for this thread's step.
fn watch(codes: Vec<Bound<'_, PyAny>>) {
    for code in codes {
        let mut armed = breakpoint_index(code.py());
        let Some(step) = armed.steps.get_mut(&own_thread()) else {
            return;
        };
        if step.watched.iter().any(|it| it.is(&code)) {
            continue;
        }
        step.watched.push(code.clone().unbind());
        armed.code_mut(&code).steppers += 1;
        drop(armed);
        setting::tell_again(&code);
    }
}

/// Whether code belongs to Python itself or to an installed package.
fn is_of_library(py: Python<'_>, code: &Bound<'_, PyAny>) -> bool {
    let ask = || {
        let is_it = code_search::namespace(py)?
            .as_any()
            .get_item("is_of_library")?;
        call(&is_it, (code,))?.is_truthy()
    };
    interrupts::own(py, signal_handlers::kept_out(py, ask)).unwrap_or(false)
}
