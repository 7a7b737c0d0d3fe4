//! Nothing that the target can notice changes.
//!
//! Each test notices one kind of harm.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use probing_testkit::{Python, Usage, every_python, wait_until};
use rustix::process::Signal;

use crate::target::{Target, left_out, library};

const ROUNDS: u32 = 10;
const MANY_ROUNDS: u32 = 100;

#[track_caller]
fn registers_and_red_zone(rounds: u32) {
    let Some(library) = library() else { return };
    every_python(|python| {
        for sleeping in ["0", "1"] {
            let mut target = Target::start(python, "canary", &[library, sleeping]);
            for round in 1..=rounds {
                target.count_up_to(round);
            }
            assert_eq!(target.eval("main.hurt"), "0", "{target}");
            assert!(target.eval_number("main.rounds") > 1, "{target}");
            target.assert_unharmed();
        }
    });
}

#[track_caller]
fn surroundings(rounds: u32) {
    let Some(library) = library() else { return };
    every_python(|python| {
        for sleeping in ["0", "1"] {
            let mut target = Target::start(python, "surroundings", &[library, sleeping]);
            for round in 1..=rounds {
                target.count_up_to(round);
            }
            assert_eq!(target.eval("main.hurt"), "None", "{target}");
            assert!(target.eval_number("main.rounds") > 1, "{target}");
            target.assert_unharmed();
        }
    });
}

#[track_caller]
fn no_call_is_interrupted(rounds: u32) {
    let Some(library) = library() else { return };
    every_python(|python| {
        for kind in [
            "epoll_wait",
            "epoll_pwait2",
            "poll",
            "nanosleep",
            "read",
            "recv",
            "sem_timedwait",
            "sigwaitinfo",
            "accept",
        ] {
            let target = Target::start(python, "waits", &[library, kind, "30"]);
            for round in 1..=rounds {
                target.count_up_to(round);
            }
            assert_eq!(target.eval("main.failures"), "[]", "{target}");
            assert_eq!(target.eval("main.early"), "0", "{target}");
            // From outside: a stop lets the time limit of a socket begin anew.
            let before = target.waits();
            wait_until(&format!("{target} goes on"), || target.waits() > before + 1);
        }
    });
}

#[track_caller]
fn every_signal_arrives_once(rounds: u32) {
    let Some(library) = library() else { return };
    every_python(|python| {
        for sleeping in ["0", "1"] {
            let mut target = Target::start(python, "signals", &[library, sleeping]);
            for round in 1..=rounds {
                target.send_real_time_signal();
                target.count_up_to(round);
                target.send_real_time_signal();
            }
            let expected = u64::from(rounds) * 2;
            wait_until(&format!("{target}: {expected} signals"), || {
                target.eval_number("main.library.signal_count()") == expected
            });
            target.assert_unharmed();
        }
    });
}

#[track_caller]
fn arithmetic_stays_right(rounds: u32) {
    every_python(|python| {
        let target = Target::start(python, "floats", &[]);
        for round in 1..=rounds {
            target.count_up_to(round);
        }
        assert_eq!(target.eval("main.wrong"), "0", "{target}");
    });
}

#[track_caller]
fn allocating_threads_go_on(rounds: u32) {
    let Some(library) = library() else { return };
    every_python(|python| {
        let mut target = Target::start(python, "malloc_storm", &[library]);
        for round in 1..=rounds {
            target.count_up_to(round);
        }
        target.assert_unharmed();
    });
}

#[test]
fn registers_and_red_zone_stay() {
    registers_and_red_zone(ROUNDS);
}

#[test]
fn the_widest_vector_registers_are_watched() {
    let Some(library) = library() else { return };
    let target = Target::start(&Python::all()[0], "canary", &[library, "1"]);
    match target.eval_number("main.library.canary_width()") {
        0 => left_out("vector registers: this CPU has no AVX"),
        512 => left_out("ZMM registers: this CPU has no AVX-512"),
        width => assert_eq!(width, 2112),
    }
}

#[test]
fn errno_signal_stack_mask_and_robust_list_stay() {
    surroundings(ROUNDS);
}

#[test]
fn the_heir_of_a_robust_mutex_is_told_that_its_owner_died() {
    const EOWNERDEAD: u64 = 130;
    let Some(library) = library() else { return };
    every_python(|python| {
        let target = Target::start(python, "robust_mutex", &[library]);
        for round in 1..=ROUNDS {
            target.count_up_to(round);
        }
        let told = target.eval_number("main.library.next_owner()");
        assert_eq!(told, EOWNERDEAD, "{target}");
    });
}

#[test]
fn no_system_call_is_interrupted() {
    no_call_is_interrupted(ROUNDS / 2);
}

