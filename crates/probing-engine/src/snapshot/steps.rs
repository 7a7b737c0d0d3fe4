//! Which numbers that ranks gave to steps mean the same step of their job.
//!
//! A rank counts from when recording began in it, so ranks of a running job count from different steps, and after an `off`
//! none knows how many it missed. At the end of the same step all ranks have begun as many operations of their common group:
//! that tells which steps are one. Where torch does not count operations, or counts those between two ranks, steps are the same
//! that end at the same time. A program that counts by itself is believed.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::snapshot::target_snapshot::ReadFailure;

/// Ends of steps that must agree before two ranks are aligned by time.
const MIN_PAIRS: usize = 3;
/// The share of an interval between two steps by which ends of the same step may lie apart.
const MAX_APART: i64 = 4;

/// The end of a step, as a rank recorded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepEnd {
    pub(crate) step: i64,
    pub(crate) at_nanos: i64,
    /// Operations of the group of all ranks so far.
    pub(crate) operations: Option<i64>,
}

/// Steps that one process counted without a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Period {
    /// Which of the processes.
    pub(crate) process: usize,
    /// Whose clock its times are of.
    pub(crate) host: Arc<str>,
    /// Where the ranks of its job met; none without a process group.
    pub(crate) job: Option<String>,
    pub(crate) is_counted_by_program: bool,
    /// At least one, in the order of time.
    pub(crate) ends: Vec<StepEnd>,
}

impl Period {
    pub(crate) fn new(process: usize, host: &Arc<str>) -> Self {
        Self {
            process,
            host: Arc::clone(host),
            job: None,
            is_counted_by_program: false,
            ends: Vec::new(),
        }
    }

    /// Adds the next end. A program may begin to count, and a job to be known, after the first steps.
    pub(crate) fn add(&mut self, end: StepEnd, counted_by: Option<&str>, job: Option<String>) {
        self.job = self.job.take().or(job);
        self.is_counted_by_program |= counted_by == Some("program");
        self.ends.push(end);
    }
}

/// What the numbers of one process become.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StepMap {
    /// From which of its own numbers on what is added, in their order. What is before the first goes by the first.
    shifts: Vec<(i64, i64)>,
}

impl StepMap {
    /// Numbers that were in an order stay in it.
    pub(crate) fn of(&self, step: i64) -> i64 {
        let place = self.shifts.partition_point(|(from, _)| *from <= step);
        let shift = self.shifts.get(place.saturating_sub(1));
        step.saturating_add(shift.map_or(0, |(_, shift)| *shift))
    }

    /// Whether later numbers are never before earlier ones.
    fn is_ordered(&mut self) -> bool {
        self.shifts.sort_unstable();
        let two = self.shifts.windows(2);
        two.map(|two| (two[0].1, two[1].1))
            .all(|(before, after)| before <= after + 1)
    }

    /// Whether it changes nothing.
    pub(crate) fn is_identity(&self) -> bool {
        self.shifts.iter().all(|(_, shift)| *shift == 0)
    }
}

/// What ranks of a job are aligned by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Basis {
    Operations,
    Time,
    /// Those of one machine, by its agent.
    Machine,
    /// They cannot be: their numbers are their own.
    Nothing,
}

impl Basis {
    pub(crate) const ALL: [Self; 4] = [Self::Operations, Self::Time, Self::Machine, Self::Nothing];

    /// What an answer says about it.
    pub(crate) fn words(self) -> Option<ReadFailure> {
        let (message, hint) = match self {
            Self::Operations => return None,
            Self::Time => (
                "steps are aligned with those of other ranks by the time at which they ended",
                "record from the start with PROBING_TORCH=1, or count in the program with `probing.step()`",
            ),
            Self::Machine => (
                "steps are aligned with those of the same machine only",
                "count in the program with `probing.step()`, or record from the start with PROBING_TORCH=1",
            ),
            Self::Nothing => (
                "steps cannot be aligned with those of other ranks: the same number is not the same step",
                "count in the program with `probing.step()`, or compare by `ts`",
            ),
        };
        Some(ReadFailure {
            message: message.to_owned(),
            hint: Some(hint.to_owned()),
        })
    }
}

/// The numbers of all processes.
#[derive(Debug, Default)]
pub(crate) struct Alignment {
    maps: BTreeMap<usize, StepMap>,
    /// Of those that were not aligned by what is certain.
    bases: BTreeMap<usize, Basis>,
}

