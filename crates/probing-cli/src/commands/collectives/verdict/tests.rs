//! Tests of the verdict on collectives.

use crate::commands::collectives::verdict::*;

const MILLI: i64 = 1_000_000;

pub(in super::super) fn row(rank: i64, seq: i64, what: &str, at_millis: i64, is_done: bool) -> Row {
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
        over_nanos: is_done.then_some((at_millis + 25) * MILLI),
        now_nanos: 10_000 * MILLI,
        is_done,
        is_failed: false,
    }
}

pub(in super::super) fn recorder(job: &str, rank: i64) -> Recorder {
    Recorder {
        job: Some(job.into()),
        rank: Some(rank),
        pid: rank as u64 + 100,
    }
}

/// What is said of the only job.
fn told(rows: &[Row]) -> JobReport {
    let asked = QueriedProcesses {
        ended: HashSet::from([Process::new("here", Pid(101))]),
        ..QueriedProcesses::default()
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
    let jobs = report(&rows, &QueriedProcesses::default()).jobs;
    let verdict = |job: &JobReport| job.groups[0].verdict.clone();
    assert_eq!(jobs[1].job.as_deref(), Some("here:29501"));
    assert_eq!(verdict(&jobs[1]), Verdict::InStep { seq: 9 });
    assert!(
        matches!(verdict(&jobs[0]), Verdict::Absent { ranks, .. } if ranks == [1]),
        "{jobs:?}"
    );
}

#[test]
fn ranks_of_another_job_are_not_waited_for() {
    let rows = [row(0, 4, "allreduce [4]", 1, true)];
    let asked = QueriedProcesses {
        recording: vec![recorder("here:29501", 1)],
        ..QueriedProcesses::default()
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
fn a_rank_that_records_and_has_done_nothing_is_missing() {
    let rows = [row(0, 30, "allreduce [4]", 1, false)];
    let asked = QueriedProcesses {
        recording: [0, 1].map(|rank| recorder("here:29500", rank)).into(),
        ..QueriedProcesses::default()
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
fn missing_ranks_are_named() {
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
fn ranks_that_run_other_operations_are_named_last() {
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
fn the_rank_that_always_comes_last_is_the_straggler() {
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

/// Two milliseconds of a second are no reason to look for one.
#[test]
fn a_healthy_pair_has_no_straggler() {
    // Over for both when both have come.
    let of_two = |rank, seq, at_millis| Row {
        group_size: 2,
        over_nanos: Some((1000 * (seq + 1) - 1) * MILLI),
        ..row(rank, seq, "allreduce [4]", at_millis, true)
    };
    for (late, straggler) in [(2, None), (200, Some(0))] {
        let mut rows = Vec::new();
        for seq in 0..10 {
            rows.push(of_two(0, seq, 1000 * seq + late));
            rows.push(of_two(1, seq, 1000 * seq));
        }
        assert_eq!(told(&rows).straggler, straggler, "{late} ms");
    }
    // Who is late in half of the operations is not the one.
    let mut rows = Vec::new();
    for seq in 0..10 {
        let late = if seq % 5 < 3 { 50 } else { 0 };
        rows.push(of_two(0, seq, 1000 * seq + late));
        rows.push(of_two(1, seq, 1000 * seq + 50 - late));
    }
    assert_eq!(told(&rows).straggler, None);
}

/// Rank 1 has sent something to rank 2 before it was recorded, which torch has counted.
fn ahead(rank: i64) -> i64 {
    if rank == 0 { 0 } else { 3 }
}

#[test]
fn what_was_counted_on_some_ranks_before_makes_no_hang() {
    let done = |rank, index| {
        let seq = 20 + ahead(rank) + index;
        row(rank, seq, "allreduce [4]", 100 * index, true)
    };
    let mut rows: Vec<Row> = (0..9)
        .flat_map(|index| (0..3).map(move |rank| done(rank, index)))
        .collect();
    assert_eq!(told(&rows).groups[0].verdict, Verdict::InStep { seq: 28 });
    assert_eq!(told(&rows).lateness[0].operations, 9);

    // By several clocks, too: who has been done for long has had all others with it.
    let elsewhere = |row: &Row| Row {
        host: format!("node{}", row.rank),
        ..row.clone()
    };
    let several: Vec<Row> = rows.iter().map(elsewhere).collect();
    assert_eq!(
        told(&several).groups[0].verdict,
        Verdict::InStep { seq: 28 }
    );

    rows.extend([0, 2].map(|rank| row(rank, 29 + ahead(rank), "barrier []", 4_000, false)));
    let verdict = told(&rows).groups[0].verdict.clone();
    assert!(
        matches!(&verdict, Verdict::Absent { ranks, waiting, .. } if *ranks == [1] && *waiting == [0, 2]),
        "{verdict:?}"
    );
}

#[test]
fn numbers_that_cannot_fit_are_said_not_to() {
    let rows = [
        row(0, 4, "allreduce [4]", 1, true),
        row(1, 4, "barrier []", 1, true),
    ];
    let job = told(&rows);
    let lost = Verdict::Unaligned { ranks: vec![1] };
    assert_eq!((&job.groups[0].verdict, job.lateness.len()), (&lost, 0));
}
