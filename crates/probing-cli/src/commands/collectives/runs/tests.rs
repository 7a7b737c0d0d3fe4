//! Whose rows count.

use probing_proto::process::Pid;

use crate::commands::collectives::runs::*;
use crate::commands::collectives::verdict::tests::{recorder, row};

/// A rank of a job at `here:29500`, with a row at each of these times.
fn process(pid: u64, rank: i64, at_millis: &[i64]) -> Vec<Row> {
    let row = |(seq, at): (usize, &i64)| Row {
        pid,
        ..row(rank, seq as i64, "allreduce [4]", *at, true)
    };
    at_millis.iter().enumerate().map(row).collect()
}

fn here(pid: u64) -> Process {
    Process::new("here", Pid(pid as u32))
}

/// Processes 30 to 39 are known to have been started at 150 ms, others not.
fn asked(ended: &[u64]) -> QueriedProcesses {
    QueriedProcesses {
        ended: ended.iter().copied().map(here).collect(),
        started: (30..40).map(|pid| (here(pid), 150_000_000)).collect(),
        ..QueriedProcesses::default()
    }
}

/// The pids that count of these.
#[track_caller]
fn check(rows: &[Vec<Row>], ended: &[u64], counted: &[u64], note: Option<&str>) {
    let told = select_runs(rows.concat(), &asked(ended));
    let pids: BTreeSet<u64> = told.rows.iter().map(|row| row.pid).collect();
    assert_eq!(pids, counted.iter().copied().collect());
    assert_eq!(told.note().as_deref(), note);
}

const ENDED: &str = "no running process has recorded an operation: these are the rows of the processes that ended last";
const OTHERS: &str = "2 other processes that have ended left operations: `probing list --dead` lists them, -t PID,PID reads them";

#[test]
fn a_rank_that_died_belongs_to_its_job() {
    let rows = [process(10, 0, &[1, 5, 9]), process(11, 1, &[1, 5])];
    check(&rows, &[11], &[10, 11], None);
    // One came to the first operation when the other had died in it.
    let rows = [process(30, 0, &[202]), process(31, 1, &[201])];
    check(&rows, &[31], &[30, 31], None);
    check(&rows, &[30, 31], &[30, 31], Some(ENDED));
}

#[test]
fn the_dead_of_a_former_start_do_not() {
    let former = [process(10, 0, &[1, 5]), process(11, 1, &[1, 5])];
    let now = [process(20, 0, &[101, 105]), process(21, 1, &[101])];
    let rows = [former, now].concat();
    check(&rows, &[10, 11], &[20, 21], Some(OTHERS));
    check(&rows, &[10, 11, 21], &[20, 21], Some(OTHERS));
    let both = format!("{ENDED}\n{OTHERS}");
    check(&rows, &[10, 11, 20, 21], &[20, 21], Some(&both));
    // It was started again by itself: its place is taken.
    let again = [
        process(10, 0, &[1, 9]),
        process(11, 1, &[1, 5]),
        process(31, 1, &[9]),
    ];
    let told = select_runs(again.concat(), &asked(&[11]));
    assert!(told.rows.iter().all(|row| row.pid != 11), "{told:?}");
}

#[test]
fn of_dead_jobs_the_last_is_told_and_none_beside_one_that_lives() {
    let elsewhere = |rows: Vec<Row>| -> Vec<Row> {
        let elsewhere = |row: Row| Row {
            job: Some("here:29501".into()),
            ..row
        };
        rows.into_iter().map(elsewhere).collect()
    };
    let other = [process(30, 0, &[201]), process(31, 1, &[202])].map(elsewhere);
    let rows = [&[process(10, 0, &[1, 5]), process(11, 1, &[1])], &other[..]].concat();
    let both = format!("{ENDED}\n{OTHERS}");
    check(&rows, &[10, 11, 30, 31], &[30, 31], Some(&both));
    check(&rows, &[30, 31], &[10, 11], Some(OTHERS));
    check(&rows[..2], &[10, 11], &[10, 11], Some(ENDED));
    // A job that has just begun again has nothing to tell yet.
    let begun = QueriedProcesses {
        recording: vec![recorder("here:29500", 0)],
        ..asked(&[10, 11])
    };
    let told = select_runs(rows[..2].concat(), &begun);
    assert_eq!((told.has_ended, told.rows.len()), (false, 0));
}

#[test]
fn machines_have_the_same_pids() {
    let there = |rows: Vec<Row>| -> Vec<Row> {
        let there = |row: Row| Row {
            host: "there".into(),
            ..row
        };
        rows.into_iter().map(there).collect()
    };
    // The second rank died, there; the first one has its pid, here.
    let rows = [process(10, 0, &[1, 5, 9]), there(process(10, 1, &[1, 5]))];
    let mut asked = asked(&[]);
    asked.ended.insert(Process::new("there", Pid(10)));
    let told = select_runs(rows.concat(), &asked);
    assert_eq!((told.rows.len(), told.note()), (5, None));
}
