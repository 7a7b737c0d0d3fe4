//! Whoever enters a target may be killed at any moment: the target goes on, and can be entered again.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use probing_testkit::every_python;

use crate::target::Target;

/// More than an attach has.
const STEPS: u32 = 30;
const RANDOM_KILLS: u64 = 8;
const MANY_RANDOM_KILLS: u64 = 60;
const STATES: &[&str] = &["sleep", "tight_loop", "asyncio_idle"];
const MANY_STATES: &[&str] = &[
    "sleep",
    "tight_loop",
    "asyncio_idle",
    "timed_lock_wait",
    "lock_wait",
    "poll_wait",
    "c_sleep",
    "python_work",
    "hundred_threads",
    "short_sleeps",
];

/// The example, which cargo builds beside the tests.
fn attacher() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples/attach")
}

/// 0: at none.
pub(crate) fn attach(pid: u32, die_at_step: u32) -> Output {
    Command::new(attacher())
        .args([&pid.to_string(), "pass", "5000", &die_at_step.to_string()])
        .output()
        .unwrap()
}

#[track_caller]
fn at_every_step(states: &[&str]) {
    every_python(|python| {
        for state in states {
            let mut target = Target::start(python, state, &[]);
            let mut kills = 0;
            for step in 1..=STEPS {
                let output = attach(target.pid.0, step);
                target.assert_unharmed();
                if output.status.code().is_some() {
                    break; // it had fewer steps than that
                }
                kills += 1;
                target.count_up_to(step);
            }
            assert!((2..STEPS).contains(&kills), "{target}: {kills} kills");
        }
    });
}

#[track_caller]
fn at_random(states: &[&str], kills: u64) {
    every_python(|python| {
        for state in states {
            let mut target = Target::start(python, state, &[]);
            for kill in 0..kills {
                let mut child = Command::new(attacher())
                    .args([&target.pid.to_string(), "pass"])
                    .stdout(Stdio::null())
                    .spawn()
                    .unwrap();
                // Not a wait for anything: the moments to die at, spread over the life of an attach.
                thread::sleep(Duration::from_micros(800 + kill * 7919 % 8000));
                _ = child.kill();
                child.wait().unwrap();
                target.assert_unharmed();
                target.count_up_to(kill as u32 + 1);
            }
        }
    });
}

#[test]
fn killed_at_every_step() {
    at_every_step(STATES);
}

#[test]
fn killed_at_random() {
    at_random(&STATES[..2], RANDOM_KILLS);
}

#[test]
#[ignore = "takes minutes"]
fn killed_in_every_state() {
    at_every_step(MANY_STATES);
    at_random(MANY_STATES, MANY_RANDOM_KILLS);
}
