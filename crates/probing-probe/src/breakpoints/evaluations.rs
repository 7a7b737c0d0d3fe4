//! Expressions of points that threads of the program evaluate at the moment, and how long they may take.
//!
//! The thread that evaluates writes down what it does in a few words of its own. The server's thread, which has no GIL, looks
//! at them while there are some: an expression that takes too long, or whose point is gone, is interrupted as evaluated code
//! is. What comes too late for that is taken out of the thread before the program goes on.

use std::cell::RefCell;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread as std_thread;
use std::time::{Duration, Instant};

use probing_proto::message::Failure;
use probing_proto::message::breakpoints::BreakpointId;
use pyo3::prelude::*;

use crate::breakpoints::registry::Breakpoint;
use crate::breakpoints::{Stops, interrupts, of_this_process, setting};
use crate::eval::interrupt::{Interrupt, own_thread};
use crate::process::fork_child;
use crate::python::current_thread;
use crate::python::signal_handlers;
use crate::requests::worker::SingleFlight;

/// Between two looks while expressions are evaluated.
const TICK: Duration = Duration::from_millis(100);
/// How long one whose point is gone may still take.
const GRACE: Duration = Duration::from_millis(20);
/// How long whoever deletes a point waits for threads inside of its expressions.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// When a thread that was interrupted is said to be stuck.
const STUCK_TIMEOUT: Duration = Duration::from_millis(500);
/// Between two looks whether they have left.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// An interrupt may be caught by the code it comes to: it comes again, later each time.
const MAX_DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// What is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EvaluationKind {
    Condition,
    LogText,
    Message,
    Statistics,
}

impl EvaluationKind {
    fn words(self) -> &'static str {
        match self {
            Self::Condition => "its condition",
            Self::LogText => "its log text",
            Self::Message => "the message of its exception",
            Self::Statistics => "the statistics of its tensor",
        }
    }

    /// Whether it comes after a point has been met.
    fn is_reported(self) -> bool {
        matches!(self, Self::Message | Self::Statistics)
    }

    fn of(number: u8) -> Self {
        match number {
            0 => Self::Condition,
            1 => Self::LogText,
            2 => Self::Message,
            _ => Self::Statistics,
        }
    }
}

/// Why there is no value.
pub(crate) enum NoValue {
    Raised(PyErr),
    /// It was interrupted, and its point is off.
    Interrupted,
}

/// All of a process.
#[derive(Default)]
pub(crate) struct Evaluations {
    threads: Mutex<Vec<Weak<Slot>>>,
    /// Whether the server's thread looks at them.
    are_watched: AtomicBool,
    /// What all turns came to at the last look.
    seen: AtomicU64,
}

/// What one thread does.
struct Slot {
    thread: u64,
    thread_id: u32,
    /// Odd while it evaluates something.
    turn: AtomicU64,
    point: AtomicU32,
    what: AtomicU8,
    began_nanos: AtomicU64,
    /// 0: no limit.
    limit_millis: AtomicU64,
    has_interrupt: AtomicBool,
    interrupt: Mutex<Option<Sent>>,
}

/// What a thread does, and in which turn.
type Turned = (Arc<Slot>, u64);

/// An interrupt of one turn.
struct Sent {
    turn: u64,
    interrupt: Arc<Interrupt>,
    since: Instant,
    again: Instant,
}

thread_local! {
    /// Of this thread, in which process.
    static OWN: RefCell<Option<(u32, Arc<Slot>)>> = const { RefCell::new(None) };
}

