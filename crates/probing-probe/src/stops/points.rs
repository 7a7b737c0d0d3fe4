//! What is armed: each point with what it has seen so far. Read by the server's thread, which has no GIL.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use probing_proto::stops::{self, Action, Arm, PointId, Spot};

use super::condition::Condition;
use super::expression::Expression;
use super::of_this_process;
use super::pace::Pace;
use super::sites;
use super::tracing;
use super::watches::Watch;
use crate::codes::Finder;
use crate::outbox::Outbox;

/// Points of one process.
pub(super) const MAX_POINTS: usize = 1000;
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
pub(super) struct Point {
    pub(super) id: PointId,
    pub(super) armed: Arm,
    pub(super) condition: Option<Condition>,
    /// Of a log point.
    pub(super) text: Option<Expression>,
    /// How its code is found; for places in code.
    pub(super) finder: Option<Finder>,
    pub(super) watch: Option<Watch>,
    /// Whether nothing is run where it is passed.
    only_counts: bool,
    /// How the interpreter tells us.
    pub(super) by: &'static str,
    pub(super) cost: String,
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
    /// Of log lines and snapshots.
    pace: Pace,
    state: Mutex<State>,
}

struct State {
    bound: Vec<Spot>,
    note: Option<String>,
}

/// What a point is made of.
pub(super) struct Parts {
    pub(super) condition: Option<Condition>,
    pub(super) text: Option<Expression>,
    pub(super) finder: Option<Finder>,
    pub(super) watch: Option<Watch>,
    pub(super) by: &'static str,
    pub(super) cost: String,
    pub(super) owner: Option<Weak<Outbox>>,
}

