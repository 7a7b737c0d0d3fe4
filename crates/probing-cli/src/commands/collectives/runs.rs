//! The choice of processes whose operations are shown, ended ones included.
//!
//! Ranks that have died belong to their job, and tell why the others wait. But a job may have been started again at the same
//! place, and the dead of former ones are still there: those count that had something to do when the others were there.

use std::collections::{BTreeMap, BTreeSet};

use crate::commands::collectives::verdict::{Process, QueriedProcesses, Row};

/// The rows that count.
#[derive(Debug)]
pub(super) struct RunRows {
    pub(super) rows: Vec<Row>,
    /// Nobody of them lives.
    has_ended: bool,
    /// Processes that have ended and are not told about.
    left_out: usize,
}

impl RunRows {
    pub(super) fn note(&self) -> Option<String> {
        let others = match self.left_out {
            0 => None,
            1 => Some("1 other process that has ended".to_owned()),
            several => Some(format!("{several} other processes that have ended")),
        };
        let others = others.map(|others| {
            format!(
                "{others} left operations: `probing list --dead` lists them, -t PID,PID reads them"
            )
        });
        let ended = "no running process has recorded an operation: these are the rows of the processes that ended last";
        match (self.has_ended, others) {
            (true, Some(others)) => Some(format!("{ended}\n{others}")),
            (true, None) => Some(ended.to_owned()),
            (false, others) => others,
        }
    }
}

/// What one process recorded of a job.
#[derive(Debug)]
struct Span<'a> {
    /// When the process was started; else its first row.
    began_nanos: i64,
    last_nanos: i64,
    rank: i64,
    /// Its ranks in groups.
    places: BTreeSet<(&'a str, i64, i64)>,
}

impl Span<'_> {
    fn is_one_with(&self, other: &Span<'_>) -> bool {
        !self.places.is_disjoint(&other.places)
    }
}

/// What the processes of a job recorded.
type Spans<'a> = BTreeMap<Process, Span<'a>>;

/// Jobs of which somebody lives, with their dead; where there is none, the one that ended last.
pub(super) fn select_runs(rows: Vec<Row>, asked: &QueriedProcesses) -> RunRows {
    let jobs = jobs(&rows, asked);
    let lives = |job: Option<&str>, spans: &Spans<'_>| {
        asked.records_in(job) || spans.keys().any(|it| !asked.ended.contains(it))
    };
    let living: Vec<_> = jobs
        .iter()
        .filter(|(job, spans)| lives(**job, spans))
        .collect();
    let has_ended = living.is_empty();
    let last = |spans: &Spans<'_>| spans.values().map(|span| span.last_nanos).max();
    let told = match living.as_slice() {
        [] => jobs
            .iter()
            .max_by_key(|(_, spans)| last(spans))
            .into_iter()
            .collect(),
        _ => living,
    };
    let kept: BTreeSet<Process> = told
        .into_iter()
        .flat_map(|(job, spans)| of_one_time(*job, spans, asked))
        .collect();
    let left_out: BTreeSet<Process> = rows
        .iter()
        .map(Row::process)
        .filter(|process| !kept.contains(process))
        .collect();
    RunRows {
        left_out: left_out.len(),
        has_ended: has_ended && !kept.is_empty(),
        rows: rows
            .into_iter()
            .filter(|row| kept.contains(&row.process()))
            .collect(),
    }
}

fn jobs<'a>(rows: &'a [Row], asked: &QueriedProcesses) -> BTreeMap<Option<&'a str>, Spans<'a>> {
    let mut jobs: BTreeMap<Option<&str>, Spans<'_>> = BTreeMap::new();
    for row in rows {
        let spans = jobs.entry(row.job.as_deref()).or_default();
        let process = row.process();
        let started = asked.started.get(&process).copied();
        let started = started.and_then(|at| i64::try_from(at).ok());
        let span = spans.entry(process).or_insert_with(|| Span {
            began_nanos: started.unwrap_or(row.at_nanos),
            last_nanos: row.at_nanos,
            rank: row.rank,
            places: BTreeSet::new(),
        });
        span.began_nanos = span.began_nanos.min(row.at_nanos);
        span.last_nanos = span.last_nanos.max(row.at_nanos);
        span.places
            .insert((&row.group, row.group_size, row.group_rank));
    }
    jobs
}

/// Those that live, and the dead who were there when these were, or when the last of them was.
fn of_one_time(job: Option<&str>, spans: &Spans<'_>, asked: &QueriedProcesses) -> Vec<Process> {
    let (dead, living): (Vec<_>, Vec<_>) =
        spans.iter().partition(|(it, _)| asked.ended.contains(it));
    let since = match living.iter().map(|(_, span)| span.began_nanos).min() {
        Some(first) => first,
        // A rank lives again, and has done nothing yet.
        None if dead.iter().any(|(_, span)| asked.records(job, span.rank)) => i64::MAX,
        None => dead
            .iter()
            .max_by_key(|(_, span)| span.last_nanos)
            .map_or(i64::MAX, |(_, span)| span.began_nanos),
    };
    let counts = |span: &Span<'_>| {
        let is_replaced = living.iter().any(|(_, other)| span.is_one_with(other));
        span.last_nanos >= since && !is_replaced
    };
    let dead = dead.into_iter().filter(|(_, span)| counts(span));
    let all = dead.chain(living.iter().copied());
    all.map(|(process, _)| process.clone()).collect()
}

#[cfg(test)]
mod tests;
