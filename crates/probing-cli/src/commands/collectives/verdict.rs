//! What rows of all ranks say: who is late, and what a group waits for.
//!
//! Ranks number the operations of a group in the order in which they ask for them. So at one number all must do the same, and
//! who has asked for fewer than others has not come yet.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use probing_client::Who;
use probing_proto::report::{
    CollectivesReport, GroupReport, JobReport, Lateness, Operation, Side, Verdict,
};
use serde_json::Value;

/// Operations of a group, the newest ones, in which lateness is measured.
const WINDOW: usize = 200;
/// Who is less late than this is not: the clock, the network.
const NOTABLE_SECONDS: f64 = 1e-3;

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
            now_nanos: number("now")?,
            is_done: row["state"] == "completed",
            is_failed: row["state"] == "failed",
        })
    }
}

/// What one rank did in a group, by number.
#[derive(Debug, Default)]
struct Doings(BTreeMap<i64, Doing>);

#[derive(Debug)]
struct Doing {
    operation: Operation,
    at_nanos: i64,
    is_done: bool,
    is_failed: bool,
}

impl Doings {
    fn add(&mut self, row: &Row) {
        let doing = self.0.entry(row.operation.seq).or_insert_with(|| Doing {
            operation: row.operation.clone(),
            at_nanos: row.at_nanos,
            is_done: false,
            is_failed: false,
        });
        doing.is_done |= row.is_done;
        doing.is_failed |= row.is_failed;
    }

    /// The first that is not done. One that failed is over for a rank that has gone on since.
    fn undone(&self) -> Option<i64> {
        let last = self.last();
        let is_over = |seq: i64, doing: &Doing| {
            doing.is_done || doing.is_failed && last.is_some_and(|last| seq < last)
        };
        let mut all = self.0.iter().map(|(seq, doing)| (*seq, doing));
        all.find(|(seq, doing)| !is_over(*seq, doing))
            .map(|(seq, _)| seq)
    }

    fn last(&self) -> Option<i64> {
        self.0.keys().next_back().copied()
    }
}

type Ranks = BTreeMap<i64, Doings>;

/// Who was asked.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Pids of those that have ended.
    pub(super) ended: HashSet<u64>,
    /// Those that live and record.
    pub(super) on: Vec<Who>,
    /// The same: what they have not recorded they have not done.
    pub(super) recording: Vec<Recorder>,
}

impl Asked {
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

pub(super) fn report(rows: &[Row], asked: &Asked) -> CollectivesReport {
    let mut jobs: BTreeMap<Option<&str>, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        jobs.entry(row.job.as_deref()).or_default().push(row);
    }
    let jobs = jobs.into_iter();
    CollectivesReport {
        jobs: jobs.map(|(job, rows)| of_job(job, &rows, asked)).collect(),
    }
}

