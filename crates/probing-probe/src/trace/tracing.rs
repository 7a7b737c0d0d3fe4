//! What is known of one function that is traced: whose it is, and the sums of its calls.

use std::sync::Arc;

use super::clock;
use super::lines::Lines;
use super::table::Way;
use super::tap::Wants;
use super::traces::Trace;

/// Buckets of a histogram: one for each power of two of nanoseconds.
pub(super) const BUCKETS: usize = 48;
/// A function that was told of so often since the last look is muted first when a trace costs too much.
const OFTEN: u32 = 500;

/// What a function is to a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
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
pub(super) struct Tracing {
    pub(super) trace: Arc<Trace>,
    /// What began before is not this trace's: another one saw it begin, and ended before it did.
    pub(super) since: i64,
    /// Its number among all that were ever traced here.
    pub(super) function: u32,
    role: Role,
    recorded: Recorded,
    /// What the trace wants, kept here because every event asks: how far to follow what it calls, and whether there are
    /// only sums.
    pub(super) levels: u32,
    pub(super) is_summed: bool,
    pub(super) wants: Wants,
    pub(super) is_muted: bool,
    /// Since the last look; and how often it was told that it calls something.
    pub(super) events: u32,
    pub(super) calls: u32,
    /// Since ever, where what it calls is followed.
    entries: u32,
    pub(super) sums: Sums,
    /// What is known of its lines, where each of them is told.
    pub(super) lines: Option<Lines>,
}

/// Of calls since the last look.
#[derive(Clone)]
pub(super) struct Sums {
    pub(super) calls: u64,
    pub(super) total: i64,
    /// Without that of traced functions that it called.
    pub(super) own: i64,
    pub(super) least: i64,
    pub(super) greatest: i64,
    pub(super) errors: u64,
    pub(super) histogram: [u32; BUCKETS],
}

impl Tracing {
    pub(super) fn new(trace: Arc<Trace>, function: u32, role: Role, suspends: bool) -> Self {
        let wants = if role == Role::Block {
            Wants::CALLS
        } else {
            let levels = match role {
                Role::Callee { levels } => levels,
                Role::Root | Role::Block => trace.wanted.depth,
            };
            let runs = Wants::STARTS.and(Wants::RETURNS).and(Wants::UNWINDS);
            let goes_on = if suspends {
                Wants::YIELDS
            } else {
                Wants::default()
            };
            let calls = if levels > 0 {
                Wants::CALLS
            } else {
                Wants::default()
            };
            let lines = if follows_lines(&trace, role) {
                Wants::LINES
            } else {
                Wants::default()
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

    pub(super) fn is_root(&self) -> bool {
        self.role == Role::Root
    }

    /// Whether the trace is of it, and can pay for a profile function at the moment.
    pub(super) fn pays_for_profile(&self) -> bool {
        self.is_root() && !self.is_muted && !self.trace.is_overdrawn()
    }

    /// Whether an event is recorded, without a further question.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.recorded != Recorded::Perhaps && !self.is_muted && self.trace.is_well()
    }

    /// Whether an event is a row, and nothing else comes of it.
    #[inline]
    pub(super) fn is_quick(&self) -> bool {
        self.recorded == Recorded::AlwaysAsRow && !self.is_muted && self.trace.is_well()
    }

    /// It begins, and what it calls is followed. What it calls through C is found when that begins, once: code that others
    /// called before has been told to be silent. So all code is asked again at the first of its calls, the second, the
    /// fourth, and so on.
    #[cold]
    pub(super) fn looks_again(&mut self) -> bool {
        self.entries = self.entries.saturating_add(1);
        self.entries.is_power_of_two()
    }

    /// It is told of no more for the time being.
    #[cold]
    pub(super) fn mute(&mut self) -> Way {
        if !self.is_muted {
            self.is_muted = true;
            self.trace.mute_one();
        }
        Way {
            again: false,
            ..Way::ON
        }
    }

    /// It is told of again; whether it was not.
    pub(super) fn unmute(&mut self) -> bool {
        if let Some(lines) = &mut self.lines {
            lines.restart();
        }
        std::mem::take(&mut self.is_muted)
    }

    /// Whether it is to be told of no more for the time being.
    #[inline]
    pub(super) fn is_too_much(&self) -> bool {
        let is_often = || self.events.max(self.calls) > OFTEN;
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
    pub(super) fn add(&mut self, took: i64, of_others: i64) {
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
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new())
    }

    /// `[[1024, 3], …]`: how many calls took at least so many nanoseconds, and less than twice as many.
    pub(super) fn histogram_in_words(&self) -> String {
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
