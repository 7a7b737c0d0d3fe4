//! The verdict on collectives: late ranks, missing ranks and hangs, from the rows of all ranks.
//!
//! Ranks number the operations of a group in the order in which they ask for them. So at one number all must do the same, and
//! who has asked for fewer than others has not come yet.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use probing_client::TargetLabel;
use probing_proto::process::Pid;
use probing_proto::report::{
    CollectivesReport, GroupReport, JobReport, Lateness, Operation, Side, Verdict,
};
use serde_json::Value;

use crate::commands::collectives::alignment::align;

/// Operations of a group, the newest ones, in which lateness is measured.
const WINDOW: usize = 200;
/// Who is less late than this is not: the clock, the network.
pub(super) const NOTABLE_SECONDS: f64 = 1e-3;
/// Nor is who is late by less than this share of the time from one operation to the next: ranks that do the same are never
/// quite as fast.
const NOTABLE_SHARE: f64 = 0.1;

/// Operations to which all ranks must bring the same shapes. Others may differ: one rank sends, or each another amount.
const ALIKE: [&str; 4] = ["allreduce", "allreduce_coalesced", "broadcast", "reduce"];

/// A row of `python.collectives`.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) pid: u64,
    pub(super) rank: i64,
    pub(super) group_rank: i64,
    pub(super) host: String,
    pub(super) job: Option<String>,
    pub(super) group: String,
    pub(super) group_size: i64,
    pub(super) operation: Operation,
    pub(super) at_nanos: i64,
    /// When it was seen to be over.
    pub(super) over_nanos: Option<i64>,
    pub(super) now_nanos: i64,
    pub(super) is_done: bool,
    pub(super) is_failed: bool,
}

impl Row {
    pub(super) fn of(row: &Value) -> Option<Self> {
        let number = |name: &str| row[name].as_i64();
        let text = |name: &str| row[name].as_str().map(str::to_owned);
        Some(Self {
            pid: row["pid"].as_u64()?,
            rank: number("rank").or_else(|| number("group_rank"))?,
            group_rank: number("group_rank")?,
            host: text("host").unwrap_or_default(),
            job: text("job"),
            group: text("group_name")?,
            group_size: number("group_size")?,
            operation: Operation {
                seq: number("seq")?,
                op: text("op")?,
                shapes: text("shapes")?,
                dtype: text("dtype"),
                func: text("func"),
                file: text("file"),
                lineno: number("lineno"),
            },
            at_nanos: number("at")?,
            over_nanos: number("duration_ns").and_then(|took| Some(number("at")? + took)),
            now_nanos: number("now")?,
            is_done: row["state"] == "completed",
            is_failed: row["state"] == "failed",
        })
    }

    /// Whose row it is.
    pub(super) fn process(&self) -> Process {
        Process {
            host: self.host.clone(),
            pid: self.pid,
        }
    }
}

/// What one rank did in a group, by number.
#[derive(Debug, Default)]
pub(super) struct RankOperations(pub(super) BTreeMap<i64, OperationProgress>);

#[derive(Debug, Clone)]
pub(super) struct OperationProgress {
    pub(super) operation: Operation,
    pub(super) at_nanos: i64,
    /// When it was seen to be over.
    pub(super) over_nanos: Option<i64>,
    /// When the row was read.
    pub(super) now_nanos: i64,
    pub(super) is_done: bool,
    is_failed: bool,
}

impl RankOperations {
    fn add(&mut self, row: &Row) {
        let doing = self
            .0
            .entry(row.operation.seq)
            .or_insert_with(|| OperationProgress {
                operation: row.operation.clone(),
                at_nanos: row.at_nanos,
                over_nanos: None,
                now_nanos: row.now_nanos,
                is_done: false,
                is_failed: false,
            });
        doing.over_nanos = doing.over_nanos.or(row.over_nanos);
        doing.is_done |= row.is_done;
        doing.is_failed |= row.is_failed;
    }

