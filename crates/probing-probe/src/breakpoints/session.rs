//! The session of a stopped thread, which waits without the GIL and runs the commands of its controlling client.
//!
//! It waits in its own thread, without the GIL, and does what its driver asks: evaluates code in its frames, jumps,
//! goes on. Every wait has a deadline, after which the stack is recorded and the program goes on.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use probing_proto::message::breakpoints::{
    self, BreakpointEvent, Controller, DisconnectPolicy, ResumeReason, SourceLocation, StepCall,
    StopId, StopPolicy, StopReason,
};
use probing_proto::message::{Eval, Event, Failure, Message};
use pyo3::prelude::*;

use crate::breakpoints::{
    actions, auto_capture, commands, events, interrupts, of_this_process, stepping, suspend_threads,
};
use crate::eval::active::Evals;
use crate::eval::interrupt::{Interrupt, own_thread};
use crate::eval::last_value::ConnectionValue;
use crate::eval::output_sink::Sink;
use crate::process::fork_guard;
use crate::python::current_thread;
use crate::python::exc_info::Handled;
use crate::python::frame;
use crate::python::signal_handlers;
use crate::requests::outbox::Outbox;
use crate::requests::request::{Pending, given_up};

/// How often the main thread looks whether a Ctrl-C has come.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Orders that may wait for one stop.
const MAX_ORDERS: usize = 64;

/// One stay of a thread, with all its steps.
pub(crate) struct Session {
    pub(crate) id: StopId,
    pub(crate) thread: u64,
    thread_id: u32,
    thread_name: String,
    /// Whether signals come to it.
    is_main: bool,
    hold: StopPolicy,
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    why: StopReason,
    frames: Vec<SourceLocation>,
    /// Whether it stands; else it takes a step.
    stands: bool,
    since: Instant,
    driver: Option<Arc<Outbox>>,
    /// When the last of those who could ask was lost, or it began without any. `None` while there is somebody.
    alone_since: Option<Instant>,
    last_request: Instant,
    /// Each with the client that gave it.
    orders: VecDeque<(Arc<Outbox>, Order)>,
    /// What is being evaluated.
    running: Option<Arc<Interrupt>>,
    /// Why it goes on, once that is decided.
    ends: Option<ResumeReason>,
}

/// What a driver wants.
pub(crate) enum Order {
    Eval(Box<StoppedEval>),
    Step(StepCall),
    /// Answered when it is done, or cannot be.
    Jump {
        line: u32,
        sink: Sink,
    },
}

/// Code for a stopped thread to run.
pub(crate) struct StoppedEval {
    pub(crate) eval: Eval,
    pub(crate) sink: Sink,
    /// What `_` is for this client.
    pub(crate) held: ConnectionValue,
}

/// The innermost frame, and all with it.
pub(crate) type Stack<'a, 'py> = (&'a Bound<'py, PyAny>, &'a [Bound<'py, PyAny>]);

/// What a thread that waited is to do.
enum Next {
    Do(Order),
    /// See whether a Ctrl-C has come: nobody wakes the thread for that.
    Look,
    GoOn(ResumeReason),
}

