//! What looks again and again, for several targets: `--watch`, `--dump`, `flamegraph`; and their variables.

use probing_testkit::{Terminal, every_python};
use rustix::process::Signal;
use serde_json::Value;

use super::Job;
use crate::scrubbed;

#[test]
fn the_tree_of_several_is_dumped_again_and_again() {
    every_python(|python| {
        let job = Job::start(python, &["", "load", ""]);
        job.settle();
        let dump = ["backtrace", "--dump", "2", "--every", "0.01"];
        let ran = job.probing((0, 2), &dump);
        let text = job.shown(ran.ok());
        assert_eq!(text.matches("--- 20").count(), 2, "{text}");
        assert_eq!(text.matches("rank 1, waits in read  ← odd").count(), 2);
        // One has ended: the others are shown, and who is not.
        job.ranks[1].signal(Signal::KILL);
        let mut with_json = dump.to_vec();
        with_json.push("--json");
        let ran = job.probing((0, 2), &with_json);
        let lines = ran.stdout.lines();
        let reports: Vec<Value> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(reports.len(), 2, "{ran:?}");
        for report in reports {
            assert_eq!(report["trees"][0]["trunk"]["count"], 2, "{report}");
        }
        let ran = job.probing((1, 1), &dump);
        assert_eq!((ran.status, ran.stdout.as_str()), (3, ""), "{ran:?}");
    });
}

#[test]
fn the_tree_of_several_is_watched_until_all_have_ended() {
    every_python(|python| {
        let job = Job::start(python, &["", "load", ""]);
        job.settle();
        let mut command = job.sandbox.command();
        command.args(["--ranks", &job.named(0, 2), "backtrace", "--watch", "0.05"]);
        let terminal = Terminal::start(command);
        terminal.wait_for("odd one out");
        job.ranks[1].signal(Signal::KILL);
        terminal.wait_for("Not read:");
        for rank in [0, 2] {
            job.ranks[rank].signal(Signal::KILL);
        }
        let (status, seen) = terminal.finish();
        assert_eq!(status, 0, "{seen}");
        let last = scrubbed(&job.shown(&seen));
        assert!(
            last.contains("ranks N-N has ended after N readings"),
            "{seen}"
        );
    });
}

#[test]
fn variables_of_several_are_told_once_or_with_who_has_them() {
    every_python(|python| {
        let job = Job::start(python, &["", "probed", "load"]);
        job.settle();
        let ran = job.probing((0, 2), &["backtrace", "--locals"]);
        let text = job.shown(&ran.stdout);
        let module = "    step()\n      RANK = 0 (rank 0), 1 (rank 1), 2 (rank 2)\n      learning_rate = 0.1\n";
        assert!(text.contains(module), "{text}");
    });
}

#[test]
fn a_flame_graph_of_several_has_a_part_for_each() {
    every_python(|python| {
        let job = Job::start(python, &["", "load"]);
        job.settle();
        let options = [
            "flamegraph",
            "--idle",
            "--for",
            "0.05",
            "--format",
            "folded",
            "-o",
            "-",
        ];
        let ran = job.probing((0, 1), &options);
        assert_eq!(ran.status, 0, "{ran:?}");
        let text = scrubbed(&job.shown(&ran.stdout));
        insta::assert_snapshot!(text, @"
        rank N;<module> (rank.py:N);step (rank.py:N);all_reduce (rank.py:N) N
        rank N;<module> (rank.py:N);step (rank.py:N);load (rank.py:N) N
        ");
        // One that is not there is told; the others are in the picture.
        let ran = job.probing((0, 2), &options);
        assert!(ran.stdout.contains(";load (rank.py:"), "{ran:?}");
        assert!(
            ran.stderr.starts_with("warning: no process here has rank "),
            "{ran:?}"
        );
    });
}