    pub(super) fn shift(&mut self, by: i64) {
        let all = std::mem::take(&mut self.0).into_iter();
        self.0 = all
            .map(|(seq, mut doing)| {
                doing.operation.seq += by;
                (seq + by, doing)
            })
            .collect();
    }

    /// The first that is not done. One that failed is over for a rank that has gone on since.
    fn undone(&self) -> Option<i64> {
        let last = self.last();
        let is_over = |seq: i64, doing: &OperationProgress| {
            doing.is_done || doing.is_failed && last.is_some_and(|last| seq < last)
        };
        let mut all = self.0.iter().map(|(seq, doing)| (*seq, doing));
        all.find(|(seq, doing)| !is_over(*seq, doing))
            .map(|(seq, _)| seq)
    }

    pub(super) fn last(&self) -> Option<i64> {
        self.0.keys().next_back().copied()
    }
}

pub(super) type Ranks = BTreeMap<i64, RankOperations>;

/// A process: machines have the same pids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Process {
    host: String,
    pid: u64,
}

impl Process {
    pub(super) fn new(host: &str, pid: Pid) -> Self {
        Self {
            host: host.to_owned(),
            pid: u64::from(pid.0),
        }
    }
}

/// Who was asked.
#[derive(Debug, Default)]
pub(super) struct QueriedProcesses {
    pub(super) ended: HashSet<Process>,
    /// When those of this machine were started, in nanoseconds.
    pub(super) started: HashMap<Process, u64>,
    /// Those that live and record.
    pub(super) on: Vec<TargetLabel>,
    /// The same: what they have not recorded they have not done.
    pub(super) recording: Vec<Recorder>,
}

impl QueriedProcesses {
    /// Whether somebody lives who records operations of this job.
    pub(super) fn records_in(&self, job: Option<&str>) -> bool {
        self.recording_in(job).next().is_some()
    }

    /// Whether this rank does.
    pub(super) fn records(&self, job: Option<&str>, rank: i64) -> bool {
        let mut recording = self.recording_in(job);
        recording.any(|recorder| recorder.rank == Some(rank))
    }

    fn recording_in(&self, job: Option<&str>) -> impl Iterator<Item = &Recorder> {
        let is_in = move |recorder: &&Recorder| recorder.job.as_deref() == job;
        self.recording.iter().filter(is_in)
    }
}

/// One that lives and records.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) job: Option<String>,
    pub(super) rank: Option<i64>,
    pub(super) pid: u64,
}

pub(super) fn report(rows: &[Row], asked: &QueriedProcesses) -> CollectivesReport {
    let mut jobs: BTreeMap<Option<&str>, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        jobs.entry(row.job.as_deref()).or_default().push(row);
    }
    let jobs = jobs.into_iter();
    CollectivesReport {
        jobs: jobs.map(|(job, rows)| of_job(job, &rows, asked)).collect(),
    }
}

fn of_job(job: Option<&str>, rows: &[&Row], asked: &QueriedProcesses) -> JobReport {
    let recording = asked.recording_in(job).map(|recorder| recorder.pid);
    let pids: BTreeSet<u64> = rows.iter().map(|row| row.pid).chain(recording).collect();
    let claimed_twice = claimed_twice(rows);
    let (mut groups, mut late) = (Vec::new(), Late::default());
    if claimed_twice.is_empty() {
        (groups, late) = of_groups(job, rows, asked);
    }
    JobReport {
        job: job.map(str::to_owned),
        pids: pids.into_iter().collect(),
        claimed_twice,
        groups,
        straggler: straggler(&late.ranks, late.interval_seconds),
        lateness: late.ranks,
        several_hosts: hosts(rows).len() > 1,
    }
}

fn hosts<'a>(rows: &[&'a Row]) -> BTreeSet<&'a str> {
    rows.iter().map(|row| row.host.as_str()).collect()
}

