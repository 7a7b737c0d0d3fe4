//! `probing backtrace --watch` and `--dump`: stacks again and again.

use std::process::Stdio;

use probing_testkit::{CommandResult, Sandbox, Target, Terminal, every_python, wait_until};
use rustix::process::Signal;
use serde_json::Value;

use crate::{sandbox, scrubbed};

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

fn backtrace(sandbox: &Sandbox, target: &Target, options: &[&str]) -> CommandResult {
    let pid = target.pid().to_string();
    sandbox.probing(["-t", &pid, "backtrace"].iter().chain(options))
}

/// Starts `backtrace --watch` on a terminal and returns when it has drawn once.
fn watched(sandbox: &Sandbox, target: &Target, seconds: &str) -> Terminal {
    let mut command = sandbox.command();
    command.args(["-t", &target.pid().to_string()]);
    command.args(["backtrace", "--watch", seconds]);
    let terminal = Terminal::start(command);
    terminal.wait_for("wait_for_the_end");
    terminal
}

#[test]
fn dumps_are_shown_n_times_each_with_its_time() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "waiting.py").start();
        let options = ["--dump", "3", "--every", "0.01"];
        let ran = backtrace(&sandbox, &target, &options);
        let lines: Vec<String> = ran.ok().lines().map(scrubbed).collect();
        let times = lines.iter().filter(|line| line.starts_with("--- "));
        assert!(times.clone().all(|line| line == "--- N-N-NTN:N:N.NZ"));
        assert_eq!(times.count(), 3);

        let ran = backtrace(
            &sandbox,
            &target,
            &["--dump", "3", "--every", "0.01", "--json", "--all"],
        );
        let reports: Vec<Value> = ran
            .ok()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(reports.len(), 3);
        for two in reports.windows(2) {
            let time = |report: &Value| report["taken_at_nanos"].as_u64().unwrap();
            assert!(time(&two[0]) < time(&two[1]));
            assert_eq!(two[0]["paused_seconds"], 0.0);
            assert_eq!(two[0]["threads"].as_array().unwrap().len(), 6);
        }
    });
}

#[test]
fn a_view_is_drawn_in_place_and_leaves_the_terminal_as_it_was() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "waiting.py").start();
        let terminal = watched(&sandbox, &target, "3600");
        assert!(terminal.shown().starts_with(ENTER));
        // Long before the next reading: what does not fit is told.
        terminal.resize(40, 6);
        terminal.wait_for("… 5 lines more");
        terminal.signal(Signal::INT);
        let (status, shown) = terminal.finish();
        assert_eq!(status, 0, "{shown:?}");
        let (_, after) = shown.split_once(LEAVE).unwrap();
        assert_eq!(after, "", "{shown:?}");
        assert!(shown.contains("\x1b[?25h"), "the cursor is back: {shown:?}");
        assert_eq!(target.end().stderr, [""; 0]);
    });
}

#[test]
fn the_end_of_the_target_ends_the_view_and_its_last_stack_stays() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "waiting.py").start();
        let pid = target.pid();
        let terminal = watched(&sandbox, &target, "0.02");
        target.signal(Signal::KILL);
        target.wait();
        let (status, shown) = terminal.finish();
        assert_eq!(status, 0, "{shown:?}");
        let (_, after) = shown.split_once(LEAVE).unwrap();
        assert!(
            after.starts_with(&format!("Thread MainThread ({pid})")),
            "{after:?}"
        );
        let last = after.lines().next_back().unwrap();
        assert_eq!(
            scrubbed(last),
            "process N has ended after N readings",
            "{after:?}"
        );
    });
}

#[test]
fn a_view_into_a_pipe_continues_until_the_end() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "waiting.py").start();
        let mut command = sandbox.command();
        command
            .args(["-t", &target.pid().to_string()])
            .args(["backtrace", "--watch", "0.01"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Two readings, then the target goes.
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut readings = 0;
        while readings < 2 {
            let mut line = String::new();
            assert!(std::io::BufRead::read_line(&mut stdout, &mut line).unwrap() > 0);
            assert!(!line.contains('\x1b'), "{line:?}");
            readings += usize::from(line.starts_with("--- "));
        }
        target.signal(Signal::KILL);
        target.wait();
        std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
        let ran = CommandResult::finished(child);
        assert_eq!(
            (ran.status, scrubbed(&ran.stderr).as_str()),
            (0, "process N has ended after N readings\n"),
            "{ran:?}"
        );
    });
}

#[test]
fn a_pause_is_told() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "stacks/calls.py").start();
        let options = ["--pause", "--dump", "100", "--every", "0.001"];
        // Whether one is needed hangs on the moment.
        wait_until("a thread had to be held", || {
            let ran = backtrace(&sandbox, &target, &[&options[..], &["--json"]].concat());
            let reports = ran.ok().lines().map(|line| {
                let report: Value = serde_json::from_str(line).unwrap();
                assert_eq!(report["threads"][0]["complete"], true, "{report}");
                report["paused_seconds"].as_f64().unwrap()
            });
            let pauses: Vec<f64> = reports.collect();
            assert_eq!(pauses.len(), 100);
            pauses.iter().any(|seconds| *seconds > 0.0)
        });
        wait_until("it is told", || {
            let ran = backtrace(&sandbox, &target, &options);
            scrubbed(ran.ok()).contains("(a thread was held for N.N ms to read its whole stack)")
        });
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    let sandbox = sandbox();
    let check = |options: &[&str], says: &str| {
        let ran = sandbox.probing(["-t", "1", "backtrace"].iter().chain(options));
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.stderr.contains(says), "{ran:?}");
    };
    check(&["--watch", "0"], "must be more than zero");
    check(&["--watch", "1", "--dump", "2"], "cannot be used with");
    check(&["--every", "1"], "--dump");
    check(&["--dump", "0"], "invalid value");
}