/// Stops this thread until somebody lets it go on or a deadline comes. `hold` is none at the end of a step.
pub(crate) fn stop(frames: &[Bound<'_, PyAny>], why: StopReason, hold: Option<StopPolicy>) {
    let Some(innermost) = frames.first() else {
        return;
    };
    let py = innermost.py();
    // A step goes on to a line behind the fork; but there is none where its own function returns, which then is no handler.
    if fork_guard::are_handled(py) && !matches!(why, StopReason::Returned { .. }) {
        return;
    }
    let before = stepping::finish(py, own_thread());
    // Taken out of the lock before it is used: what follows takes it again.
    let ends = before.as_ref().and_then(|(session, _)| session.ends());
    if let (Some((session, _)), Some(because)) = (&before, ends) {
        of_this_process().ended(session, because);
        return;
    }
    let (session, why) = match before {
        Some((session, meant)) => (session, meant.unwrap_or(why)),
        None => (Session::begin(py, hold.unwrap_or_default()), why),
    };
    session.stand((innermost, frames), why);
}

/// Stops this thread at the first line of a function that has just begun.
pub(crate) fn stop_inside(frame: &Bound<'_, PyAny>, why: StopReason, hold: StopPolicy) {
    let py = frame.py();
    if fork_guard::are_handled(py) {
        return;
    }
    let before = stepping::finish(py, own_thread());
    let session = before.map_or_else(|| Session::begin(py, hold), |(session, _)| session);
    let first_line = StepCall {
        stop: session.id,
        step: breakpoints::Step::Over,
        my_code: false,
    };
    if stepping::begin(&session, frame, &first_line, Some(why.clone())).is_err() {
        session.stand((frame, &frame::stack(frame)), why);
    }
}

impl Session {
    fn begin(py: Python<'_>, hold: StopPolicy) -> Arc<Self> {
        let now = Instant::now();
        let stops = of_this_process();
        let session = Arc::new(Self {
            id: stops.next_stop(),
            thread: own_thread(),
            thread_id: current_thread::id(),
            thread_name: current_thread::name(py),
            is_main: current_thread::is_main(),
            hold,
            began: now,
            state: Mutex::new(State {
                why: StopReason::Asked,
                frames: Vec::new(),
                stands: false,
                since: now,
                driver: None,
                alone_since: Some(now),
                last_request: now,
                orders: VecDeque::new(),
                running: None,
                ends: None,
            }),
            changed: Condvar::new(),
        });
        stops.begun(&session);
        session
    }

    /// Waits here, and does what it is asked to, until the thread goes on.
    fn stand(self: &Arc<Self>, stack: Stack<'_, '_>, why: StopReason) {
        let (frame, frames) = stack;
        let py = frame.py();
        // What nobody catches has left its frames already: there is nothing to step in.
        let is_uncaught = matches!(why, StopReason::Raised { uncaught: true, .. });
        // A frame that returns has no further lines: a step begins in its caller.
        let returns = matches!(why, StopReason::Returned { .. });
        let caller = frame::caller_of(frame).filter(|_| returns);
        let is_over = is_uncaught || (returns && caller.is_none());
        if self.hold.all_threads {
            suspend_threads::begin(py);
        }
        {
            let mut state = self.state();
            state.why = why;
            state.frames = spots(frames);
            state.stands = true;
            state.since = Instant::now();
            state.last_request = state.since;
        }
        if is_uncaught {
            // The program may end before anybody comes.
            Handled::aside(py, || {
                events::quietly(|| self.leave_capture(frames, "uncaught exception"))
            });
        }
        of_this_process().stopped(self);
        let serve = || signal_handlers::let_in(py, || self.serve(stack));
        let went_on = Handled::aside(py, || events::quietly(serve));
        if self.hold.all_threads {
            suspend_threads::end(py);
        }
        match went_on {
            Ok(_) if is_over => of_this_process().ended(self, ResumeReason::Asked),
            Ok(step) => {
                self.state().stands = false;
                let begins = caller.as_ref().unwrap_or(frame);
                if stepping::begin(self, begins, &step, None).is_err() {
                    of_this_process().ended(self, ResumeReason::Asked);
                }
            }
            Err(because) => of_this_process().ended(self, because),
        }
    }

    /// Until it takes a step, or goes on for another reason.
    fn serve(self: &Arc<Self>, stack: Stack<'_, '_>) -> Result<StepCall, ResumeReason> {
        let (frame, frames) = stack;
        let py = frame.py();
        loop {
            let next = py.detach(|| self.next());
            match next {
                Next::Look if interrupts::interrupted(py) => return Err(ResumeReason::Interrupted),
                Next::Look => {}
                Next::Do(Order::Eval(work)) => {
                    self.state().running = Some(Arc::clone(&work.sink.interrupt));
                    of_this_process().changed();
                    signal_handlers::kept_out(py, || {
                        commands::evaluate(stack, &self.thread_name, *work);
                    });
                    let mut state = self.state();
                    state.running = None;
                    state.last_request = Instant::now();
                    drop(state);
                    // What a handler of the program's raised meanwhile is for the program.
                    if signal_handlers::have_raised() {
                        return Err(ResumeReason::Interrupted);
                    }
                }
                Next::Do(Order::Jump { line, sink }) => {
                    let pending = Pending::of_client(&sink.interrupt);
                    let jumped = pending.commit().and_then(|()| {
                        signal_handlers::kept_out(py, || commands::jump(frame, line))
                    });
                    let event = jumped.map_or_else(Event::Failed, |()| Event::Done);
                    let has_jumped = event == Event::Done;
                    sink.interrupt.end();
                    sink.outbox.push(Message {
                        id: Some(sink.id),
                        event,
                    });
                    if has_jumped {
                        let mut state = self.state();
                        state.frames = spots(frames);
                        state.why = StopReason::Step;
                        drop(state);
                        of_this_process().stopped(self);
                    }
                }
                Next::Do(Order::Step(step)) => match step.step {
                    breakpoints::Step::Continue => return Err(ResumeReason::Asked),
                    _ => return Ok(step),
                },
                Next::GoOn(because) => {
                    if because == ResumeReason::Deadline {
                        let why = self.state().why.to_string();
                        let leave = || self.leave_capture(frames, "its timeout expired");
                        let kept = signal_handlers::kept_out(py, leave);
                        let why = kept.map_or_else(|| why.clone(), |kept| format!("{why}; {kept}"));
                        actions::keep((frame, None), self.point(), "expired", Some(&why));
                    }
                    return Err(because);
                }
            }
        }
    }

    /// As a file, where that was asked for.
    fn leave_capture(&self, frames: &[Bound<'_, PyAny>], because: &str) -> Option<String> {
        let reason = format!("stop {}: {because}", self.id.0);
        auto_capture::keep(frames, self.report(None, 0), &reason)
    }

    /// Waits, without the GIL.
    fn next(&self) -> Next {
        let mut state = self.state();
        loop {
            if let Some(because) = state.ends {
                return Next::GoOn(because);
            }
            if let Some((_, order)) = state.orders.pop_front() {
                state.last_request = Instant::now();
                return Next::Do(order);
            }
            let left = self
                .ends_at(&state)
                .saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.ends = Some(ResumeReason::Deadline);
                continue;
            }
            let (waited, result) = self
                .changed
                .wait_timeout(state, left.min(SIGNAL_POLL_INTERVAL))
                .unwrap_or_else(PoisonError::into_inner);
            state = waited;
            if result.timed_out() && self.is_main {
                return Next::Look;
            }
        }
    }

    /// When it goes on if nobody asks anything more.
    fn ends_at(&self, state: &State) -> Instant {
        let after = |since: Instant, millis: u64| {
            let far = Duration::from_hours(24 * 365);
            since + Duration::from_millis(millis).min(far)
        };
        let patience = match state.alone_since {
            Some(since) => after(since.max(state.since), self.hold.connect_millis),
            None => after(state.last_request, self.hold.idle_millis),
        };
        patience.min(after(self.began, self.hold.total_millis))
    }

    fn point(&self) -> Option<breakpoints::BreakpointId> {
        self.state().why.point()
    }

    /// Gives it something to do. What it cannot take comes back, with the reason.
    pub(crate) fn order(&self, from: &Arc<Outbox>, order: Order) -> Result<(), (Order, Failure)> {
        let mut state = self.state();
        let is_driver = state
            .driver
            .as_ref()
            .is_some_and(|it| Arc::ptr_eq(it, from));
        let refusal = if state.ends.is_some() || !state.stands {
            self.not_stopped()
        } else if !is_driver {
            Failure::new(format!("another client controls stop {}", self.id.0))
                .with_hint("take control first; `take` takes it from another client")
        } else if state.orders.len() >= MAX_ORDERS {
            Failure::new("too many requests wait at this stop")
        } else {
            if matches!(order, Order::Step(_)) {
                // What was asked before it is done before it; a second step is too late.
                state.stands = false;
            }
            state.orders.push_back((Arc::clone(from), order));
            state.last_request = Instant::now();
            self.changed.notify_all();
            return Ok(());
        };
        Err((order, refusal))
    }

    /// A client has gone: what it wanted and has not begun is not done. One that was to take a step for it stands.
    pub(crate) fn forget_orders_of(&self, client: &Arc<Outbox>) {
        let mut state = self.state();
        let orders = std::mem::take(&mut state.orders);
        let (gone, kept): (Vec<_>, Vec<_>) = orders
            .into_iter()
            .partition(|(from, _)| Arc::ptr_eq(from, client));
        state.orders = kept.into();
        state.stands |= gone.iter().any(|(_, it)| matches!(it, Order::Step(_)));
        drop(state);
        for (_, order) in gone {
            order.refuse(given_up());
        }
    }

    pub(crate) fn not_stopped(&self) -> Failure {
        Failure::new(format!(
            "the thread of stop {} is resumed already",
            self.id.0
        ))
        .with_hint("`probing stops` lists stopped threads")
    }

    /// Makes it go on.
    pub(crate) fn end(&self, because: ResumeReason) {
        let mut state = self.state();
        state.ends.get_or_insert(because);
        let running = state.running.clone();
        self.changed.notify_all();
        drop(state);
        if let Some(interrupt) = running {
            interrupt.request();
        }
    }

    /// Whether its time is over while it evaluates something: then only others can end that.
    pub(crate) fn is_overdue(&self) -> bool {
        let state = self.state();
        let total =
            self.began + Duration::from_millis(self.hold.total_millis.min(u64::from(u32::MAX)));
        state.running.is_some() && state.ends.is_none() && total <= Instant::now()
    }

    /// When [`Self::is_overdue`] may become true.
    pub(crate) fn overdue_at(&self) -> Option<Instant> {
        let state = self.state();
        let total = Duration::from_millis(self.hold.total_millis.min(u64::from(u32::MAX)));
        (state.running.is_some() && state.ends.is_none()).then(|| self.began + total)
    }

    /// Why it goes on, once that is decided.
    fn ends(&self) -> Option<ResumeReason> {
        self.state().ends
    }

    pub(crate) fn stands(&self) -> bool {
        let state = self.state();
        state.stands && state.ends.is_none()
    }

    pub(crate) fn driver(&self) -> Option<Arc<Outbox>> {
        self.state().driver.clone()
    }

    pub(crate) fn set_driver(&self, driver: Option<Arc<Outbox>>) {
        let mut state = self.state();
        state.driver = driver;
        state.last_request = Instant::now();
    }

    /// There is somebody who could ask, or nobody any more.
    pub(crate) fn set_company(&self, has_company: bool) {
        let mut state = self.state();
        match (has_company, state.alone_since) {
            (true, _) => state.alone_since = None,
            (false, None) => state.alone_since = Some(Instant::now()),
            (false, Some(_)) => return,
        }
        self.changed.notify_all();
    }

    /// What becomes of it when its controlling client disconnected.
    pub(crate) fn when_gone(&self) -> DisconnectPolicy {
        self.hold.gone
    }

    /// As one client sees it.
    pub(crate) fn report(&self, to: Option<&Arc<Outbox>>, followers: u32) -> breakpoints::Stop {
        let state = self.state();
        let now = Instant::now();
        breakpoints::Stop {
            stop: self.id,
            thread: self.thread,
            thread_id: self.thread_id,
            thread_name: self.thread_name.clone(),
            why: state.why.clone(),
            frames: state.frames.clone(),
            since_millis: now.saturating_duration_since(state.since).as_millis() as u64,
            ends_in_millis: self
                .ends_at(&state)
                .saturating_duration_since(now)
                .as_millis() as u64,
            driver: seen_by(state.driver.as_ref(), to),
            followers,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Order {
    /// Tells whoever gave it that it will not be carried out.
    pub(crate) fn refuse(self, failure: Failure) {
        let sink = match &self {
            Self::Eval(work) => &work.sink,
            Self::Jump { sink, .. } => sink,
            Self::Step(_) => return,
        };
        sink.interrupt.end();
        sink.outbox.push(Message {
            id: Some(sink.id),
            event: Event::Failed(failure),
        });
        // Only evals have entered.
        Evals::of_this_process().leave(&sink.interrupt);
    }
}

/// Who drives, as `to` sees it.
pub(crate) fn seen_by(driver: Option<&Arc<Outbox>>, to: Option<&Arc<Outbox>>) -> Controller {
    match (driver, to) {
        (None, _) => Controller::Nobody,
        (Some(driver), Some(to)) if Arc::ptr_eq(driver, to) => Controller::You,
        (Some(_), _) => Controller::Another,
    }
}

/// Orders that a session which ends leaves behind.
pub(crate) fn refuse_rest(session: &Session) {
    let orders = std::mem::take(&mut session.state().orders);
    for (_, order) in orders {
        order.refuse(session.not_stopped());
    }
}

fn spots(frames: &[Bound<'_, PyAny>]) -> Vec<SourceLocation> {
    frames.iter().map(frame::spot_of).collect()
}

/// What is told when one goes on.
pub(crate) fn went_on(session: &Session, because: ResumeReason) -> BreakpointEvent {
    BreakpointEvent::WentOn {
        stop: session.id,
        because,
    }
}