/// Evaluates something for a point, in this thread, within its time. No handler of a signal runs meanwhile.
pub(crate) fn evaluate<T>(
    py: Python<'_>,
    point: &Arc<Breakpoint>,
    what: EvaluationKind,
    code: impl FnOnce() -> PyResult<T>,
) -> Result<T, NoValue> {
    let Some(slot) = Slot::own().filter(|slot| !slot.is_busy()) else {
        return signal_handlers::kept_out(py, code).map_err(NoValue::Raised);
    };
    let began = Instant::now();
    slot.begin(point, what, began);
    let result = signal_handlers::kept_out(py, || {
        let ending = Ending { slot: &slot, py };
        let result = code();
        (result, ending.end())
    });
    point.evaluated(began.elapsed());
    match result {
        (result, false) => result.map_err(NoValue::Raised),
        (result, true) => {
            // Whatever it came to: nobody wants it any more.
            interrupts::own(py, result.map(drop));
            if point
                .expression_limit()
                .is_some_and(|limit| began.elapsed() >= limit)
            {
                setting::disarm_itself(py, point, &out_of_time(point, what));
            }
            Err(NoValue::Interrupted)
        }
    }
}

/// Why a point is off.
fn out_of_time(point: &Breakpoint, what: EvaluationKind) -> String {
    point.ran_out_of_time();
    let limit = point.expression_limit().unwrap_or_default();
    format!(
        "{} did not end within {} s",
        what.words(),
        limit.as_secs_f64()
    )
}

/// The end of what a thread evaluates, however that comes: a thread that panicked evaluates nothing any more.
struct Ending<'a, 'py> {
    slot: &'a Slot,
    py: Python<'py>,
}

impl Ending<'_, '_> {
    /// Whether it was interrupted.
    fn end(self) -> bool {
        let was_interrupted = self.slot.end(self.py);
        mem::forget(self);
        was_interrupted
    }
}

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        self.slot.end(self.py);
    }
}

impl Slot {
    fn own() -> Option<Arc<Self>> {
        let generation = fork_child::generation();
        let own = OWN.try_with(|own| {
            let mut own = own.try_borrow_mut().ok()?;
            if let Some((known, slot)) = &*own
                && *known == generation
            {
                return Some(Arc::clone(slot));
            }
            let slot = Arc::new(Self {
                thread: own_thread(),
                thread_id: current_thread::id(),
                turn: AtomicU64::new(0),
                point: AtomicU32::new(0),
                what: AtomicU8::new(0),
                began_nanos: AtomicU64::new(0),
                limit_millis: AtomicU64::new(0),
                has_interrupt: AtomicBool::new(false),
                interrupt: Mutex::new(None),
            });
            *own = Some((generation, Arc::clone(&slot)));
            of_this_process().evaluations.add(&slot);
            Some(slot)
        });
        own.ok().flatten()
    }

    /// Inside of an expression, another one is part of it.
    fn is_busy(&self) -> bool {
        self.turn.load(Ordering::Relaxed) % 2 == 1
    }

    fn begin(&self, point: &Breakpoint, what: EvaluationKind, now: Instant) {
        let limit = point
            .expression_limit()
            .map_or(0, |it| it.as_millis() as u64);
        self.point.store(point.id.0, Ordering::Relaxed);
        self.what.store(what as u8, Ordering::Relaxed);
        self.began_nanos.store(nanos(now), Ordering::Relaxed);
        self.limit_millis.store(limit, Ordering::Relaxed);
        self.turn.fetch_add(1, Ordering::SeqCst);
        of_this_process().evaluations.watch();
    }

    /// Whether it was interrupted. Nothing of that is left in the thread.
    fn end(&self, py: Python<'_>) -> bool {
        self.turn.fetch_add(1, Ordering::SeqCst);
        if !self.has_interrupt.load(Ordering::SeqCst) {
            return false;
        }
        let sent = self.interrupt().take();
        self.has_interrupt.store(false, Ordering::SeqCst);
        if let Some(sent) = &sent {
            sent.interrupt.leave(py);
        }
        sent.is_some()
    }

    /// How long it has been at it.
    fn age(&self, now: Instant) -> Duration {
        let began = self.began_nanos.load(Ordering::Relaxed);
        Duration::from_nanos(nanos(now).saturating_sub(began))
    }

