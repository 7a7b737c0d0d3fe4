//! Whoever enters a target may be killed at any moment: the target goes on, and can be entered again.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use probing_testkit::{every_python, wait_until};

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

/// How often the threads that are not main have gone to sleep, until there are none: what they do is to nap and to look.
fn naps_until_gone(target: &Target) -> u64 {
    let main = target.pid.to_string();
    let mut most = 0;
    wait_until(&format!("no thread of ours is in {target}"), || {
        let tids = fs::read_dir(format!("/proc/{main}/task"))
            .unwrap()
            .flatten();
        let others = tids.map(|tid| tid.file_name().to_string_lossy().into_owned());
        for tid in others.filter(|tid| *tid != main) {
            most = most.max(target.naps_of(&tid));
        }
        target.usage().threads == 1
    });
    most
}

/// Naps that a thread may take until it has ended.
const SOON: u64 = 2000;

#[test]
fn the_thread_of_a_killed_command_ends_soon() {
    every_python(|python| {
        for state in ["sleep", "tight_loop"] {
            let target = Target::start(python, state, &[]);
            target.settle();
            let kills = (1..=STEPS).take_while(|&step| {
                let killed = attach(target.pid.0, step).status.code().is_none();
                let naps = naps_until_gone(&target);
                assert!(naps < SOON, "{target}: {naps} naps after step {step}");
                killed
            });
            assert!(kills.count() > 1, "{target}");
        }
    });
}

/// From 3.12 on Python warns whoever forks with a thread beside it.
#[test]
fn a_program_that_forks_is_not_warned_of_the_thread_of_a_killed_command() {
    every_python(|python| {
        let mut target = Target::start(python, "forking", &[]);
        target.settle();
        let mut kills = 0;
        for step in 1..=STEPS {
            let is_killed = attach(target.pid.0, step).status.code().is_none();
            target.assert_unharmed(); // main is at home: it starts no thread any more
            let naps = naps_until_gone(&target);
            assert!(naps < SOON, "{target}: {naps} naps after step {step}");
            target.program.say("");
            assert_eq!(target.program.line(), "forked", "{target}");
            if !is_killed {
                break;
            }
            kills += 1;
        }
        assert!((2..STEPS).contains(&kills), "{target}: {kills} kills");
        let ended = target.program.end();
        assert_eq!((ended.status, ended.stderr), (0, vec![]));
    });
}

/// A second stack and a second arena, each with its guard, when two threads were there at once.
const KEPT_BY_GLIBC: u64 = 4;

#[track_caller]
fn nothing_stays(states: &[&str], rounds: u32) {
    every_python(|python| {
        for state in states {
            let mut target = Target::start(python, state, &[]);
            target.settle();
            // Also for the memory that the first thread makes Python and malloc take.
            target.count_up_to(1);
            target.assert_no_block_stays();
            let before = target.mappings();
            let mut kills = 0;
            for _ in 0..rounds {
                // Each thread of ours ends before the next begins.
                let is_killed = |step: &u32| {
                    let killed = attach(target.pid.0, *step).status.code().is_none();
                    naps_until_gone(&target);
                    killed
                };
                kills += (1..=STEPS).take_while(is_killed).count();
                target.assert_unharmed();
            }
            let left = target.blocks();
            // A busy main may have come by a call only now: then one attach more is needed.
            wait_until(
                &format!("{target}: {left} blocks of {kills} kills go"),
                || {
                    target.run("pass").unwrap();
                    target.blocks() == 0
                },
            );
            if *state == "sleep" {
                let now = target.mappings();
                assert!(
                    now <= before + KEPT_BY_GLIBC,
                    "{target}: {before} mappings, {now} after {kills} kills"
                );
            }
        }
    });
}

#[test]
fn what_killed_commands_left_is_taken_back() {
    nothing_stays(&["sleep", "tight_loop"], 2);
}

#[test]
#[ignore = "takes minutes"]
fn what_many_killed_commands_left_is_taken_back() {
    nothing_stays(&["sleep", "tight_loop", "asyncio_idle"], 15);
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
