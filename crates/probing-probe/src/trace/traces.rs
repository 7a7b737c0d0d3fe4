//! The registry of traces, each with its events and cost.
//!
//! Read by the server's thread, which has no GIL.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use probing_proto::message::breakpoints::{BreakpointId, SourceLocation};
use probing_proto::message::trace as proto;
use probing_proto::message::trace::{Scope, TraceId};

use crate::instrument::profile;
use crate::process::per_process::PerProcess;
use crate::python::code_search::Finder;
use crate::trace::budget::{Budget, Verdict};

/// Traces of one process.
pub(crate) const MAX_TRACES: usize = 100;
/// Functions that are told of one trace.
const MAX_BOUND: usize = 100;
/// How long a trace lasts that a client began, if nobody says.
const USUAL_TTL: Duration = Duration::from_mins(10);

/// How it fares: bits of a set. It has cost more than it may; much more; or it has ended.
const OVERDRAWN: u8 = 1;
const DEEP_IN_DEBT: u8 = 2;
const OVER: u8 = 4;

/// Whose trace it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It ends in the child of a fork, and after a while.
    Client,
    /// `probing.probe`: it lasts.
    Program,
}

/// One trace.
pub(crate) struct Trace {
    pub(crate) id: TraceId,
    pub(crate) wanted: proto::Trace,
    pub(crate) owner: Owner,
    /// How its code is found.
    pub(crate) finder: Option<Finder>,
    /// How the interpreter tells us.
    pub(crate) by: &'static str,
    /// How long it lasts, and when it ends, from when it has begun.
    ttl: Option<Duration>,
    expires: OnceLock<Option<Instant>>,
    /// A set of [`OVER`] and others; nothing of it: all is well.
    state_bits: AtomicU8,
    functions: AtomicU32,
    muted: AtomicU32,
    mutings: AtomicU64,
    steps_left: AtomicU64,
    last_step: Mutex<Option<i64>>,
    state: Mutex<State>,
}

struct State {
    bound: Vec<SourceLocation>,
    note: Option<String>,
    points: Vec<BreakpointId>,
    purse: Budget,
}

impl Trace {
    pub(crate) fn new(
        id: TraceId,
        wanted: proto::Trace,
        owner: Owner,
        finder: Option<Finder>,
        (by, event_nanos): (&'static str, f64),
    ) -> Self {
        let ttl = match (wanted.for_millis, owner) {
            (Some(0), _) | (None, Owner::Program) => None,
            (Some(millis), _) => Some(Duration::from_millis(millis)),
            (None, Owner::Client) => Some(USUAL_TTL),
        };
        Self {
            id,
            owner,
            finder,
            by,
            ttl,
            expires: OnceLock::new(),
            state_bits: AtomicU8::new(0),
            functions: AtomicU32::new(0),
            muted: AtomicU32::new(0),
            mutings: AtomicU64::new(0),
            steps_left: AtomicU64::new(wanted.steps.unwrap_or(u64::MAX)),
            last_step: Mutex::new(None),
            state: Mutex::new(State {
                bound: Vec::new(),
                note: None,
                points: Vec::new(),
                purse: Budget::new(wanted.budget_ppm, event_nanos),
            }),
            wanted,
        }
    }

    /// Neither over nor too dear: all events of it are recorded.
    #[inline]
    pub(crate) fn is_well(&self) -> bool {
        self.state_bits.load(Ordering::Relaxed) == 0
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is(OVER)
    }

    /// Whether it was not until now.
    pub(crate) fn end(&self) -> bool {
        self.state_bits.fetch_or(OVER, Ordering::AcqRel) & OVER == 0
    }

    #[inline]
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.is(OVERDRAWN)
    }

    #[inline]
    pub(crate) fn is_deep_in_debt(&self) -> bool {
        self.is(DEEP_IN_DEBT)
    }

    #[inline]
    fn is(&self, bit: u8) -> bool {
        self.state_bits.load(Ordering::Relaxed) & bit != 0
    }