/// Ranks that more than one process has in the same group. Nobody can say which of these goes with which of another rank.
fn claimed_twice(rows: &[&Row]) -> Vec<i64> {
    let mut first: HashMap<(&str, i64, i64), (&str, u64)> = HashMap::new();
    let mut twice = BTreeSet::new();
    for row in rows {
        let process = (row.host.as_str(), row.pid);
        let place = (row.group.as_str(), row.group_size, row.group_rank);
        if *first.entry(place).or_insert(process) != process {
            twice.insert(row.rank);
        }
    }
    twice.into_iter().collect()
}

fn of_groups(
    job: Option<&str>,
    rows: &[&Row],
    asked: &QueriedProcesses,
) -> (Vec<GroupReport>, Late) {
    let mut groups: BTreeMap<(&str, i64), Ranks> = BTreeMap::new();
    let mut dead = BTreeSet::new();
    let is_one_machine = hosts(rows).len() == 1;
    for row in rows {
        let ranks = groups.entry((&row.group, row.group_size)).or_default();
        ranks.entry(row.rank).or_default().add(row);
        if asked.ended.contains(&row.process()) {
            dead.insert(row.rank);
        }
    }
    // Of a group of all ranks it is known who belongs to it, though they have done nothing in it.
    for ((group, size), ranks) in &mut groups {
        let mut own = rows.iter().filter(|row| row.group == *group);
        if own.all(|row| row.rank == row.group_rank) {
            let recording = asked.recording_in(job);
            let recording = recording.filter_map(|recorder| recorder.rank);
            for rank in recording.filter(|rank| rank < size) {
                ranks.entry(rank).or_default();
            }
        }
    }
    let now_nanos = rows.iter().map(|row| row.now_nanos).max().unwrap_or(0);
    let mut told = Vec::new();
    let mut aligned = Vec::new();
    for ((name, size), mut ranks) in groups {
        let lost = align(&mut ranks, is_one_machine);
        let is_aligned = lost.is_empty();
        told.push(GroupReport {
            group_name: name.to_owned(),
            group_size: size,
            ranks: ranks.keys().copied().collect(),
            ended: dead
                .iter()
                .filter(|rank| ranks.contains_key(rank))
                .copied()
                .collect(),
            verdict: if is_aligned {
                verdict(&ranks, now_nanos)
            } else {
                Verdict::Unaligned { ranks: lost }
            },
        });
        aligned.extend(is_aligned.then_some(ranks));
    }
    (told, lateness(aligned.iter()))
}

fn verdict(ranks: &Ranks, now_nanos: i64) -> Verdict {
    // Who has done nothing is before the first that anybody did.
    let firsts = ranks.values().filter_map(|doings| doings.0.keys().next());
    let before = firsts.min().copied().unwrap_or(0) - 1;
    let last = |doings: &RankOperations| doings.last().unwrap_or(before);
    let lasts = ranks.values().map(last);
    let (fewest, most) = (lasts.clone().min().unwrap_or(0), lasts.max().unwrap_or(0));
    let oldest = ranks.values().filter_map(RankOperations::undone).min();
    // Where all have arrived: at the oldest that is not done, else at the newest.
    let sides = sides(ranks, oldest.unwrap_or(fewest).min(fewest));
    if sides.len() > 1 {
        return Verdict::Differs { sides };
    }
    let waited = |seq: i64| {
        let at = ranks.values().filter_map(|doings| doings.0.get(&seq));
        let first = at.map(|doing| doing.at_nanos).min().unwrap_or(now_nanos);
        (now_nanos - first).max(0) as f64 / 1e9
    };
    let at = |rank: i64, seq: i64| {
        ranks[&rank]
            .0
            .get(&seq)
            .map(|doing| doing.operation.clone())
    };
    let (absent, waiting): (Vec<i64>, Vec<i64>) =
        ranks.keys().partition(|rank| last(&ranks[rank]) == fewest);
    if most > fewest
        && let Some(operation) = waiting.iter().find_map(|rank| at(*rank, fewest + 1))
    {
        return Verdict::Absent {
            last: absent.first().and_then(|rank| at(*rank, fewest)),
            ranks: absent,
            waiting,
            waited_seconds: waited(operation.seq),
            operation,
        };
    }
    let operation = oldest.and_then(|seq| ranks.keys().find_map(|rank| at(*rank, seq)));
    match operation {
        Some(operation) => Verdict::Transport {
            waited_seconds: waited(operation.seq),
            operation,
        },
        None => Verdict::InStep { seq: most },
    }
}