#[test]
fn a_wait_that_begins_while_we_look_is_neither_interrupted_nor_cut_short() {
    let Some(library) = library() else { return };
    every_python(|python| {
        // Hardly longer than it takes to look and to stop.
        let target = Target::start(python, "waits", &[library, "epoll_wait", "1"]);
        for round in 1..=ROUNDS * 3 {
            target.count_up_to(round);
        }
        let harm = target.eval("(main.failures, main.early)");
        assert_eq!(harm, "([], 0)", "{target}");
    });
}

#[test]
fn every_signal_sent_meanwhile_arrives_once() {
    every_signal_arrives_once(ROUNDS);
}

#[test]
fn floating_point_stays_right() {
    arithmetic_stays_right(ROUNDS);
}

#[test]
fn threads_that_allocate_continue() {
    allocating_threads_go_on(ROUNDS);
}

#[test]
fn a_timer_is_not_late() {
    every_python(|python| {
        let target = Target::start(python, "epoll_timer", &[]);
        target.settle();
        for _ in 0..6 {
            target.run("pass").unwrap();
            // Spread over the target's wait: each would add this much if the wait began anew.
            thread::sleep(Duration::from_millis(60));
        }
        wait_until(&format!("{target} goes on"), || {
            target.eval_number("main.rounds") > 0
        });
        let latest: f64 = target.eval("main.latest").parse().unwrap();
        assert!(latest < 0.2, "{target}: {latest}");
    });
}

#[test]
fn nothing_grows() {
    every_python(|python| {
        for state in ["sleep", "tight_loop"] {
            let target = Target::start(python, state, &[]);
            target.settle();
            // Each thread of ours ends before the next begins: of two at once, malloc would keep a second arena.
            let run = |times: u32| {
                for _ in 0..times {
                    target.run("pass").unwrap();
                    wait_until("no thread stays", || target.usage().threads == 1);
                }
                (target.usage(), target.mappings())
            };
            let sizes = [run(15), run(25), run(25), run(25)];
            // What the interpreter keeps for reuse (3.14's free lists) is full at some time, so the least growth counts.
            let least = |of: fn(&(Usage, u64)) -> u64| {
                let growth = |two: &[_]| of(&two[1]).saturating_sub(of(&two[0]));
                sizes.windows(2).map(growth).min().unwrap()
            };
            let grown = (
                least(|(usage, _)| usage.open_files as u64),
                least(|(_, mappings)| *mappings),
            );
            assert_eq!(grown, (0, 0), "{target}: {sizes:?}");
            let resident_kib = least(|(usage, _)| usage.rss_kib);
            assert!(resident_kib <= 16, "{target}: {sizes:?}");
        }
    });
}

#[test]
fn faulthandler_still_works() {
    every_python(|python| {
        for state in ["sleep", "tight_loop"] {
            let mut target = Target::start(python, state, &[]);
            target.count_up_to(1);
            let trace = target.folder().join("trace");
            let register = format!(
                "__import__('faulthandler').register(10, open('{}', 'w'))",
                trace.display()
            );
            assert_eq!(target.eval(&register), "None", "{target}");
            target.count_up_to(2);
            target.program.signal(Signal::USR1);
            let place = format!("{state}.py\", line ");
            wait_until(&format!("{target} tells where it is"), || {
                fs::read_to_string(&trace).unwrap().contains(&place)
            });
            target.assert_unharmed();
        }
    });
}

#[test]
fn gdb_still_works() {
    if Command::new("gdb").arg("--version").output().is_err() {
        left_out("gdb: it is not installed");
        return;
    }
    every_python(|python| {
        let mut target = Target::start(python, "sleep", &[]);
        for round in 1..=3 {
            target.count_up_to(round);
        }
        let pid = target.pid.to_string();
        let gdb = Command::new("gdb")
            .args(["-nx", "-batch", "-p", &pid, "-ex", "bt", "-ex", "detach"])
            .env_remove("DEBUGINFOD_URLS")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&gdb.stdout);
        assert!(said.contains("Py_BytesMain"), "{target}: {gdb:?}");
        assert!(said.contains("detached"), "{target}: {gdb:?}");
        target.assert_unharmed();
        target.count_up_to(4);
    });
}

#[test]
#[ignore = "takes minutes"]
fn nothing_changes_many_times() {
    registers_and_red_zone(MANY_ROUNDS);
    surroundings(MANY_ROUNDS);
    no_call_is_interrupted(MANY_ROUNDS / 4);
    every_signal_arrives_once(MANY_ROUNDS);
    arithmetic_stays_right(MANY_ROUNDS);
    allocating_threads_go_on(MANY_ROUNDS);
}
