//! Breakpoints, and threads that stopped at them.
//!
//! A client sets a breakpoint (`registry.rs`). `setting.rs` finds its code (`code_search.rs`) and asks the interpreter to
//! report when a thread comes there: by `monitoring.rs` from 3.12 on, by `sites.rs` and `settrace.rs` before. In the
//! thread itself, `events.rs` compares the event with the `index.rs`, evaluates the `condition.rs` and runs the action: a
//! log line or a snapshot (`actions.rs`), each within its time (`evaluations.rs`), or the thread stops and becomes a session
//! (`session.rs`). A stopped thread waits without the GIL for requests of its controlling client and carries them out itself
//! (`commands.rs`). `stepping.rs` knows where it stops again, `suspend_threads.rs` suspends the other threads.
//!
//! A stop that timed out leaves a capture where that is asked for (`auto_capture.rs`). A *watchpoint* is a breakpoint whose
//! location is a variable: `watchpoints.rs`.
//!
//! Each location without a breakpoint is disabled when it is first met, and each function is searched once when it begins,
//! for code that is not loaded yet. Setting one calls `restart_events()`: other tools see each location once more.
//!
//! A child of a fork has no breakpoints and no stops. Code that a client has evaluated meets none, on whichever thread.
//!
//! The server's thread never takes the GIL: what it may touch is here, behind locks that nobody holds while waiting.

pub(crate) mod actions;
pub(crate) mod auto_capture;
pub(crate) mod commands;
pub(crate) mod condition;
pub(crate) mod evaluations;
pub(crate) mod events;
pub(crate) mod exceptions;
pub(crate) mod expression;
pub(crate) mod index;
pub(crate) mod interrupts;
pub(crate) mod monitoring;
pub(crate) mod rate_limit;
pub(crate) mod registry;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod setting;
pub(crate) mod stepping;
pub(crate) mod suspend_threads;
pub(crate) mod warnings;

use crate::instrument::settrace;
use crate::python::frame;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use probing_proto::message::breakpoints::{
    Breakpoint, BreakpointId, ObservedChange, ResumeReason, SetBreakpoint, StopPolicy, StopReason,
};
use probing_proto::message::{Event, Failure, RequestId};
use pyo3::prelude::*;

use self::evaluations::Evaluations;
use self::registry::BreakpointRegistry;
use self::sessions::Sessions;
use self::suspend_threads::Holders;
use crate::process::fork_guard;
use crate::process::per_process::PerProcess;
use crate::python::code_search::{Finder, FoundCode};
use crate::recording::{self, Variable};
use crate::requests::outbox::Outbox;
use crate::requests::request::Pending;
use crate::requests::subsystem::Subsystem;
use crate::requests::worker::{self, SingleFlight};

pub(crate) use self::events::quietly;
pub(crate) use self::index::Address;
pub(crate) use self::session::{Order, StoppedEval};
pub(crate) use crate::instrument::settrace::YieldPoints;
pub(crate) use crate::instrument::sites::{has_code_of, tell_trace, tells_lines};
pub(crate) use crate::python::frame::{code_of as code_of_frame, take_over_locals};
pub(crate) use crate::python::symbols::found;
pub(crate) use crate::watchpoints::elements::scalar as scalar_tensor;
pub(crate) use crate::watchpoints::storage::describe_storage as storage;
pub(crate) use crate::watchpoints::{named as loaded_module, tensors};

static STOPS: PerProcess<Stops> = PerProcess::new();
/// Of [`Stops::tick`].
static LOOK: SingleFlight = SingleFlight::new();
static EXPIRED: SingleFlight = SingleFlight::new();

/// All points and stops of a process.
#[derive(Default)]
pub(crate) struct Stops {
    points: Mutex<BreakpointRegistry>,
    sessions: Mutex<Sessions>,
    evaluations: Evaluations,
    holders: Holders,
    /// Told when a deadline may have changed.
    wake: Mutex<Option<Box<dyn Fn() + Send>>>,
}

