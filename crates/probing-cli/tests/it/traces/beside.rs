//! Traces beside breakpoints, watchpoints and profile functions of others on the same function.
//!
//! A function that is traced may have breakpoints and watches, too: each tells what it does alone, whichever comes
//! first, and in the end the function has its own code. Profile functions of others go on beside a trace, and after
//! them so does that.

use probing_testkit::{every_python, wait_until};

use super::Traced;

/// What may be armed in one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Trace,
    Watch,
    Break,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Trace, Self::Watch, Self::Break];

    fn arm(self, traced: &Traced) {
        traced.probing(match self {
            Self::Trace => &["trace", "Trainer.fit"],
            Self::Watch => &["watch", "Trainer.fit:rate"],
            Self::Break => &["break", "traced.py:23", "--action", "count"],
        });
    }

    fn disarm(self, traced: &Traced) {
        match self {
            Self::Trace => traced.probing(&["untrace", "all"]),
            Self::Watch | Self::Break => {
                let kind = if self == Self::Watch { "rate" } else { ":23" };
                let sql =
                    format!("select point from python.breakpoints where place like '%{kind}'");
                let point = traced.query(&sql).concat();
                traced.probing(&["delete", &point])
            }
        };
    }

    /// How much there is of it.
    fn told(self, traced: &Traced) -> u64 {
        let sql = match self {
            Self::Trace => "select count(*) from python.trace_event",
            Self::Watch => "select count(*) from python.variables",
            Self::Break => {
                "select coalesce(sum(hits), 0) from python.breakpoints where place like '%:23'"
            }
        };
        traced.query(sql).concat().parse().unwrap()
    }
}

#[test]
fn a_function_is_traced_watched_and_stopped_in_at_once() {
    every_python(|python| {
        let orders = [[0, 1, 2], [1, 2, 0], [2, 0, 1]];
        for order in orders.map(|order| order.map(|index| Kind::ALL[index])) {
            let mut traced = Traced::start(python);
            traced.run("own = Trainer.fit.__code__; seen = 0.0");
            for (index, kind) in order.iter().enumerate() {
                kind.arm(&traced);
                let armed = &order[..=index];
                let before: Vec<u64> = armed.iter().map(|kind| kind.told(&traced)).collect();
                // Another rate each time: both of its values are changes.
                traced.run("seen += 1.0; assert trainer.fit(seen) == seen * 0.5 + 4");
                for (kind, before) in armed.iter().zip(before) {
                    let each = if *kind == Kind::Break { 1 } else { 2 };
                    assert_eq!(kind.told(&traced), before + each, "{kind:?} of {armed:?}");
                }
            }
            for (index, kind) in order.iter().enumerate() {
                kind.disarm(&traced);
                let armed = &order[index + 1..];
                let before: Vec<u64> = armed.iter().map(|kind| kind.told(&traced)).collect();
                traced.run("seen += 1.0; assert trainer.fit(seen) == seen * 0.5 + 4");
                for (kind, before) in armed.iter().zip(before) {
                    let each = if *kind == Kind::Break { 1 } else { 2 };
                    assert_eq!(kind.told(&traced), before + each, "{kind:?} is left");
                }
            }
            traced.run("assert Trainer.fit.__code__ is own");
        }
    });
}

#[test]
fn a_trace_continues_when_a_profile_function_of_another_tool_is_gone() {
    every_python(|python| {
        for begins_first in [true, false] {
            let mut traced = Traced::start(python);
            let wanted = ["trace", "--module", "__main__"];
            if begins_first {
                traced.probing(&wanted);
            }
            traced.run("seen = []; sys.setprofile(lambda frame, what, _: seen.append(what))");
            if !begins_first {
                traced.probing(&wanted);
            }
            traced.run("trainer.fit(1.0)");
            // From 3.12 on they do not meet.
            let listed = traced.probing(&["trace", "--list"]);
            let is_older = python.version < (3, 12);
            let note = "a thread with a profile function of another tool";
            assert_eq!(listed.contains(note), is_older, "{listed}");
            assert_eq!(traced.rows().is_empty(), is_older);
            traced.run("sys.setprofile(None); assert seen.count('call') >= 3");
            wait_until("it is told again", || {
                traced.run("negative(1)");
                traced.rows().iter().any(|row| row == "call,negative,0")
            });
            let listed = traced.probing(&["trace", "--list"]);
            assert!(!listed.contains(note), "{listed}");
        }
    });
}

/// From 3.12 on Python warns when a process with more than one thread forks.
#[test]
fn a_fork_prints_no_warning_because_of_a_trace() {
    const FORK: &str = "
import os, warnings
with warnings.catch_warnings():
    warnings.simplefilter('error')
    pid = os.fork()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)";
    every_python(|python| {
        let mut traced = Traced::start(python);
        for _ in 0..10 {
            traced.probing(&["trace", "leaf"]);
            traced.run(FORK);
            traced.probing(&["untrace", "all"]);
            traced.run(FORK);
        }
    });
}

/// A thread that has the GIL for long, in C, when a trace and a breakpoint have had their time: who waits to end them is one for
/// each, and not another every moment.
#[test]
fn threads_do_not_pile_up_while_nobody_can_have_the_gil() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.run("import ctypes; held = ctypes.PyDLL(None).usleep");
        traced.probing(&["trace", "Trainer.fit", "--for", "1s"]);
        traced.probing(&["break", "traced.py:23", "--action", "count", "--for", "1s"]);
        let before = traced.target.usage().threads;
        traced.target.say("held(3_000_000)");
        let mut most = before;
        while traced.target.lines_so_far().is_empty() {
            most = most.max(traced.target.usage().threads);
        }
        assert!(most <= before + 3, "{before} threads, then {most}");
        wait_until("both are over", || {
            traced
                .probing(&["trace", "--list"])
                .contains("ended: expired")
                && traced
                    .probing(&["breakpoints"])
                    .contains("deleted: expired")
        });
    });
}
