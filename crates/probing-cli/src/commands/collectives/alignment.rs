//! The alignment of ranks: whether their numbers of operations match, and by which clock.
//!
//! Where recording begins in a job that runs, the first number is torch's, and some groups count what is between two ranks,
//! too: who has passed something on before is ahead of the others by as much. What is over shows it. Such an operation is the
//! same on all ranks, and where each needs all others, none is over before all have begun. If that does not hold, there may be
//! just one way to move the numbers of a rank so that it does.

use crate::commands::collectives::verdict::{
    NOTABLE_SECONDS, OperationProgress, RankOperations, Ranks, what,
};

/// Operations of a rank, the newest ones, that are compared.
const WINDOW: usize = 200;
/// The rows of ranks are not read at the same moment.
const SETTLED_NANOS: i64 = 2_000_000_000;
/// What is told by two clocks of one machine.
const SLACK_NANOS: i64 = (NOTABLE_SECONDS * 1e9) as i64;
/// Operations that no rank is done with before all have come.
const NEED_ALL: [&str; 7] = [
    "allreduce",
    "allreduce_coalesced",
    "allgather",
    "allgather_base",
    "barrier",
    "reduce_scatter",
    "reduce_scatter_base",
];

/// Moves the numbers of ranks to where they fit those of the first. Returns the ranks for which there is no such place, or
/// more than one.
pub(super) fn align(ranks: &mut Ranks, is_one_machine: bool) -> Vec<i64> {
    let mut with_rows = ranks.iter_mut().filter(|(_, doings)| !doings.0.is_empty());
    let Some((_, first)) = with_rows.next() else {
        return Vec::new();
    };
    let first = Newest::of(first);
    let mut since = first.first();
    let (mut is_moved, mut lost) = (false, Vec::new());
    for (rank, doings) in with_rows {
        let other = Newest::of(doings);
        let pair = Pair {
            first: &first,
            other: &other,
            is_one_machine,
        };
        let Some(shift) = pair.shift() else {
            lost.push(*rank);
            continue;
        };
        since = since.max(other.first() + shift);
        if shift != 0 {
            doings.shift(shift);
            is_moved = true;
        }
    }
    if is_moved {
        forget_before(since, ranks);
    }
    lost
}

/// What a rank did before its numbers jumped was not moved with them.
fn forget_before(since: i64, ranks: &mut Ranks) {
    let lasts = ranks.values().filter_map(RankOperations::last);
    let since = lasts.fold(since, i64::min);
    for doings in ranks.values_mut() {
        doings.0 = doings.0.split_off(&since);
    }
}

/// What a rank did of late, by number, without a gap: while it is not recorded, anything may be counted.
struct Newest(Vec<(i64, OperationProgress)>);

impl Newest {
    fn of(doings: &RankOperations) -> Self {
        let mut newest: Vec<(i64, OperationProgress)> = Vec::new();
        for (seq, doing) in doings.0.iter().rev().take(WINDOW) {
            if newest.last().is_some_and(|(next, _)| *next != seq + 1) {
                break;
            }
            newest.push((*seq, doing.clone()));
        }
        newest.reverse();
        Self(newest)
    }

    fn at(&self, seq: i64) -> Option<&OperationProgress> {
        let place = self.0.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        Some(&self.0[place].1)
    }

    fn first(&self) -> i64 {
        self.0.first().map_or(0, |(seq, _)| *seq)
    }

    fn last(&self) -> i64 {
        self.0.last().map_or(0, |(seq, _)| *seq)
    }

    /// Whether it has done something behind `seq` for which it needed a rank that came no further.
    fn has_gone_on_without(&self, seq: i64) -> bool {
        let mut behind = self.0.iter().rev().take_while(|(own, _)| *own > seq);
        behind.any(|(_, doing)| {
            let is_settled = |over: i64| over + SETTLED_NANOS < doing.now_nanos;
            needs_all(doing) && doing.over_nanos.is_some_and(is_settled)
        })
    }
}

struct Pair<'a> {
    first: &'a Newest,
    other: &'a Newest,
    is_one_machine: bool,
}

impl Pair<'_> {
    /// What to add to the numbers of the other: nothing wherever that can be.
    fn shift(&self) -> Option<i64> {
        if self.fits(0) {
            return Some(0);
        }
        let least = self.first.first() - self.other.last();
        let most = self.first.last() - self.other.first();
        let mut fitting = (least..=most).filter(|shift| self.meets(*shift) && self.fits(*shift));
        let only = fitting.next()?;
        fitting.next().is_none().then_some(only)
    }

    fn fits(&self, shift: i64) -> bool {
        let is_ahead = self.first.has_gone_on_without(self.other.last() + shift);
        let is_behind = self.other.has_gone_on_without(self.first.last() - shift);
        !is_ahead
            && !is_behind
            && self
                .common(shift)
                .all(|(one, other)| self.agree(one, other))
    }

    /// Whether anything speaks for it.
    fn meets(&self, shift: i64) -> bool {
        self.common(shift).any(are_done)
    }

    fn common(&self, shift: i64) -> impl Iterator<Item = (&OperationProgress, &OperationProgress)> {
        let other = self.other.0.iter();
        other.filter_map(move |(seq, other)| Some((self.first.at(seq + shift)?, other)))
    }

    fn agree(&self, one: &OperationProgress, other: &OperationProgress) -> bool {
        if are_done((one, other)) && what(&one.operation) != what(&other.operation) {
            return false;
        }
        let is_over_before = |one: &OperationProgress, other: &OperationProgress| {
            let over = one.over_nanos.filter(|_| needs_all(one));
            over.is_some_and(|over| over + SLACK_NANOS < other.at_nanos)
        };
        !self.is_one_machine || !is_over_before(one, other) && !is_over_before(other, one)
    }
}

fn are_done((one, other): (&OperationProgress, &OperationProgress)) -> bool {
    one.is_done && other.is_done
}

fn needs_all(doing: &OperationProgress) -> bool {
    doing.is_done && NEED_ALL.contains(&doing.operation.op.as_str())
}
