//! Whatever a target is doing, the source runs, and nothing of ours stays.

use std::process::Command;
use std::time::Duration;

use probing_attach::{AttachError, Options};
use probing_testkit::{Python, every_python, wait_until};

use crate::target::{Target, left_out};

const ROUNDS: u32 = 4;
const MANY_ROUNDS: u32 = 30;

#[track_caller]
fn check(state: &str, rounds: u32) {
    every_python(|python| {
        let mut target = Target::start(python, state, &[]);
        if state == "fork_child" {
            target.look_at_child();
        }
        check_target(&mut target, rounds);
    });
}

#[track_caller]
fn check_target(target: &mut Target, rounds: u32) {
    target.settle();
    let threads = target.usage().threads;
    for round in 1..=rounds {
        target.count_up_to(round);
    }
    target.assert_unharmed();
    wait_until(&format!("no thread of ours is in {target}"), || {
        target.usage().threads == threads
    });
    target.assert_no_block_stays();
}

macro_rules! states {
    ($($test:ident: $state:literal,)*) => {
        $(#[test] fn $test() { check($state, ROUNDS); })*
        const STATES: &[&str] = &[$($state),*];
    };
}

states! {
    runs_in_a_tight_loop: "tight_loop",
    runs_during_python_work: "python_work",
    runs_in_a_sleep: "sleep",
    runs_between_short_sleeps: "short_sleeps",
    runs_in_a_c_sleep: "c_sleep",
    runs_in_a_lock_wait: "lock_wait",
    runs_in_a_timed_lock_wait: "timed_lock_wait",
    runs_in_a_queue_wait: "queue_get",
    runs_in_a_file_lock_wait: "flock_wait",
    runs_in_select: "select_wait",
    runs_in_poll: "poll_wait",
    runs_in_epoll: "epoll_wait",
    runs_in_a_signal_wait: "signal_wait",
    runs_while_a_child_is_waited_for: "subprocess_wait",
    runs_in_an_idle_event_loop: "asyncio_idle",
    runs_in_a_busy_event_loop: "asyncio_busy",
    runs_in_a_deadlock: "deadlock",
    runs_beside_busy_workers: "busy_workers",
    runs_among_a_hundred_threads: "hundred_threads",
    runs_during_an_import: "importing",
    runs_during_garbage_collection: "collecting",
    runs_in_a_forked_child: "fork_child",
    runs_beside_a_subinterpreter: "subinterpreter",
    runs_while_allocations_are_traced: "tracing_memory",
}

#[test]
fn runs_where_memory_may_not_become_code() {
    every_python(|python| {
        let mut target = Target::start(python, "no_new_code", &[]);
        if target.program.line() != "0" {
            left_out("a process that may not make memory executable: this kernel has no MDWE");
            return;
        }
        check_target(&mut target, ROUNDS);
    });
}

#[test]
fn runs_under_a_filter_of_system_calls() {
    every_python(|python| {
        let mut target = Target::start(python, "filtered", &["ptrace"]);
        assert_eq!(target.program.line(), "[0, 0]", "{target}");
        check_target(&mut target, ROUNDS);
    });
}

/// Debian's are: all in the program, no `libpython`, no table of symbols but that of the exported ones.
#[test]
fn runs_in_a_stripped_python_without_a_library() {
    let system = Python {
        path: "/usr/bin/python3".into(),
        version: (3, 0),
    };
    let is_new_enough = Command::new(&system.path)
        .args(["-c", "import sys; sys.exit(sys.version_info < (3, 10))"])
        .status()
        .is_ok_and(|status| status.success());
    let is_one = |python: &Python| {
        let target = Target::start(python, "sleep", &[]);
        let program = std::fs::read(format!("/proc/{}/exe", target.pid)).unwrap();
        let symbols = b".symtab\0";
        let has_symbols = program.windows(symbols.len()).any(|name| name == symbols);
        !has_symbols && !target.read("maps").contains("libpython")
    };
    let mut found = Python::all();
    found.extend(is_new_enough.then_some(system));
    found.retain(is_one);
    if found.is_empty() {
        left_out("a stripped Python without a library: there is none");
    }
    for python in found {
        for state in ["sleep", "tight_loop"] {
            check_target(&mut Target::start(&python, state, &[]), ROUNDS);
        }
    }
}

#[test]
fn main_keeps_its_names() {
    every_python(|python| {
        let target = Target::start(python, "sleep", &[]);
        let before = target.eval("sorted(vars(main))");
        target
            .run("import json\nmine = 1\ndef also_mine(): pass")
            .unwrap();
        assert_eq!(target.eval("sorted(vars(main))"), before, "{target}");
    });
}

/// On a machine that is overloaded we lose the CPU at any of these moments.
#[test]
fn a_thread_is_let_go_and_held_again_when_the_command_has_no_cpu() {
    /// Of an attach whose thread is held once.
    const STEPS: u32 = 16;
    every_python(|python| {
        for state in ["sleep", "tight_loop"] {
            let mut target = Target::start(python, state, &[]);
            target.settle();
            let run = |step: u32, deadline: Duration| {
                let options = Options {
                    deadline,
                    sleep_at_step: Some(step),
                    ..Options::default()
                };
                let source = "import sys; sys._runs = getattr(sys, '_runs', 0) + 1";
                probing_attach::run(target.pid, source, &options)
            };
            for step in 1..=STEPS {
                if let Err(error) = run(step, Duration::from_secs(10)) {
                    panic!("{target}: without a CPU at step {step}: {error}");
                }
            }
            assert_eq!(
                target.eval_number("sys._runs"),
                u64::from(STEPS),
                "{target}"
            );
            // Without a CPU at each step it is refused, and nothing runs later. 3.14 has a door for us.
            match run(0, Duration::from_secs(1)) {
                Err(AttachError::NoThread { seen, .. }) => {
                    assert!(seen.contains("because this command got no CPU"), "{seen}");
                }
                other => assert!(python.version >= (3, 14), "{target}: {other:?}"),
            }
            target.assert_unharmed();
            if python.version < (3, 14) {
                assert_eq!(
                    target.eval_number("sys._runs"),
                    u64::from(STEPS),
                    "{target}"
                );
            }
            target.assert_no_block_stays();
        }
    });
}

#[test]
#[ignore = "takes minutes"]
fn every_state_many_times() {
    for state in STATES {
        check(state, MANY_ROUNDS);
    }
}
