//! Traces of several programs at once, and their table of hot functions on a terminal.

use probing_testkit::{Terminal, every_python};
use rustix::process::Signal;

use super::Traced;
use crate::sandbox;

#[test]
fn a_set_of_programs_is_traced_and_no_longer_traced_by_one_command_each() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut targets = [(); 2].map(|()| sandbox.target(python, "traced.py").start());
        let pids = targets.each_ref().map(|target| target.pid().to_string());
        let both = |arguments: &[&str]| {
            let all = [&["-t", &pids[0], "-t", &pids[1]], arguments].concat();
            let ran = sandbox.probing(all);
            assert_eq!(ran.status, 0, "{arguments:?}: {ran:?}");
            ran.stdout
        };
        let begun = both(&["trace", "middle", "--depth", "1"]);
        // In one line if it is said to cost as much in both.
        assert!(begun.contains("trace 1: middle ("), "{begun}");
        assert!(pids.iter().all(|pid| begun.contains(pid)), "{begun}");
        for (times, target) in (1..).zip(&mut targets) {
            crate::recording::run(target, &format!("for i in range({times}): middle(i)"));
        }
        let counted = both(&[
            "query",
            "--csv",
            "select pid, count(*) from python.trace_event group by pid order by 2",
        ]);
        let expected = [format!("{},4", pids[0]), format!("{},8", pids[1])];
        assert_eq!(counted.lines().skip(1).collect::<Vec<_>>(), expected);
        let listed = both(&["trace", "--list"]);
        assert_eq!(listed.matches(" events; cost so far").count(), 2);
        let top = both(&["top", "--once"]);
        assert!(top.contains("middle (") && top.contains("leaf ("), "{top}");
        // Others of this user are there, too; they have no probe of this sandbox, and get none.
        let all = sandbox.probing(["-t", "all", "trace", "--list"]).stdout;
        assert!(pids.iter().all(|pid| all.contains(pid)), "{all}");
        let ended = both(&["untrace", "all"]);
        assert_eq!(ended.matches("trace 1 ended: middle").count(), 2, "{ended}");
    });
}

#[test]
fn a_function_that_is_traced_already_is_said_to_be() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "middle"]);
        let again = traced.probing(&["trace", "middle"]);
        assert!(again.starts_with("trace 2: middle; cost: "), "{again}");
        assert!(
            again.ends_with("; note: one of its functions is followed by another trace\n"),
            "{again}"
        );
        traced.run("middle(1)");
        let listed = traced.probing(&["trace", "--list"]);
        let events: Vec<&str> = listed
            .lines()
            .filter_map(|line| line.split("; ").find(|part| part.ends_with(" events")))
            .collect();
        assert_eq!(events, ["2 events", "0 events"], "{listed}");
    });
}

#[test]
fn the_hottest_functions_are_shown_live_and_the_terminal_is_as_it_was() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.run("threading.Thread(target=forever, daemon=True).start()");
        let start = || {
            let mut command = traced.sandbox.command();
            command.args(["-t", &traced.target.pid().to_string()]);
            command.args(["top", "--every", "0.2"]);
            Terminal::start(command)
        };
        let sampled = start();
        sampled.wait_for("no traced call was recorded: by ");
        sampled.wait_for("forever (");
        sampled.signal(Signal::INT);
        assert_eq!(sampled.finish().0, 0);
        traced.probing(&["trace", "--module", "__main__", "--stats"]);
        let terminal = start();
        terminal.wait_for("by python.trace_stats: ");
        terminal.wait_for("middle (");
        terminal.wait_for("(Ctrl-C exits)");
        terminal.signal(Signal::INT);
        let (status, shown) = terminal.finish();
        assert_eq!(status, 0, "{shown:?}");
        let (_, after) = shown.split_once("\x1b[?1049l").unwrap();
        assert_eq!(after, "", "{shown:?}");
    });
}