/// What ranks do at one number: those that most do first.
fn sides(ranks: &Ranks, seq: i64) -> Vec<Side> {
    let mut sides: Vec<Side> = Vec::new();
    for (rank, doings) in ranks {
        let Some(doing) = doings.0.get(&seq) else {
            continue;
        };
        let same = |side: &&mut Side| what(&side.operation) == what(&doing.operation);
        match sides.iter_mut().find(same) {
            Some(side) => side.ranks.push(*rank),
            None => sides.push(Side {
                ranks: vec![*rank],
                operation: doing.operation.clone(),
            }),
        }
    }
    sides.sort_by_key(|side| std::cmp::Reverse(side.ranks.len()));
    sides
}

/// What is the same on all ranks of an operation.
pub(super) fn what(operation: &Operation) -> impl PartialEq {
    let is_alike = ALIKE.contains(&operation.op.as_str());
    let shapes = is_alike.then_some((&operation.shapes, &operation.dtype));
    (&operation.op, shapes)
}

/// How late ranks are.
#[derive(Debug, Default)]
struct Late {
    /// The latest first.
    ranks: Vec<Lateness>,
    /// From one operation to the next, mostly.
    interval_seconds: f64,
}

/// Behind the first, in operations that all ranks that are known have come to.
fn lateness<'a>(groups: impl Iterator<Item = &'a Ranks>) -> Late {
    let mut late: BTreeMap<i64, (Vec<f64>, usize)> = BTreeMap::new();
    let mut begun: Vec<i64> = Vec::new();
    for ranks in groups.filter(|ranks| ranks.len() > 1) {
        let Some(seqs) = ranks.values().next() else {
            continue;
        };
        let common = seqs.0.keys().rev();
        let common = common.filter(|seq| ranks.values().all(|doings| doings.0.contains_key(seq)));
        for seq in common.take(WINDOW) {
            let at = |doings: &RankOperations| doings.0[seq].at_nanos;
            let (first, last) = ranks
                .values()
                .map(at)
                .fold((i64::MAX, i64::MIN), |(first, last), at| {
                    (first.min(at), last.max(at))
                });
            begun.push(first);
            for (rank, doings) in ranks {
                let entry = late.entry(*rank).or_default();
                entry.0.push((at(doings) - first) as f64 / 1e9);
                entry.1 += usize::from(at(doings) == last && last > first);
            }
        }
    }
    let told = late.into_iter().map(|(rank, (mut late, last))| {
        late.sort_by(f64::total_cmp);
        Lateness {
            rank,
            operations: late.len(),
            last,
            median_seconds: late[late.len() / 2],
            most_seconds: late[late.len() - 1],
        }
    });
    let mut told: Vec<Lateness> = told.collect();
    told.sort_by(|one, other| other.median_seconds.total_cmp(&one.median_seconds));
    begun.sort_unstable();
    let mut intervals: Vec<i64> = begun.windows(2).map(|two| two[1] - two[0]).collect();
    intervals.sort_unstable();
    let interval = intervals.get(intervals.len() / 2).copied();
    Late {
        ranks: told,
        interval_seconds: interval.unwrap_or(0) as f64 / 1e9,
    }
}

/// The one that is the last in two of three operations, by more than the next and by a part of the time that matters.
fn straggler(lateness: &[Lateness], interval_seconds: f64) -> Option<i64> {
    let [first, second, ..] = lateness else {
        return None;
    };
    let margin = NOTABLE_SECONDS.max(NOTABLE_SHARE * interval_seconds);
    let is_one = 3 * first.last >= 2 * first.operations
        && first.median_seconds > margin
        && first.median_seconds > 2.0 * second.median_seconds;
    is_one.then_some(first.rank)
}

#[cfg(test)]
pub(super) mod tests;