    /// Interrupts what it does in this turn, if that is still what it does; again, where that has had no effect.
    fn interrupt_in(&self, turn: u64) {
        let mut slot = self.interrupt();
        let now = Instant::now();
        if let Some(sent) = slot.as_mut().filter(|sent| sent.turn == turn) {
            if sent.again <= now {
                sent.again = now + (now - sent.since).clamp(TICK, MAX_DRAIN_TIMEOUT);
                sent.interrupt.request();
            }
            return;
        }
        // Either it sees this mark when it ends, or it has ended, and that is seen here.
        self.has_interrupt.store(true, Ordering::SeqCst);
        if self.turn.load(Ordering::SeqCst) != turn {
            self.has_interrupt.store(false, Ordering::SeqCst);
            return;
        }
        let interrupt = Arc::new(Interrupt::of_thread(self.thread));
        interrupt.request();
        *slot = Some(Sent {
            turn,
            interrupt,
            since: now,
            again: now + TICK,
        });
        drop(slot);
        // The program's Ctrl-C must not wait for what may never end.
        if self.thread_id == std::process::id() {
            signal_handlers::open(self.thread);
        }
    }

    fn interrupt(&self) -> MutexGuard<'_, Option<Sent>> {
        self.interrupt
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Evaluations {
    fn add(&self, slot: &Arc<Slot>) {
        let mut threads = self.threads();
        threads.retain(|other| other.strong_count() > 0);
        threads.push(Arc::downgrade(slot));
    }

    /// Has the server's thread look, if it does not.
    #[inline]
    fn watch(&self) {
        if !self.are_watched.load(Ordering::SeqCst)
            && !self.are_watched.swap(true, Ordering::SeqCst)
        {
            of_this_process().changed();
        }
    }

    /// When to look next.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.are_watched.load(Ordering::SeqCst).then(|| {
            let now = Instant::now();
            let limits = self.running().into_iter().filter_map(|(slot, _)| {
                let limit = Duration::from_millis(slot.limit_millis.load(Ordering::Relaxed));
                let left = limit.saturating_sub(slot.age(now));
                (!left.is_zero()).then(|| now + left)
            });
            limits.min().unwrap_or(now + TICK).min(now + TICK)
        })
    }

    /// Interrupts what takes too long, and what nobody wants any more. Called by the server's thread.
    pub(crate) fn tick(&self, stops: &Stops) {
        if !self.are_watched.load(Ordering::SeqCst) {
            return;
        }
        let now = Instant::now();
        let running = self.running();
        for (slot, turn) in &running {
            let id = BreakpointId(slot.point.load(Ordering::Relaxed));
            let point = stops.points().find(id);
            let limit = Duration::from_millis(slot.limit_millis.load(Ordering::Relaxed));
            let what = EvaluationKind::of(slot.what.load(Ordering::Relaxed));
            let age = slot.age(now);
            let is_armed = point.as_ref().is_some_and(|point| point.is_armed());
            // A point that is met once is over before what it reports is known.
            let is_spent = |point: &Arc<Breakpoint>| point.request.once && what.is_reported();
            let is_wanted = is_armed || point.as_ref().is_some_and(is_spent);
            let is_late = !limit.is_zero() && age >= limit;
            if is_late || (!is_wanted && age >= GRACE) {
                slot.interrupt_in(*turn);
            }
            if is_late && let Some(point) = point.filter(|_| is_wanted) {
                turn_off(point, what);
            }
        }
        let turns = self.turns();
        if running.is_empty() && self.seen.swap(turns, Ordering::Relaxed) == turns {
            self.are_watched.store(false, Ordering::SeqCst);
            // One that began meanwhile took it for granted.
            if !self.running().is_empty() {
                self.are_watched.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Interrupts all: the server's thread will not look any more.
    pub(crate) fn interrupt_all(&self) {
        for (slot, turn) in self.running() {
            slot.interrupt_in(turn);
        }
    }

    /// Waits, without the GIL, until no thread is inside of these; what to say of those that are.
    pub(crate) fn leave(&self, is_meant: impl Fn(BreakpointId) -> bool) -> Result<(), Failure> {
        let own = own_thread();
        let mut inside = self.running();
        inside.retain(|(slot, _)| {
            slot.thread != own && is_meant(BreakpointId(slot.point.load(Ordering::Relaxed)))
        });
        wait_for(inside, |_| true)
    }

    /// Interrupts all and waits, without the GIL, until no thread is inside, or nobody wants that any more.
    pub(crate) fn interrupt_and_leave(&self, is_wanted: impl Fn() -> bool) -> Result<(), Failure> {
        wait_for(self.running(), |inside| {
            for (slot, turn) in inside {
                slot.interrupt_in(*turn);
            }
            is_wanted()
        })
    }

    /// Whether some thread evaluates something.
    pub(crate) fn are_some(&self) -> bool {
        !self.running().is_empty()
    }

    /// What to say of threads that an interrupt has not brought out of a point's expressions.
    pub(crate) fn stuck_in(&self, point: BreakpointId) -> Option<String> {
        let stuck = self.running().into_iter().find(|(slot, turn)| {
            let is_stuck =
                |sent: &Sent| sent.turn == *turn && sent.since.elapsed() >= STUCK_TIMEOUT;
            slot.point.load(Ordering::Relaxed) == point.0
                && slot.interrupt().as_ref().is_some_and(is_stuck)
        });
        stuck.map(|(slot, _)| {
            format!(
                "thread {} still runs it: a call into C cannot be interrupted",
                slot.thread_id
            )
        })
    }

    fn running(&self) -> Vec<Turned> {
        let threads = self.threads();
        let slots = threads.iter().filter_map(Weak::upgrade);
        let turns = slots.map(|slot| {
            let turn = slot.turn.load(Ordering::SeqCst);
            (slot, turn)
        });
        turns.filter(|(_, turn)| turn % 2 == 1).collect()
    }

    fn turns(&self) -> u64 {
        let threads = self.threads();
        let slots = threads.iter().filter_map(Weak::upgrade);
        slots.map(|slot| slot.turn.load(Ordering::Relaxed)).sum()
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Weak<Slot>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn words(&self) -> String {
        let what = EvaluationKind::of(self.what.load(Ordering::Relaxed)).words();
        let point = self.point.load(Ordering::Relaxed);
        format!("thread {} in {what} (point {point})", self.thread_id)
    }
}

/// Waits until these turns are over; `goes_on` is asked at each look.
fn wait_for(mut inside: Vec<Turned>, goes_on: impl Fn(&[Turned]) -> bool) -> Result<(), Failure> {
    let until = Instant::now() + LEAVE_TIMEOUT;
    loop {
        inside.retain(|(slot, turn)| slot.turn.load(Ordering::SeqCst) == *turn);
        if inside.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until || !goes_on(&inside) {
            let inside: Vec<_> = inside.iter().map(|(slot, _)| slot.words()).collect();
            return Err(still_inside(&inside));
        }
        std_thread::sleep(POLL_INTERVAL);
    }
}

/// Takes a point out, though a thread is inside of its expression: others need not go there.
fn turn_off(point: Arc<Breakpoint>, what: EvaluationKind) {
    static OFF: SingleFlight = SingleFlight::new();
    // Where somebody is at it already, this is done at the next look, or by the thread that is inside.
    OFF.start(move |py| setting::disarm_itself(py, &point, &out_of_time(&point, what)));
}

fn still_inside(inside: &[String]) -> Failure {
    Failure::new(format!("not ended by an interrupt: {}", inside.join(", "))).with_hint(
        "the breakpoint is disabled, but a call into C cannot be interrupted: it ends when the call returns; `probing backtrace --all --native` shows the thread",
    )
}

/// Since the first time that somebody asked.
fn nanos(now: Instant) -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let first = *FIRST.get_or_init(|| now);
    now.saturating_duration_since(first).as_nanos() as u64
}
