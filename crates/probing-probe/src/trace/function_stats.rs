//! What is known of one function that is traced: whose it is, and the sums of its calls.

use std::sync::Arc;

use crate::trace::clock;
use crate::trace::code_table::EventFollowUp;
use crate::trace::lines::Lines;
use crate::trace::tap::EventSet;
use crate::trace::traces::Trace;

/// Buckets of a histogram: one for each power of two of nanoseconds.
pub(crate) const BUCKETS: usize = 48;
/// A function that was told of so often since the last look is muted first when a trace costs too much.
const FREQUENT_EVENTS: u32 = 500;

/// What a function is to a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The trace is of it.
    Root,
    /// It was called by one that is followed; how far to follow what it calls.
    Callee { levels: u32 },
    /// A part of it is, while a thread is there.
    Block,
}

/// When an event of a function is recorded, and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recorded {
    /// That is asked each time.
    Perhaps,
    /// The trace is of it, at every call: nothing need be asked but how the trace fares.
    Always,
    /// The same, and it becomes a row and nothing else.
    AlwaysAsRow,
}

/// One function.
pub(crate) struct Tracing {
    pub(crate) trace: Arc<Trace>,
    /// What began before is not this trace's: another one saw it begin, and ended before it did.
    pub(crate) since: i64,
    /// Its number among all that were ever traced here.
    pub(crate) function: u32,
    role: Role,
    recorded: Recorded,
    /// What the trace wants, kept here because every event asks: how far to follow what it calls, and whether there are
    /// only sums.
    pub(crate) levels: u32,
    pub(crate) is_summed: bool,
    pub(crate) wants: EventSet,
    pub(crate) is_muted: bool,
    /// Since the last look; and how often it was told that it calls something.
    pub(crate) events: u32,
    pub(crate) calls: u32,
    /// Since ever, where what it calls is followed.
    entries: u32,
    pub(crate) sums: Sums,
    /// What is known of its lines, where each of them is told.
    pub(crate) lines: Option<Lines>,
}

/// Of calls since the last look.
#[derive(Clone)]
pub(crate) struct Sums {
    pub(crate) calls: u64,
    pub(crate) total: i64,
    /// Without that of traced functions that it called.
    pub(crate) own: i64,
    pub(crate) least: i64,
    pub(crate) greatest: i64,
    pub(crate) errors: u64,
    pub(crate) histogram: [u32; BUCKETS],
}

impl Tracing {
    pub(crate) fn new(trace: Arc<Trace>, function: u32, role: Role, suspends: bool) -> Self {
        let wants = if role == Role::Block {
            EventSet::CALLS
        } else {
            let levels = match role {
                Role::Callee { levels } => levels,
                Role::Root | Role::Block => trace.wanted.depth,
            };
            let runs = EventSet::STARTS
                .and(EventSet::RETURNS)
                .and(EventSet::UNWINDS);
            let goes_on = if suspends {
                EventSet::YIELDS
            } else {
                EventSet::default()
            };
            let calls = if levels > 0 {
                EventSet::CALLS
            } else {
                EventSet::default()
            };
            let lines = if follows_lines(&trace, role) {
                EventSet::LINES
            } else {
                EventSet::default()
            };
            runs.and(goes_on).and(calls).and(lines)
        };
        let is_always = role == Role::Root && trace.wanted.steps.is_none();
        let lines = follows_lines(&trace, role).then(|| Lines::of(function));
        let is_row = !trace.wanted.stats && trace.wanted.depth == 0 && lines.is_none();
        Self {
            recorded: match (is_always, is_row) {
                (false, _) => Recorded::Perhaps,
                (true, false) => Recorded::Always,
                (true, true) => Recorded::AlwaysAsRow,
            },
            levels: trace.wanted.depth,
            is_summed: trace.wanted.stats,
            trace,
            since: clock::now(),
            function,
            role,
            wants,
            is_muted: false,
            events: 0,
            calls: 0,
            entries: 0,
            sums: Sums::new(),
            lines,
        }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.role == Role::Root
    }

    /// Whether the trace is of it, and can pay for a profile function at the moment.
    pub(crate) fn pays_for_profile(&self) -> bool {
        self.is_root() && !self.is_muted && !self.trace.is_overdrawn()
    }

    /// Whether an event is recorded, without a further question.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.recorded != Recorded::Perhaps && !self.is_muted && self.trace.is_well()
    }

    /// Whether an event is a row, and nothing else comes of it.
    #[inline]
    pub(crate) fn is_quick(&self) -> bool {
        self.recorded == Recorded::AlwaysAsRow && !self.is_muted && self.trace.is_well()
    }

    /// It begins, and what it calls is followed. What it calls through C is found when that begins, once: code that others
    /// called before has been told to be silent. So all code is asked again at the first of its calls, the second, the
    /// fourth, and so on.
    #[cold]
    pub(crate) fn looks_again(&mut self) -> bool {
        self.entries = self.entries.saturating_add(1);
        self.entries.is_power_of_two()
    }

    /// It is told of no more for the time being.
    #[cold]
    pub(crate) fn mute(&mut self) -> EventFollowUp {
        if !self.is_muted {
            self.is_muted = true;
            self.trace.mute_one();
        }
        EventFollowUp {
            again: false,
            ..EventFollowUp::ON
        }
    }

    /// It is told of again; whether it was not.
    pub(crate) fn unmute(&mut self) -> bool {
        if let Some(lines) = &mut self.lines {
            lines.restart();
        }
        std::mem::take(&mut self.is_muted)
    }

    /// Whether it is to be told of no more for the time being.
    #[inline]
    pub(crate) fn is_too_much(&self) -> bool {
        let is_often = || self.events.max(self.calls) > FREQUENT_EVENTS;
        self.is_muted || self.trace.is_overdrawn() && (is_often() || self.trace.is_deep_in_debt())
    }
}

/// Lines are those of the functions that a trace is of, not of what they call.
fn follows_lines(trace: &Trace, role: Role) -> bool {
    trace.wanted.lines && role == Role::Root
}

impl Sums {
    fn new() -> Self {
        Self {
            calls: 0,
            total: 0,
            own: 0,
            least: i64::MAX,
            greatest: 0,
            errors: 0,
            histogram: [0; BUCKETS],
        }
    }

    /// A call, or a part of one between being resumed and left, has ended.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as part of `quick.rs`")]
    pub(crate) fn add(&mut self, took: i64, of_others: i64) {
        self.calls += 1;
        self.total += took;
        self.own += (took - of_others).max(0);
        // Seldom: a branch is cheaper than a store each time.
        if took < self.least {
            self.least = took;
        }
        if took > self.greatest {
            self.greatest = took;
        }
        let bucket = (i64::BITS - took.leading_zeros()) as usize;
        self.histogram[bucket.min(BUCKETS - 1)] += 1;
    }

    /// What there is, which is then forgotten.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new())
    }

    /// `[[1024, 3], …]`: how many calls took at least so many nanoseconds, and less than twice as many.
    pub(crate) fn histogram_in_words(&self) -> String {
        let buckets = self.histogram.iter().enumerate();
        let buckets = buckets
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| {
                let least = if bucket == 0 {
                    0
                } else {
                    1_u64 << (bucket - 1)
                };
                format!("[{least}, {count}]")
            });
        format!("[{}]", buckets.collect::<Vec<_>>().join(", "))
    }
}