/// This process's.
pub(crate) fn of_this_process() -> &'static Stops {
    STOPS.get_or_init(Stops::default)
}

/// Whether what is set was set in this process.
pub(crate) fn is_of_this_process() -> bool {
    STOPS.get().is_some()
}

/// Whether a breakpoint or a watchpoint is set.
pub(crate) fn are_set() -> bool {
    if_any().is_some_and(|stops| stops.points().all().iter().any(|point| point.is_armed()))
}

/// Arms a point, on a thread that has the GIL.
pub(crate) fn arm(
    py: Python<'_>,
    wanted: SetBreakpoint,
    client: &Arc<Outbox>,
    pending: Pending<'_>,
) -> Result<Event, Failure> {
    setting::arm(py, wanted, client, pending)
}

/// The same for a trace, which disarms it, and may know better where it is.
pub(crate) fn arm_for_trace(
    py: Python<'_>,
    wanted: SetBreakpoint,
    finder: Option<Finder>,
) -> Result<BreakpointId, Failure> {
    let pending = Pending::of_program();
    setting::try_arm(py, wanted, (None, pending), finder).map(|point| point.point)
}

/// Functions may have been defined again since these points found them; on a thread that has the GIL.
pub(crate) fn find_again(py: Python<'_>, points: &[BreakpointId]) {
    setting::find_again(py, points);
}

/// A change that a client has seen from outside is a row, too.
pub(crate) fn record(py: Python<'_>, seen: &ObservedChange) -> Event {
    recording::variable(
        py,
        &Variable {
            point: None,
            name: &seen.name,
            old: seen.old.as_deref(),
            new: seen.new.as_deref(),
            thread: Some(seen.thread_id),
            thread_name: &seen.thread_name,
            at: seen.at.as_ref(),
            operation: None,
        },
    );
    Event::Done
}

/// Watches a local variable of code that is known, for as long as the program wants: the number of the point.
pub(crate) fn watch_local(
    py: Python<'_>,
    function: &str,
    name: &str,
    found: FoundCode<'_>,
) -> Result<BreakpointId, Failure> {
    setting::watch_local(py, function, name, found)
}

/// Disarms points, on a thread that has the GIL. What is said to be done is: no thread is inside of them any more.
pub(crate) fn disarm(py: Python<'_>, wanted: &[BreakpointId]) -> Event {
    let disarmed = setting::disarm(py, wanted);
    let Event::Points { points } = &disarmed else {
        return disarmed;
    };
    let ids: Vec<BreakpointId> = points.iter().map(|point| point.point).collect();
    let left = || {
        let evaluations = &of_this_process().evaluations;
        evaluations.leave(|id| ids.contains(&id))
    };
    match py.detach(left) {
        Ok(()) => disarmed,
        Err(failure) => Event::Failed(failure),
    }
}

/// The program asks to be stopped, from a function of ours: done if somebody is there to look.
pub(crate) fn here(py: Python<'_>) -> bool {
    let stack = frame::current(py).map(|own| frame::stack(&own));
    let stack = stack.unwrap_or_default();
    let is_possible = !events::is_quiet() && !fork_guard::are_handled(py) && stack.len() > 1;
    let is_wanted = sessions::are_followed() && is_possible;
    if is_wanted {
        session::stop(&stack[1..], StopReason::Asked, Some(StopPolicy::default()));
    }
    is_wanted
}

/// Breakpoints and watchpoints, and the threads that stopped at them.
pub(crate) struct BreakpointSubsystem;

impl Subsystem for BreakpointSubsystem {
    fn next_deadline(&self) -> Option<Instant> {
        if_any().and_then(Stops::next_deadline)
    }

    fn tick(&self) {
        if let Some(stops) = if_any() {
            stops.tick();
        }
    }

