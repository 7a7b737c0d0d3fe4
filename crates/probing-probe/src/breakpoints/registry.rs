//! The registry of breakpoints, each with its hits.
//!
//! Read by the server's thread, which has no GIL.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use probing_proto::message::breakpoints::{
    self, Action, BreakpointId, SetBreakpoint, SourceLocation,
};

use crate::breakpoints::condition::Condition;
use crate::breakpoints::expression::Expression;
use crate::breakpoints::of_this_process;
use crate::breakpoints::rate_limit::Pace;
use crate::instrument::settrace;
use crate::instrument::sites;
use crate::python::code_search::Finder;
use crate::requests::outbox::Outbox;
use crate::watchpoints::Watch;

/// Points of one process.
pub(crate) const MAX_POINTS: usize = 1000;
/// Places that are told of one point.
const MAX_BOUND: usize = 100;
/// How long an expression of a point may take each time, if nobody says.
const USUAL_EXPRESSION_TIMEOUT: Duration = Duration::from_secs(1);
/// Expressions that took that long on average are warned of, when so many were evaluated: one may have waited for the CPU.
const SLOW: Duration = Duration::from_millis(1);
const MIN_EVALUATIONS: u64 = 100;
/// How long a point that stops is armed, if nobody says.
const USUAL_TTL: Duration = Duration::from_mins(10);

/// A point that is being put where it belongs: passed, it does nothing.
const PREPARED: u8 = 0;
const ARMED: u8 = 1;
const OVER: u8 = 2;

/// One point.
pub(crate) struct Breakpoint {
    pub(crate) id: BreakpointId,
    pub(crate) request: SetBreakpoint,
    pub(crate) condition: Option<Condition>,
    /// Of a log point.
    pub(crate) text: Option<Expression>,
    /// How its code is found; for places in code.
    pub(crate) finder: Option<Finder>,
    pub(crate) watch: Option<Watch>,
    /// Whether nothing is run where it is passed.
    only_counts: bool,
    /// How the interpreter tells us.
    pub(crate) by: &'static str,
    pub(crate) cost: String,
    /// The connection that it ends with.
    owner: Option<Weak<Outbox>>,
    expires: Option<Instant>,
    stage: AtomicU8,
    hits: AtomicU64,
    fired: AtomicU64,
    dropped: AtomicU64,
    /// How often its expressions were evaluated, and how long that took in all.
    evaluations: AtomicU64,
    evaluation_nanos: AtomicU64,
    /// Whether one of them ran out of time.
    is_out_of_time: AtomicBool,
    /// Whether changes were left out since the value that was seen last.
    is_behind: AtomicBool,
    /// Of log lines and snapshots.
    pace: Pace,
    state: Mutex<State>,
}

struct State {
    bound: Vec<SourceLocation>,
    note: Option<String>,
    /// What a watch has seen last.
    value: Option<LastValue>,
}

enum LastValue {
    Unbound,
    InWords(String),
}

/// What a point is made of.
pub(crate) struct Parts {
    pub(crate) condition: Option<Condition>,
    pub(crate) text: Option<Expression>,
    pub(crate) finder: Option<Finder>,
    pub(crate) watch: Option<Watch>,
    pub(crate) by: &'static str,
    pub(crate) cost: String,
    /// What to say about it.
    pub(crate) note: Option<String>,
    pub(crate) owner: Option<Weak<Outbox>>,
}

impl Breakpoint {
    pub(crate) fn new(id: BreakpointId, armed: SetBreakpoint, parts: Parts) -> Self {
        let ttl = match armed.ttl_millis {
            Some(0) => None,
            Some(millis) => Some(Duration::from_millis(millis)),
            None if armed.action == Action::Stop => Some(USUAL_TTL),
            None => None,
        };
        let now = Instant::now();
        Self {
            id,
            only_counts: parts.condition.is_none() && armed.action == Action::Count,
            request: armed,
            condition: parts.condition,
            text: parts.text,
            finder: parts.finder,
            watch: parts.watch,
            by: parts.by,
            cost: parts.cost,
            owner: parts.owner,
            expires: ttl.and_then(|ttl| now.checked_add(ttl)),
            stage: AtomicU8::new(PREPARED),
            hits: AtomicU64::new(0),
            fired: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            evaluations: AtomicU64::new(0),
            evaluation_nanos: AtomicU64::new(0),
            is_out_of_time: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            pace: Pace::default(),
            state: Mutex::new(State {
                bound: Vec::new(),
                note: parts.note,
                value: None,
            }),
        }
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.stage.load(Ordering::Acquire) == ARMED
    }