fn of_job(job: Option<&str>, rows: &[&Row], asked: &Asked) -> JobReport {
    let recording = asked.recording_in(job).map(|recorder| recorder.pid);
    let pids: BTreeSet<u64> = rows.iter().map(|row| row.pid).chain(recording).collect();
    let hosts: BTreeSet<&str> = rows.iter().map(|row| row.host.as_str()).collect();
    let claimed_twice = claimed_twice(rows);
    let (mut groups, mut late) = (Vec::new(), Vec::new());
    if claimed_twice.is_empty() {
        (groups, late) = of_groups(job, rows, asked);
    }
    JobReport {
        job: job.map(str::to_owned),
        pids: pids.into_iter().collect(),
        claimed_twice,
        groups,
        straggler: straggler(&late),
        lateness: late,
        several_hosts: hosts.len() > 1,
    }
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

fn of_groups(job: Option<&str>, rows: &[&Row], asked: &Asked) -> (Vec<GroupReport>, Vec<Lateness>) {
    let mut groups: BTreeMap<(&str, i64), Ranks> = BTreeMap::new();
    let mut dead = BTreeSet::new();
    for row in rows {
        let ranks = groups.entry((&row.group, row.group_size)).or_default();
        ranks.entry(row.rank).or_default().add(row);
        if asked.ended.contains(&row.pid) {
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
    let told = groups.iter().map(|((name, size), ranks)| GroupReport {
        group_name: (*name).to_owned(),
        group_size: *size,
        ranks: ranks.keys().copied().collect(),
        ended: dead
            .iter()
            .filter(|rank| ranks.contains_key(rank))
            .copied()
            .collect(),
        verdict: verdict(ranks, now_nanos),
    });
    (told.collect(), lateness(groups.values()))
}

fn verdict(ranks: &Ranks, now_nanos: i64) -> Verdict {
    // Who has done nothing is before the first that anybody did.
    let firsts = ranks.values().filter_map(|doings| doings.0.keys().next());
    let before = firsts.min().copied().unwrap_or(0) - 1;
    let last = |doings: &Doings| doings.last().unwrap_or(before);
    let lasts = ranks.values().map(last);
    let (fewest, most) = (lasts.clone().min().unwrap_or(0), lasts.max().unwrap_or(0));
    let oldest = ranks.values().filter_map(Doings::undone).min();
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
        let same = |side: &&mut Side| {
            let what = |operation: &Operation| {
                let same_shapes = ALIKE.contains(&operation.op.as_str());
                let shapes =
                    same_shapes.then(|| (operation.shapes.clone(), operation.dtype.clone()));
                (operation.op.clone(), shapes)
            };
            what(&side.operation) == what(&doing.operation)
        };
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

/// Behind the first, in operations that all ranks that are known have come to.
fn lateness<'a>(groups: impl Iterator<Item = &'a Ranks>) -> Vec<Lateness> {
    let mut late: BTreeMap<i64, (Vec<f64>, usize)> = BTreeMap::new();
    for ranks in groups.filter(|ranks| ranks.len() > 1) {
        let Some(seqs) = ranks.values().next() else {
            continue;
        };
        let common = seqs.0.keys().rev();
        let common = common.filter(|seq| ranks.values().all(|doings| doings.0.contains_key(seq)));
        for seq in common.take(WINDOW) {
            let at = |doings: &Doings| doings.0[seq].at_nanos;
            let (first, last) = ranks
                .values()
                .map(at)
                .fold((i64::MAX, i64::MIN), |(first, last), at| {
                    (first.min(at), last.max(at))
                });
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
    told
}

/// The one that is the last more often than all others together, by more than the next.
fn straggler(lateness: &[Lateness]) -> Option<i64> {
    let [first, second, ..] = lateness else {
        return None;
    };
    let is_one = 2 * first.last > first.operations
        && first.median_seconds > NOTABLE_SECONDS
        && first.median_seconds > 2.0 * second.median_seconds;
    is_one.then_some(first.rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: i64 = 1_000_000;

    fn row(rank: i64, seq: i64, what: &str, at_millis: i64, is_done: bool) -> Row {
        let (op, shapes) = what.split_once(' ').unwrap();
        Row {
            pid: rank as u64 + 100,
            rank,
            group_rank: rank,
            host: "here".into(),
            job: Some("here:29500".into()),
            group: "0".into(),
            group_size: 3,
            operation: Operation {
                seq,
                op: op.into(),
                shapes: shapes.into(),
                dtype: None,
                func: None,
                file: None,
                lineno: None,
            },
            at_nanos: at_millis * MILLI,
            now_nanos: 10_000 * MILLI,
            is_done,
            is_failed: false,
        }
    }

    fn recorder(job: &str, rank: i64) -> Recorder {
        Recorder {
            job: Some(job.into()),
            rank: Some(rank),
            pid: rank as u64 + 100,
        }
    }

    /// What is said of the only job.
    fn told(rows: &[Row]) -> JobReport {
        let asked = Asked {
            ended: HashSet::from([101]),
            ..Asked::default()
        };
        let [job] = report(rows, &asked).jobs.try_into().unwrap();
        job
    }

    /// The same of another job on the same machine.
    fn elsewhere(rows: &[Row], job: Option<&str>) -> Vec<Row> {
        let elsewhere = |row: &Row| Row {
            pid: row.pid + 100,
            job: job.map(str::to_owned),
            ..row.clone()
        };
        rows.iter().map(elsewhere).collect()
    }

    #[test]
    fn two_jobs_have_a_verdict_each() {
        let hangs = [
            row(0, 5, "barrier []", 1, false),
            row(1, 4, "allreduce [4]", 1, true),
            row(2, 5, "barrier []", 1, false),
        ];
        let runs: Vec<Row> = (0..3)
            .map(|rank| row(rank, 9, "allreduce [6]", 1, true))
            .collect();
        let rows = [elsewhere(&runs, Some("here:29501")), hangs.to_vec()].concat();
        let jobs = report(&rows, &Asked::default()).jobs;
        let verdict = |job: &JobReport| job.groups[0].verdict.clone();
        assert_eq!(jobs[1].job.as_deref(), Some("here:29501"));
        assert_eq!(verdict(&jobs[1]), Verdict::InStep { seq: 9 });
        assert!(
            matches!(verdict(&jobs[0]), Verdict::Absent { ranks, .. } if ranks == [1]),
            "{jobs:?}"
        );
    }

    #[test]
    fn who_records_in_another_job_is_not_waited_for() {
        let rows = [row(0, 4, "allreduce [4]", 1, true)];
        let asked = Asked {
            recording: vec![recorder("here:29501", 1)],
            ..Asked::default()
        };
        let jobs = report(&rows, &asked).jobs;
        assert_eq!(jobs[0].groups[0].verdict, Verdict::InStep { seq: 4 });
    }

    #[test]
    fn nothing_is_said_of_jobs_that_cannot_be_told_apart() {
        let one: Vec<Row> = (0..3)
            .map(|rank| row(rank, 4, "allreduce [4]", 1, true))
            .collect();
        let one = elsewhere(&one, None);
        let rows = [elsewhere(&one[1..], None), one].concat();
        let job = told(&rows);
        assert_eq!((&*job.claimed_twice, &*job.groups), (&[1, 2][..], &[][..]));
        assert_eq!((job.straggler, job.lateness.len()), (None, 0));
    }

    #[test]
    fn who_records_and_has_done_nothing_has_not_come() {
        let rows = [row(0, 30, "allreduce [4]", 1, false)];
        let asked = Asked {
            recording: [0, 1].map(|rank| recorder("here:29500", rank)).into(),
            ..Asked::default()
        };
        let Verdict::Absent {
            ranks,
            waiting,
            last,
            ..
        } = &report(&rows, &asked).jobs[0].groups[0].verdict
        else {
            panic!("{:?}", report(&rows, &asked));
        };
        assert_eq!((&**ranks, &**waiting, last), (&[1][..], &[0][..], &None));
    }

    #[test]
    fn ranks_that_all_did_the_same_wait_for_nothing() {
        let rows: Vec<Row> = (0..3)
            .map(|rank| row(rank, 4, "allreduce [4]", 1, true))
            .collect();
        let report = told(&rows);
        assert_eq!(report.groups[0].verdict, Verdict::InStep { seq: 4 });
        assert_eq!(
            (report.straggler, &*report.groups[0].ended),
            (None, &[1][..])
        );
    }

    #[test]
    fn what_has_failed_is_over_for_who_has_gone_on() {
        let failed = |rank| Row {
            is_failed: true,
            ..row(rank, 4, "allreduce [4]", 1, false)
        };
        let mut rows: Vec<Row> = (0..3).map(failed).collect();
        let verdict = told(&rows).groups[0].verdict.clone();
        assert!(
            matches!(&verdict, Verdict::Transport { operation, .. } if operation.seq == 4),
            "{verdict:?}"
        );
        rows.extend((0..3).map(|rank| row(rank, 5, "allreduce [4]", 2, true)));
        assert_eq!(told(&rows).groups[0].verdict, Verdict::InStep { seq: 5 });
    }

    #[test]
    fn who_never_came_is_named() {
        let mut rows: Vec<Row> = (0..3)
            .map(|rank| row(rank, 4, "allreduce [4]", 1, true))
            .collect();
        rows.extend([0, 2].map(|rank| row(rank, 5, "barrier []", 4_000, false)));
        let Verdict::Absent {
            ranks,
            waiting,
            operation,
            last,
            waited_seconds,
        } = told(&rows).groups[0].verdict.clone()
        else {
            panic!("{:?}", told(&rows));
        };
        assert_eq!((ranks, waiting), (vec![1], vec![0, 2]));
        assert_eq!((operation.seq, operation.op.as_str()), (5, "barrier"));
        assert_eq!((last.unwrap().seq, waited_seconds), (4, 6.0));
    }

    #[test]
    fn who_does_something_else_is_named_last() {
        let rows = [
            row(0, 7, "allreduce [6]", 1, false),
            row(1, 7, "allreduce [5]", 1, false),
            row(2, 7, "allreduce [6]", 1, false),
        ];
        let Verdict::Differs { sides } = told(&rows).groups[0].verdict.clone() else {
            panic!("{:?}", told(&rows));
        };
        assert_eq!(
            (&*sides[0].ranks, &*sides[1].ranks),
            (&[0, 2][..], &[1][..])
        );
    }

    #[test]
    fn the_same_operation_that_is_not_done_is_the_transports() {
        let rows: Vec<Row> = (0..3)
            .map(|rank| row(rank, 7, "allreduce [6]", 9_000, false))
            .collect();
        let Verdict::Transport {
            operation,
            waited_seconds,
        } = told(&rows).groups[0].verdict.clone()
        else {
            panic!("{:?}", told(&rows));
        };
        assert_eq!((operation.seq, waited_seconds), (7, 1.0));
    }

    #[test]
    fn who_always_comes_last_is_the_straggler() {
        let mut rows = Vec::new();
        for seq in 0..10 {
            for rank in 0..3 {
                let late = if rank == 2 { 20 } else { rank };
                rows.push(row(rank, seq, "allreduce [4]", 100 * seq + late, true));
            }
        }
        let report = told(&rows);
        assert_eq!(report.straggler, Some(2));
        assert_eq!((report.lateness[0].rank, report.lateness[0].last), (2, 10));
    }
}
