//! Reading stacks leaves the target unharmed, and what is shown was so at some moment.
//!
//! Reading stacks does no harm: whatever becomes of the command, the target goes on; whatever the target does
//! meanwhile, what is shown of it was so.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use probing_testkit::{Sandbox, Target, every_python, wait_until};
use serde_json::Value;

use crate::sandbox;

/// Of each way of reading, on each Python: 200 in all where there are five.
const KILLS: u64 = 10;
const WAYS: [&[&str]; 4] = [&[], &["--pause"], &["--locals"], &["--native"]];

fn tracer(target: &Target) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", target.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    line.unwrap().trim().to_owned()
}

/// How often its main thread has been around.
fn rounds(target: &mut Target) -> u64 {
    target.say("how far");
    target.line().parse().unwrap()
}

/// Starts to read all stacks again and again and is killed after so long.
fn read_and_be_killed(sandbox: &Sandbox, target: &Target, way: &[&str], after: Duration) {
    let mut command = sandbox.command();
    command
        .args(["-t", &target.pid().to_string(), "backtrace", "--all"])
        .args(["--dump", "1000000", "--every", "0.0001", "--json"])
        .args(way)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // The moment is what is tried: while it starts, finds its way, reads, holds a thread.
    thread::sleep(after);
    assert!(
        child.try_wait().unwrap().is_none(),
        "it ended by itself: {way:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_command_that_is_killed_while_it_reads_leaves_the_target_going() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, "stacks/goes_on.py").start();
        // Steps of the golden ratio fall everywhere.
        let mut moment = 0.0_f64;
        for way in WAYS {
            for _ in 0..KILLS {
                moment = (moment + 0.618).fract();
                let after = Duration::from_secs_f64(moment * 0.04);
                read_and_be_killed(&sandbox, &target, way, after);
                wait_until("nobody holds it", || {
                    tracer(&target) == "0" && !matches!(target.state(), 'T' | 't')
                });
                let before = rounds(&mut target);
                wait_until("it goes on", || rounds(&mut target) > before);
            }
        }
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr.len()), (0, 0), "{ended:?}");
    });
}

/// Who may call whom in `goes_on.py`: `loop_a_b` is called by `loop_a`.
fn is_possible(frames: &[Value]) -> bool {
    let func = |frame: &Value| frame["func"].as_str().unwrap().to_owned();
    let called = |pair: &[Value]| {
        let (func, caller) = (func(&pair[0]), func(&pair[1]));
        let parent = func
            .rsplit_once('_')
            .map_or("<module>", |(parent, _)| parent);
        caller == parent || (func == "loop_c" && caller == "loop_c")
    };
    frames.last().is_none_or(|frame| func(frame) == "<module>") && frames.windows(2).all(called)
}

#[test]
fn no_stack_of_a_running_program_is_impossible() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "stacks/goes_on.py").start();
        let pid = target.pid().to_string();
        for way in WAYS {
            let words = ["-t", &pid, "backtrace", "--json"];
            let often = ["--dump", "100", "--every", "0.0001"];
            let ran = sandbox.probing(words.iter().chain(&often).chain(way));
            let lines: Vec<&str> = ran.ok().lines().collect();
            assert_eq!(lines.len(), 100);
            for line in lines {
                let report: Value = serde_json::from_str(line).unwrap();
                let main = &report["threads"][0];
                let frames = main["frames"].as_array().unwrap().iter();
                let python = frames.filter(|frame| frame["frame_type"] == "Python");
                let python: Vec<Value> = python.cloned().collect();
                assert!(is_possible(&python), "{main}");
            }
        }
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr.len()), (0, 0), "{ended:?}");
    });
}