impl Alignment {
    /// Of periods of several processes, and of others that have none that could be read. Jobs have nothing to do with each
    /// other.
    pub(crate) fn of(periods: Vec<Period>, others: &[usize]) -> Self {
        let mut processes = periods.iter().map(|period| period.process);
        let Some(first) = processes.next() else {
            return Self::default();
        };
        let mut alignment = if processes.all(|process| process == first) {
            // One alone keeps its numbers.
            Self::default()
        } else {
            Self::of_several(periods)
        };
        for process in others {
            alignment.bases.insert(*process, Basis::Nothing);
        }
        alignment
    }

    fn of_several(mut periods: Vec<Period>) -> Self {
        let told = periods.iter().filter(|it| it.is_counted_by_program);
        let told: BTreeSet<usize> = told.map(|period| period.process).collect();
        for period in &mut periods {
            period.is_counted_by_program = told.contains(&period.process);
        }
        let mut jobs: BTreeMap<Option<String>, Vec<Period>> = BTreeMap::new();
        for period in periods {
            jobs.entry(period.job.clone()).or_default().push(period);
        }
        let mut alignment = Self::default();
        for periods in jobs.into_values() {
            alignment.add_job(periods);
        }
        for (process, map) in &mut alignment.maps {
            if !map.is_ordered() {
                alignment.bases.insert(*process, Basis::Nothing);
                *map = StepMap::default();
            }
        }
        alignment
    }

    /// What a process's numbers become; none where they stay.
    pub(crate) fn map(&self, process: usize) -> Option<&StepMap> {
        self.maps.get(&process).filter(|map| !map.is_identity())
    }

    pub(crate) fn basis(&self, process: usize) -> Basis {
        let basis = self.bases.get(&process);
        basis.copied().unwrap_or(Basis::Operations)
    }

    fn add_job(&mut self, mut periods: Vec<Period>) {
        // Numbers of the program stay; who counted first comes first among the others.
        periods.sort_by_key(|period| (!period.is_counted_by_program, period.ends[0].at_nanos));
        let mut timeline = Timeline::default();
        for period in periods {
            let (shift, basis) = timeline.place(&period);
            let map = self.maps.entry(period.process).or_default();
            let before = map.shifts.last().map_or(0, |(_, shift)| *shift);
            let shift = shift.unwrap_or(before);
            map.shifts.push((period.ends[0].step, shift));
            if basis > Basis::Operations {
                let known = self.bases.entry(period.process).or_insert(basis);
                *known = (*known).max(basis);
            }
            if basis < Basis::Nothing {
                timeline.add(period, shift);
            }
        }
    }
}

/// Periods of a job that have their place.
#[derive(Debug, Default)]
struct Timeline {
    /// With the numbers of the job.
    placed: Vec<Period>,
    by_operations: BTreeMap<i64, i64>,
    /// When the first rank of a machine ended a step, and the last.
    times: BTreeMap<(Arc<str>, i64), (i64, i64)>,
    last: Option<i64>,
}

impl Timeline {
    /// What is to be added to the numbers of a period, and why.
    fn place(&self, period: &Period) -> (Option<i64>, Basis) {
        if period.is_counted_by_program || self.placed.is_empty() {
            return (Some(0), Basis::Operations);
        }
        if let Some(shift) = self.shift_by_operations(period) {
            return (Some(shift), Basis::Operations);
        }
        if let Some(shift) = self.shift_by_time(period) {
            return (Some(shift), Basis::Time);
        }
        if period.job.is_none() || self.is_beside_others(period) {
            return (None, Basis::Nothing);
        }
        // Nobody of its job was there meanwhile: it comes after all that was.
        (Some(self.shift_after(period)), Basis::Operations)
    }

    fn add(&mut self, mut period: Period, shift: i64) {
        for end in &mut period.ends {
            end.step += shift;
        }
        if counts_operations(&period) {
            let known = period.ends.iter();
            let known = known.filter_map(|end| Some((end.operations?, end.step)));
            self.by_operations.extend(known);
        }
        for StepEnd { step, at_nanos, .. } in &period.ends {
            let key = (Arc::clone(&period.host), *step);
            let (first, last) = self.times.entry(key).or_insert((*at_nanos, *at_nanos));
            (*first, *last) = ((*first).min(*at_nanos), (*last).max(*at_nanos));
            self.last = self.last.max(Some(*step));
        }
        self.placed.push(period);
    }

