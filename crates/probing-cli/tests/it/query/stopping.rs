//! Ctrl-C ends a query, whatever it does just then, and nothing of it is left.

use std::fs;
use std::process::{Child, Stdio};

use probing_testkit::{CommandResult, Python, Sandbox, Target, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use super::prompt::prompt;
use crate::repl::prompt as repl;
use crate::sandbox;

/// Each computes for years before it gives a row: from one part, from two of which one is kept.
const COMPUTES: [&str; 2] = [
    "SELECT count(*) FROM generate_series(1, 1000000000000) AS a(x) WHERE x % 7 = 3",
    "SELECT count(*) FROM generate_series(1, 3000000) AS a(x), generate_series(1, 3000000) AS b(y) \
     WHERE (x * 7919 + y) % 1000003 = 0",
];
/// Gives rows without end.
const GIVES: &str = "SELECT value FROM generate_series(1, 1000000000000)";

/// Nanoseconds that tell work from waking up.
const A_WHILE: u64 = 20_000_000;

fn idle(sandbox: &Sandbox) -> Target {
    sandbox.target(&Python::all()[0], "idle.py").start()
}

/// CPU time of the threads that work on queries, in nanoseconds; `None` when there are none.
fn spent_on_queries(pid: u32) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let tasks = tasks.filter_map(|task| Some(task.ok()?.path()));
    let spent = tasks.filter_map(|task| {
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let spent = fs::read_to_string(task.join("schedstat")).ok()?;
        let spent: u64 = spent.split(' ').next()?.parse().ok()?;
        (name == "query\n").then_some(spent)
    });
    spent.reduce(|one, other| one + other)
}

/// Waits until it works on a query, and interrupts it.
fn interrupted(child: Child) -> CommandResult {
    let begun = || spent_on_queries(child.id()).is_some_and(|spent| spent > A_WHILE);
    wait_until("it computes", begun);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    CommandResult::finished(child)
}

#[test]
fn one_query_ends_with_the_status_of_an_interrupt() {
    let sandbox = sandbox();
    let target = idle(&sandbox);
    for (format, sql) in [
        ("--wide", COMPUTES[0]),
        ("--json", COMPUTES[1]),
        ("--csv", GIVES),
    ] {
        let mut command = sandbox.command();
        command
            .args(["-t", &target.pid().to_string(), "query", format, sql])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let ran = interrupted(command.spawn().unwrap());
        let told = (ran.status, ran.stderr.as_str());
        assert_eq!(told, (130, "error: the query was stopped\n"), "{sql}");
    }
}

#[test]
fn no_half_of_a_file_is_left() {
    let sandbox = sandbox();
    let target = idle(&sandbox);
    let folder = sandbox.path().join("files");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("rows.parquet");
    let mut command = sandbox.command();
    command
        .args(["-t", &target.pid().to_string(), "query", "--parquet"])
        .args([file.to_str().unwrap(), GIVES])
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let is_written = || fs::read_dir(&folder).unwrap().count() == 1;
    wait_until("it writes", is_written);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(CommandResult::finished(child).status, 130);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn the_prompt_stays() {
    let sandbox = sandbox();
    let target = idle(&sandbox);
    let screen = prompt(&sandbox, &target);
    for (number, sql) in COMPUTES.into_iter().enumerate() {
        // The answer to the first statement tells that the line was taken: from then on Ctrl-C is no key.
        screen.enter(&format!("SELECT {number} + 40 AS begun; {sql};"));
        screen.wait_for(&format!("   4{number}\n"));
        screen.press("C-c");
        screen.wait_until("what was stopped", |text| {
            text.matches("error: the query was stopped").count() == number + 1
        });
    }
    screen.enter("SELECT 50 + 5 AS answer;");
    screen.wait_for("    55\n");
    screen.press("C-d");
    screen.wait_for("ended: 0");
}

#[test]
fn the_prompt_for_python_stays() {
    let sandbox = sandbox();
    let target = sandbox.probed(&Python::all()[0], "idle.py");
    let screen = repl(&sandbox, &target);
    screen.enter("%query SELECT 40 + 2 AS answer");
    screen.wait_for("    42\n");
    let pid = command_of(&target, "repl");
    let before = spent_on_queries(pid).unwrap();
    screen.enter(&format!("%query {}", COMPUTES[0]));
    wait_until("it computes", || {
        spent_on_queries(pid).unwrap() > before + A_WHILE
    });
    screen.press("C-c");
    screen.wait_for("error: the query was stopped");
    // Code was not meant, and neither is the next query.
    screen.enter("%query SELECT 50 + 5 AS answer");
    screen.wait_for("    55\n");
    screen.enter("loss * 4");
    screen.wait_for("\n1.0\n");
    screen.press("C-d");
    screen.wait_for("ended: 0");
}

/// The command that looks at this target.
fn command_of(target: &Target, verb: &str) -> u32 {
    let wanted = format!("-t\0{}\0{verb}\0", target.pid());
    let processes = fs::read_dir("/proc").unwrap();
    let mut pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_it = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(&wanted))
    };
    pids.find(is_it).unwrap()
}

#[test]
fn a_repeated_query_ends_in_the_middle() {
    let sandbox = sandbox();
    let target = idle(&sandbox);
    let mut command = sandbox.command();
    command
        .args(["-t", &target.pid().to_string(), "query", "--every", "1s"])
        .arg(COMPUTES[0])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let ran = interrupted(command.spawn().unwrap());
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
}

#[test]
fn a_query_takes_no_more_memory_than_it_may() {
    let sandbox = sandbox();
    let target = idle(&sandbox);
    let mut command = sandbox.command();
    command
        .args(["-t", &target.pid().to_string(), "query", "--wide", GIVES])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let ran = CommandResult::finished(command.spawn().unwrap());
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(
        ran.stderr
            .contains("MB of rows to show at once\nhint: select fewer rows (LIMIT)"),
        "{ran:?}"
    );
}