    fn cancel(&self, client: &Arc<Outbox>, request: RequestId) -> bool {
        if_any().is_some_and(|stops| stops.unfollow(client, request))
    }

    fn client_gone(&self, client: &Arc<Outbox>) {
        if let Some(stops) = if_any() {
            stops.gone(client);
        }
    }

    /// No breakpoint is set in the child, and no thread of it is stopped.
    fn after_fork(&self, py: Python<'_>) {
        if STOPS.of_any_process().is_none() {
            return;
        }
        events::forget_special();
        warnings::after_fork(py);
        setting::forget_all(py);
    }

    fn leave(&self, py: Python<'_>) {
        if let Some(stops) = if_any() {
            stops.let_go(ResumeReason::Detached);
            setting::disarm_all(py);
        }
    }

    /// Stopped threads are resumed at once.
    fn leave_soon(&self) {
        let Some(stops) = if_any() else {
            return;
        };
        stops.let_go(ResumeReason::Detached);
        let has_points = {
            let points = stops.points();
            points.all().iter().for_each(|point| {
                point.disarm();
            });
            !points.all().is_empty()
        };
        stops.evaluations.interrupt_all();
        if has_points {
            // Without a thread, what is left does nothing any more.
            drop(worker::start(|| {
                worker::with_interpreter(setting::disarm_all);
            }));
        }
    }
}

/// Brings threads out of the expressions of points, which stay as they are, for as long as somebody wants that. Needs no GIL.
pub(crate) fn interrupt_expressions(is_wanted: impl Fn() -> bool) -> Result<(), Failure> {
    of_this_process().evaluations.interrupt_and_leave(is_wanted)
}

/// Before the probe leaves: switches all points off, and waits until no thread is inside of their expressions. Needs no GIL.
pub(crate) fn leave_expressions() -> Result<(), Failure> {
    let stops = of_this_process();
    stops.points().all().iter().for_each(|point| {
        point.disarm();
    });
    stops.evaluations.leave(|_| true)
}

/// Whether a thread is inside of a point's expression.
pub(crate) fn are_evaluating() -> bool {
    if_any().is_some_and(|stops| stops.evaluations.are_some())
}

impl Stops {
    fn points(&self) -> MutexGuard<'_, BreakpointRegistry> {
        self.points.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Points as they are now.
    pub(crate) fn points_told(&self) -> Event {
        let points = self.armed();
        Event::Points { points }
    }

    fn armed(&self) -> Vec<Breakpoint> {
        let points = self.points();
        points.all().iter().map(|point| point.report()).collect()
    }

    /// Has the server's thread look at the deadlines again.
    pub(crate) fn changed(&self) {
        let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wake) = &*wake {
            wake();
        }
    }

    /// How to wake the server's thread.
    pub(crate) fn wake_with(&self, wake: Box<dyn Fn() + Send>) {
        *self.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
    }

    /// When [`Stops::tick`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let expiry = self.points().next_expiry();
        let expiry = expiry.map(|at| EXPIRED.not_before(at));
        let overdue = self.sessions().next_overdue();
        let look = settrace::next_look();
        let looks = look.into_iter().chain(self.evaluations.next_look());
        expiry.into_iter().chain(overdue).chain(looks).min()
    }

    /// Ends what has had its time. Called by the server's thread.
    pub(crate) fn tick(&self) {
        if settrace::is_due() {
            LOOK.start(settrace::look_again);
        }
        self.evaluations.tick(self);
        let expired = self.points().expired();
        if !expired.is_empty() {
            EXPIRED.start(move |py| {
                for point in &expired {
                    setting::disarm_itself(py, point, "expired");
                }
            });
        }
        for session in self.sessions().overdue() {
            session.end(ResumeReason::Deadline);
        }
    }
}

/// Of this process, without making any: what the server's thread looks at between requests.
pub(crate) fn if_any() -> Option<&'static Stops> {
    STOPS.get()
}