impl Point {
    pub(super) fn new(id: PointId, armed: Arm, parts: Parts) -> Self {
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
            armed,
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
            pace: Pace::default(),
            state: Mutex::new(State {
                bound: Vec::new(),
                note: None,
            }),
        }
    }

    pub(super) fn is_armed(&self) -> bool {
        self.stage.load(Ordering::Acquire) == ARMED
    }

    /// Whether it was disarmed.
    pub(super) fn is_over(&self) -> bool {
        self.stage.load(Ordering::Acquire) == OVER
    }

    /// All of it is there, and whoever asked for it waits still: from now on it does something.
    pub(super) fn begin(&self) {
        let (begun, seen) = (Ordering::AcqRel, Ordering::Acquire);
        // One that was disarmed meanwhile, with all others, stays that.
        self.stage
            .compare_exchange(PREPARED, ARMED, begun, seen)
            .ok();
    }

    /// Whether it was armed until now.
    pub(super) fn disarm(&self) -> bool {
        self.stage.swap(OVER, Ordering::AcqRel) == ARMED
    }

    /// What it evaluates.
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let condition = self.condition.as_ref().map(Condition::compiled);
        condition.into_iter().chain(&self.text)
    }

    /// How long an expression of it may take each time; `None` for as long as it likes.
    pub(super) fn expression_limit(&self) -> Option<Duration> {
        let limit = match self.armed.expression_millis {
            Some(millis) => Duration::from_millis(millis),
            None => USUAL_EXPRESSION_TIMEOUT,
        };
        (!limit.is_zero()).then_some(limit)
    }

    /// An expression of it has taken so long.
    pub(super) fn evaluated(&self, took: Duration) {
        self.evaluations.fetch_add(1, Ordering::Relaxed);
        self.evaluation_nanos
            .fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// An expression of it has run out of time.
    pub(super) fn ran_out_of_time(&self) {
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
    pub(super) fn is_owned_by(&self, outbox: &Arc<Outbox>) -> bool {
        let owner = self.owner.as_ref();
        owner.is_some_and(|owner| owner.as_ptr() == Arc::as_ptr(outbox))
    }

    pub(super) fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// Whether nothing is run where it is passed.
    #[inline]
    pub(super) fn only_counts(&self) -> bool {
        self.only_counts
    }

    /// Its place was passed; whether this time counts.
    pub(super) fn hit(&self) -> bool {
        let before = self.hits.fetch_add(1, Ordering::AcqRel);
        before + 1 >= self.armed.hits
    }

    /// Something is done.
    pub(super) fn fire(&self) {
        self.fired.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether one more may be recorded in this second; if not, that is counted.
    pub(super) fn has_room(&self) -> bool {
        let has_room = self.pace.has_room();
        if !has_room {
            self.leave_out();
        }
        has_room
    }

    /// It was passed, something would have been done, and was left out. Only who has the GIL counts.
    #[inline]
    pub(super) fn only_count(&self) {
        let add_one = |count: &AtomicU64| {
            let before = count.load(Ordering::Relaxed);
            count.store(before + 1, Ordering::Release);
            before + 1
        };
        if add_one(&self.hits) >= self.armed.hits {
            add_one(&self.fired);
            add_one(&self.dropped);
        }
    }

    /// Something was seen and not recorded.
    pub(super) fn leave_out(&self) {
        self.dropped.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn bind(&self, spot: Spot) {
        let mut state = self.state();
        if state.bound.len() < MAX_BOUND && !state.bound.contains(&spot) {
            state.bound.push(spot);
        }
    }

    pub(super) fn is_bound(&self) -> bool {
        !self.state().bound.is_empty()
    }

    /// Says something about it; what was said before does not hold any more.
    pub(super) fn note(&self, note: Option<String>) {
        self.state().note = note;
    }

    /// As it is now.
    pub(super) fn told(&self) -> stops::Point {
        let stuck = of_this_process().evaluations.stuck_in(self.id);
        let state = self.state();
        let is_traced =
            self.by == tracing::NAME || (self.by == sites::NAME && tracing::needs_lines());
        let left_out = tracing::left_out().filter(|_| is_traced && self.is_armed());
        let notes = state.note.iter().cloned().chain(left_out);
        let notes = notes.chain(stuck).chain(self.mean_cost());
        let note = notes.reduce(|one, other| format!("{one}; {other}"));
        let left = self
            .expires
            .map(|expires| expires.saturating_duration_since(Instant::now()));
        stops::Point {
            point: self.id,
            armed: self.armed.clone(),
            bound: state.bound.clone(),
            cost: self.cost.clone(),
            by: self.by.to_owned(),
            hits: self.hits.load(Ordering::Acquire),
            fired: self.fired.load(Ordering::Acquire),
            dropped: self.dropped.load(Ordering::Acquire),
            expires_in_millis: left.map(|left| left.as_millis() as u64),
            note,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All points of a process, in the order in which they were armed. One that disarmed itself stays until it is told of.
#[derive(Default)]
pub(super) struct Points {
    all: Vec<Arc<Point>>,
    last: u32,
}

impl Points {
    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= MAX_POINTS
    }

    pub(super) fn next_id(&mut self) -> PointId {
        self.last += 1;
        PointId(self.last)
    }

    pub(super) fn add(&mut self, point: Arc<Point>) {
        self.all.push(point);
    }

    pub(super) fn all(&self) -> &[Arc<Point>] {
        &self.all
    }

    pub(super) fn find(&self, id: PointId) -> Option<Arc<Point>> {
        self.all.iter().find(|point| point.id == id).cloned()
    }

    /// Takes these out; all, when none is named.
    pub(super) fn take(&mut self, wanted: &[PointId]) -> Vec<Arc<Point>> {
        let is_wanted = |point: &Arc<Point>| wanted.is_empty() || wanted.contains(&point.id);
        let (taken, left) = self.all.drain(..).partition(is_wanted);
        self.all = left;
        taken
    }

    /// Those that end with a connection.
    pub(super) fn owned_by(&self, outbox: &Arc<Outbox>) -> Vec<PointId> {
        let owned = self.all.iter().filter(|point| point.is_owned_by(outbox));
        owned.map(|point| point.id).collect()
    }

    /// Those whose time is over.
    pub(super) fn expired(&self) -> Vec<Arc<Point>> {
        let now = Instant::now();
        let is_over = |point: &&Arc<Point>| {
            point.is_armed() && point.expires().is_some_and(|expires| expires <= now)
        };
        self.all.iter().filter(is_over).cloned().collect()
    }

    /// When the next one's time is over.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let armed = self.all.iter().filter(|point| point.is_armed());
        armed.filter_map(|point| point.expires()).min()
    }
}