    fn shift_by_operations(&self, period: &Period) -> Option<i64> {
        if !counts_operations(period) {
            return None;
        }
        let same = |end: &StepEnd| Some((*self.by_operations.get(&end.operations?)?, *end));
        let pairs: Vec<(i64, StepEnd)> = period.ends.iter().filter_map(same).collect();
        let shifts: BTreeSet<i64> = pairs.iter().map(|(step, end)| step - end.step).collect();
        let shift = shifts.first().filter(|_| shifts.len() == 1)?;
        // No rank ends a step before all have ended the one before: a count of something else is out of time. A clock that was
        // set, or a step that was recorded late, is so once.
        let time = |step: i64| self.times.get(&(Arc::clone(&period.host), step));
        let misfits = pairs.iter().filter(|(step, end)| {
            let (before, next) = (time(step - 1), time(step + 1));
            before.is_some_and(|(_, last)| *last > end.at_nanos)
                || next.is_some_and(|(first, _)| *first < end.at_nanos)
        });
        (misfits.count() * 2 <= pairs.len()).then_some(*shift)
    }

    /// By the process that was there most of the time.
    fn shift_by_time(&self, period: &Period) -> Option<i64> {
        period.job.as_ref()?;
        let others = self.placed.iter();
        let others =
            others.filter(|placed| placed.process != period.process && placed.host == period.host);
        let other = others.max_by_key(|placed| paired(placed, period).count())?;
        let interval = interval(other).or_else(|| interval(period))?;
        let pairs: Vec<(StepEnd, StepEnd)> = paired(other, period).collect();
        let shifts: BTreeSet<i64> = pairs
            .iter()
            .map(|(known, end)| known.step - end.step)
            .collect();
        let are_near = pairs
            .iter()
            .all(|(known, end)| (known.at_nanos - end.at_nanos).abs() * MAX_APART <= interval);
        let is_one = pairs.len() >= MIN_PAIRS && shifts.len() == 1 && are_near;
        shifts.first().copied().filter(|_| is_one)
    }

    /// Whether another process counted meanwhile, or nobody can say. An end less than half an interval away may be of the same
    /// step.
    fn is_beside_others(&self, period: &Period) -> bool {
        let others = self.placed.iter();
        let mut others = others.filter(|placed| placed.process != period.process);
        others.any(|placed| {
            let (since, until) = span(placed);
            let (from, to) = span(period);
            let room = interval(placed).max(interval(period)).unwrap_or(0) / 2;
            placed.host != period.host || since - room <= to && from - room <= until
        })
    }

    fn shift_after(&self, period: &Period) -> i64 {
        let last = self.last.unwrap_or(-1);
        (last + 1 - period.ends[0].step).max(0)
    }
}

/// Whether each step has another count of operations: then it tells steps apart.
fn counts_operations(period: &Period) -> bool {
    let counts: Option<Vec<i64>> = period.ends.iter().map(|end| end.operations).collect();
    counts.is_some_and(|counts| counts.windows(2).all(|two| two[0] < two[1]))
}

fn span(period: &Period) -> (i64, i64) {
    let at = |end: Option<&StepEnd>| end.map_or(0, |end| end.at_nanos);
    (at(period.ends.first()), at(period.ends.last()))
}

/// The usual time from one end of a step to the next.
fn interval(period: &Period) -> Option<i64> {
    let ends = period.ends.windows(2);
    let mut intervals: Vec<i64> = ends.map(|two| two[1].at_nanos - two[0].at_nanos).collect();
    intervals.sort_unstable();
    intervals.get(intervals.len() / 2).copied()
}

/// Each end of a period while the other was there, with the other's that is nearest in time.
fn paired<'a>(
    other: &'a Period,
    period: &'a Period,
) -> impl Iterator<Item = (StepEnd, StepEnd)> + 'a {
    let half = interval(other).unwrap_or(0) / 2;
    let (since, until) = span(other);
    let meanwhile = period
        .ends
        .iter()
        .filter(move |end| since - half <= end.at_nanos && end.at_nanos <= until + half);
    meanwhile.filter_map(|end| {
        let place = other
            .ends
            .partition_point(|known| known.at_nanos < end.at_nanos);
        let near = &other.ends[place.saturating_sub(1)..(place + 1).min(other.ends.len())];
        let near = near
            .iter()
            .min_by_key(|known| (known.at_nanos - end.at_nanos).abs())?;
        Some((*near, *end))
    })
}