    /// Whether it was disarmed.
    pub(crate) fn is_over(&self) -> bool {
        self.stage.load(Ordering::Acquire) == OVER
    }

    /// All of it is there, and whoever asked for it waits still: from now on it does something.
    pub(crate) fn begin(&self) {
        let (begun, seen) = (Ordering::AcqRel, Ordering::Acquire);
        // One that was disarmed meanwhile, with all others, stays that.
        self.stage
            .compare_exchange(PREPARED, ARMED, begun, seen)
            .ok();
    }

    /// Whether it was armed until now.
    pub(crate) fn disarm(&self) -> bool {
        self.stage.swap(OVER, Ordering::AcqRel) == ARMED
    }

    /// What it evaluates.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let condition = self.condition.as_ref().map(Condition::compiled);
        condition.into_iter().chain(&self.text)
    }

    /// How long an expression of it may take each time; `None` for as long as it likes.
    pub(crate) fn expression_limit(&self) -> Option<Duration> {
        let limit = match self.request.expression_millis {
            Some(millis) => Duration::from_millis(millis),
            None => USUAL_EXPRESSION_TIMEOUT,
        };
        (!limit.is_zero()).then_some(limit)
    }

    /// An expression of it has taken so long.
    pub(crate) fn evaluated(&self, took: Duration) {
        self.evaluations.fetch_add(1, Ordering::Relaxed);
        self.evaluation_nanos
            .fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// An expression of it has run out of time.
    pub(crate) fn ran_out_of_time(&self) {
        self.is_out_of_time.store(true, Ordering::Relaxed);
    }

    /// What its expressions cost, when they are slow.
    fn mean_cost(&self) -> Option<String> {
        let count = self.evaluations.load(Ordering::Relaxed).max(1);
        let in_all = Duration::from_nanos(self.evaluation_nanos.load(Ordering::Relaxed));
        let mean = Duration::from_nanos(in_all.as_nanos() as u64 / count);
        let is_slow = count >= MIN_EVALUATIONS && mean >= SLOW;
        (is_slow || self.is_out_of_time.load(Ordering::Relaxed)).then(|| {
            let millis = mean.as_secs_f64() * 1e3;
            format!("slow: its expressions take {millis:.1} ms on average ({count} evaluated)")
        })
    }

    /// Whether it ends with this connection.
    pub(crate) fn is_owned_by(&self, outbox: &Arc<Outbox>) -> bool {
        let owner = self.owner.as_ref();
        owner.is_some_and(|owner| owner.as_ptr() == Arc::as_ptr(outbox))
    }

    pub(crate) fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// Whether nothing is run where it is passed.
    #[inline]
    pub(crate) fn only_counts(&self) -> bool {
        self.only_counts
    }

    /// Its place was passed; whether this time counts.
    pub(crate) fn hit(&self) -> bool {
        let before = self.hits.fetch_add(1, Ordering::AcqRel);
        before + 1 >= self.request.hits
    }

    /// Something is done.
    pub(crate) fn fire(&self) {
        self.fired.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether one more may be recorded in this second; if not, that is counted.
    pub(crate) fn has_room(&self) -> bool {
        let has_room = self.pace.has_room();
        if !has_room {
            self.leave_out();
        }
        has_room
    }

    /// It was passed, something would have been done, and was left out. Only who has the GIL counts.
    #[inline]
    pub(crate) fn only_count(&self) {
        self.is_behind.store(true, Ordering::Relaxed);
        let add_one = |count: &AtomicU64| {
            let before = count.load(Ordering::Relaxed);
            count.store(before + 1, Ordering::Release);
            before + 1
        };
        if add_one(&self.hits) >= self.request.hits {
            add_one(&self.fired);
            add_one(&self.dropped);
        }
    }

    /// Something was seen and not recorded.
    pub(crate) fn leave_out(&self) {
        self.dropped.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn bind(&self, spot: SourceLocation) {
        let mut state = self.state();
        if state.bound.len() < MAX_BOUND && !state.bound.contains(&spot) {
            state.bound.push(spot);
        }
    }

    pub(crate) fn is_bound(&self) -> bool {
        !self.state().bound.is_empty()
    }

    /// Says something about it; what was said before does not hold any more.
    pub(crate) fn note(&self, note: Option<String>) {
        self.state().note = note;
    }

    /// Says more about it.
    pub(crate) fn add_note(&self, more: Option<String>) {
        let mut state = self.state();
        let notes = state.note.take().into_iter().chain(more);
        state.note = notes.reduce(|one, other| format!("{one}; {other}"));
    }

    /// A watch has seen this value; `None` when nothing is bound there.
    pub(crate) fn saw(&self, value: Option<String>) {
        self.state().value = Some(value.map_or(LastValue::Unbound, LastValue::InWords));
        self.is_behind.store(false, Ordering::Relaxed);
    }

    /// What a watch has seen last, in words.
    fn last_value(&self, state: &State) -> Option<String> {
        let value = state.value.as_ref().filter(|_| !self.is_over())?;
        let is_behind = self.is_behind.load(Ordering::Relaxed);
        let was_passed = self.hits.load(Ordering::Acquire) > 0;
        Some(match value {
            LastValue::InWords(value) if is_behind => {
                format!("{value} when a change was last recorded")
            }
            LastValue::InWords(value) => format!("now {value}"),
            LastValue::Unbound if is_behind || was_passed => {
                "not bound: set for when it is".to_owned()
            }
            LastValue::Unbound => "not bound yet: set for when it is".to_owned(),
        })
    }

    /// As it is now.
    pub(crate) fn report(&self) -> breakpoints::Breakpoint {
        let stuck = of_this_process().evaluations.stuck_in(self.id);
        let state = self.state();
        let is_traced =
            self.by == settrace::NAME || (self.by == sites::NAME && settrace::needs_lines());
        let left_out = settrace::left_out().filter(|_| is_traced && self.is_armed());
        let notes = state.note.iter().cloned().chain(left_out);
        let notes = self.last_value(&state).into_iter().chain(notes);
        let notes = notes.chain(stuck).chain(self.mean_cost());
        let notes = notes.chain(self.expressions().filter_map(Expression::warnings));
        let note = notes.reduce(|one, other| format!("{one}; {other}"));
        let over = self.is_over();
        let left = self
            .expires
            .filter(|_| !over)
            .map(|expires| expires.saturating_duration_since(Instant::now()));
        breakpoints::Breakpoint {
            point: self.id,
            request: self.request.clone(),
            bound: state.bound.clone(),
            cost: self.cost.clone(),
            by: self.by.to_owned(),
            hits: self.hits.load(Ordering::Acquire),
            fired: self.fired.load(Ordering::Acquire),
            dropped: self.dropped.load(Ordering::Acquire),
            expires_in_millis: left.map(|left| left.as_millis() as u64),
            over,
            note,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All points of a process, in the order in which they were armed. One that disarmed itself stays until it is told of.
#[derive(Default)]
pub(crate) struct BreakpointRegistry {
    all: Vec<Arc<Breakpoint>>,
    last: u32,
}

impl BreakpointRegistry {
    pub(crate) fn is_full(&self) -> bool {
        self.all.len() >= MAX_POINTS
    }

    pub(crate) fn next_id(&mut self) -> BreakpointId {
        self.last += 1;
        BreakpointId(self.last)
    }

    pub(crate) fn add(&mut self, point: Arc<Breakpoint>) {
        self.all.push(point);
    }

    pub(crate) fn all(&self) -> &[Arc<Breakpoint>] {
        &self.all
    }

    pub(crate) fn find(&self, id: BreakpointId) -> Option<Arc<Breakpoint>> {
        self.all.iter().find(|point| point.id == id).cloned()
    }

    /// Takes these out; all, when none is named.
    pub(crate) fn take(&mut self, wanted: &[BreakpointId]) -> Vec<Arc<Breakpoint>> {
        let is_wanted = |point: &Arc<Breakpoint>| wanted.is_empty() || wanted.contains(&point.id);
        let (taken, left) = self.all.drain(..).partition(is_wanted);
        self.all = left;
        taken
    }

    /// Those that end with a connection.
    pub(crate) fn owned_by(&self, outbox: &Arc<Outbox>) -> Vec<BreakpointId> {
        let owned = self.all.iter().filter(|point| point.is_owned_by(outbox));
        owned.map(|point| point.id).collect()
    }

    /// Those whose time is over.
    pub(crate) fn expired(&self) -> Vec<Arc<Breakpoint>> {
        let now = Instant::now();
        let is_over = |point: &&Arc<Breakpoint>| {
            point.is_armed() && point.expires().is_some_and(|expires| expires <= now)
        };
        self.all.iter().filter(is_over).cloned().collect()
    }

    /// When the next one's time is over.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let armed = self.all.iter().filter(|point| point.is_armed());
        armed.filter_map(|point| point.expires()).min()
    }
}