    /// The function that it is of begins: whether that is one step too many.
    #[inline]
    pub(crate) fn has_had_its_steps(&self) -> bool {
        self.wanted.steps.is_some() && self.count_step()
    }

    #[cold]
    fn count_step(&self) -> bool {
        let now = crate::recording::step::counted();
        let mut last = self
            .last_step
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Where nobody counts steps, each call is one.
        let is_new = now.is_none() || *last != now;
        *last = now;
        drop(last);
        let left = self.steps_left.load(Ordering::Relaxed);
        if is_new && left > 0 {
            self.steps_left.store(left - 1, Ordering::Relaxed);
        }
        is_new && left == 0
    }

    /// One more of its functions is not told of for the time being.
    pub(crate) fn mute_one(&self) {
        self.muted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn muted(&self) -> u32 {
        self.muted.load(Ordering::Relaxed)
    }

    /// Notes what was seen since the last time; what is to be done about its cost.
    pub(crate) fn account(&self, events: u64) -> Verdict {
        let verdict = self.state().purse.account(events, self.is_overdrawn());
        match verdict {
            Verdict::Mute => {
                self.mutings.fetch_add(1, Ordering::Relaxed);
                self.state_bits.fetch_or(OVERDRAWN, Ordering::AcqRel);
            }
            Verdict::MuteAll => {
                self.state_bits.fetch_or(DEEP_IN_DEBT, Ordering::AcqRel);
            }
            Verdict::GoOn | Verdict::Resume => {}
        }
        verdict
    }

    /// All of its functions are told of again.
    pub(crate) fn resume(&self) {
        let debts = OVERDRAWN | DEEP_IN_DEBT;
        self.state_bits.fetch_and(!debts, Ordering::AcqRel);
        self.muted.store(0, Ordering::Relaxed);
    }

    /// Something of ours was done for it that took so long.
    pub(crate) fn charge(&self, nanos: i64) {
        self.state().purse.charge(nanos);
    }

    /// Before 3.12, what looks for code of a module has all other code tell, too, which is passed by for about half the price.
    pub(crate) fn pay_for_others(&self, passed_by: u64) {
        if passed_by > 0 && self.may_profile() && !self.is_over() {
            let mut state = self.state();
            let (_, _, event_nanos) = state.purse.bill();
            state
                .purse
                .charge((passed_by as f64 * event_nanos / 2.0) as i64);
        }
    }

    /// To be told what its functions call costs as much as an event.
    pub(crate) fn pay_for_calls(&self, calls: u64) {
        if calls > 0 {
            let mut state = self.state();
            let (_, _, event_nanos) = state.purse.bill();
            state.purse.charge((calls as f64 * event_nanos) as i64);
        }
    }

    /// Before 3.12: whether it has threads tell all that they call.
    pub(crate) fn may_profile(&self) -> bool {
        self.by == profile::NAME || self.wanted.depth > 0
    }

    /// What it has cost: share, events, and what one costs.
    pub(crate) fn bill(&self) -> (f64, u64, f64) {
        self.state().purse.bill()
    }

    pub(crate) fn bind(&self, spot: SourceLocation) {
        self.functions.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        if state.bound.len() < MAX_BOUND {
            state.bound.push(spot);
        }
    }

    pub(crate) fn functions(&self) -> u32 {
        self.functions.load(Ordering::Relaxed)
    }

    pub(crate) fn note(&self, note: Option<String>) {
        self.state().note = note;
    }

    pub(crate) fn watched_by(&self, points: Vec<BreakpointId>) {
        self.state().points = points;
    }

    pub(crate) fn points(&self) -> Vec<BreakpointId> {
        self.state().points.clone()
    }

    /// All of it is there: its time begins now.
    pub(crate) fn has_begun(&self) {
        let expires = || self.ttl.and_then(|ttl| Instant::now().checked_add(ttl));
        self.expires.get_or_init(expires);
    }

    pub(crate) fn expires(&self) -> Option<Instant> {
        let expires = self.expires.get().copied().flatten();
        expires.filter(|_| !self.is_over())
    }

    /// As it is now.
    pub(crate) fn report(&self) -> proto::TraceStatus {
        let state = self.state();
        let (share, events, event_nanos) = state.purse.bill();
        let left = self.expires();
        let left = left.map(|expires| expires.saturating_duration_since(Instant::now()));
        proto::TraceStatus {
            trace: self.id,
            request: self.wanted.clone(),
            bound: state.bound.clone(),
            functions: self.functions(),
            by: self.by.to_owned(),
            cost: self.cost(event_nanos),
            events,
            event_nanos: event_nanos.round() as u64,
            cost_ppm: (share * f64::from(proto::MILLION)).round() as u64,
            muted: self.muted(),
            mutings: self.mutings.load(Ordering::Relaxed),
            points: state.points.clone(),
            expires_in_millis: left.map(|left| left.as_millis() as u64),
            note: state.note.clone(),
            ended: self.is_over(),
        }
    }

    fn cost(&self, event_nanos: f64) -> String {
        let call = (2.0 * event_nanos).round();
        let line = if self.wanted.lines {
            format!(" and {} ns a line", event_nanos.round())
        } else {
            String::new()
        };
        let budget = self.wanted.budget_ppm.map_or_else(
            || "no limit".to_owned(),
            |ppm| format!("at most {} % of CPU time", f64::from(ppm) / 10_000.0),
        );
        let elsewhere = match (&self.wanted.scope, self.wanted.depth) {
            (Scope::Function { .. }, 0) => "nothing elsewhere",
            (Scope::Function { .. }, _) => "as much each time another function calls its callees",
            (Scope::Module { .. }, _) if self.by == profile::NAME => {
                "half as much for each call of other functions"
            }
            (Scope::Module { .. }, _) => {
                "each function of other modules once, when it first begins"
            }
        };
        format!("about {call} ns a call{line}; {elsewhere}; {budget}")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All traces of a process, in the order in which they began. One that has ended stays until somebody takes it out.
#[derive(Default)]
pub(crate) struct Traces {
    all: Mutex<Vec<Arc<Trace>>>,
    last: AtomicU32,
}

static TRACES: PerProcess<Traces> = PerProcess::new();

/// This process's.
pub(crate) fn of_this_process() -> &'static Traces {
    TRACES.get_or_init(Traces::default)
}

/// This process's, if there ever was one.
pub(crate) fn if_any() -> Option<&'static Traces> {
    TRACES.get()
}

/// Whether this trace is there and has not ended.
pub(crate) fn goes_on(id: TraceId) -> bool {
    let is_it = |trace: &Arc<Trace>| trace.id == id && !trace.is_over();
    if_any().is_some_and(|traces| traces.lock().iter().any(is_it))
}

/// Whether one that follows what functions call can pay for that at the moment.
pub(crate) fn follow_calls_now() -> bool {
    let pays =
        |trace: &Arc<Trace>| trace.wanted.depth > 0 && !trace.is_over() && !trace.is_overdrawn();
    if_any().is_some_and(|traces| traces.lock().iter().any(pays))
}

impl Traces {
    pub(crate) fn next_id(&self) -> TraceId {
        TraceId(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lock().len() >= MAX_TRACES
    }

    pub(crate) fn add(&self, trace: Arc<Trace>) {
        self.lock().push(trace);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Trace>> {
        self.lock().clone()
    }

    /// Takes these out; all that clients began, when none is named.
    pub(crate) fn take(&self, wanted: &[TraceId]) -> Vec<Arc<Trace>> {
        let is_wanted = |trace: &Arc<Trace>| {
            wanted.contains(&trace.id) || (wanted.is_empty() && trace.owner == Owner::Client)
        };
        let mut all = self.lock();
        let (taken, left) = all.drain(..).partition(is_wanted);
        *all = left;
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Trace>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
