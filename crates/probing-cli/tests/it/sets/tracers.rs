//! Several ranks traced and watched for leaks by one command each; those that cannot answer are named and not waited for.

use std::process::{Child, Stdio};

use probing_testkit::{CommandResult, Python, every_python, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::Job;
use crate::leaks::said_first;
use crate::recording::run;
use crate::scrubbed;

/// What is said of a rank that is stopped and of one that there is not.
const LOST: &str = "\
rank 1: process is stopped by a signal and cannot answer: N
 hint: resume it with: kill -CONT N
rank 3: no process here has it
 hint: it has ended, or runs on another machine; `probing list` shows the ranks of this machine
";

/// Ranks 0 and 2 of four: one is stopped, and one there never was.
fn two_of_four(python: &Python, program: &str) -> Job {
    let job = Job::of(python, program, &["probed"; 3]);
    job.ranks[1].stop();
    job
}

fn check_lost(job: &Job, ran: &CommandResult) {
    assert_eq!(ran.status, 3, "{ran:?}");
    assert_eq!(lost(job, &ran.stderr), LOST, "{ran:?}");
}

/// With numbers of ranks as the job counts them, and no others.
fn lost(job: &Job, words: &str) -> String {
    let shown = job.shown(words);
    let lines = shown.lines().map(|line| match line.split_once(": ") {
        Some((who, words)) if who.starts_with("rank ") => format!("{who}: {}\n", scrubbed(words)),
        _ => format!("{}\n", scrubbed(line)),
    });
    lines.collect()
}

#[test]
fn functions_of_ranks_are_traced_and_shown_with_their_ranks() {
    every_python(|python| {
        let mut job = two_of_four(python, "traced.py");
        let begun = job.probing((0, 3), &["trace", "middle", "--depth", "1"]);
        check_lost(&job, &begun);
        let shown = job.shown(&begun.stdout);
        // What it costs was measured in each, and is hardly the same.
        let is_told = |who: &str| shown.contains(&format!("{who}: trace 1: "));
        let each = is_told("rank 0") && is_told("rank 2");
        assert!(each || is_told("ranks 0,2"), "{shown}");
        for (times, rank) in [(1, 0), (3, 2)] {
            run(
                &mut job.ranks[rank],
                &format!("for i in range({times}): middle(i)"),
            );
        }
        let sums =
            "SELECT count(DISTINCT rank) AS ranks FROM python.trace_stats WHERE func = 'leaf'";
        wait_until("their sums are taken", || {
            let rows = job.probing((0, 2), &["query", "--json", sums]).json();
            rows[0]["ranks"] == 2
        });
        // Whatever this takes, the sums are not too old.
        let top = ["top", "--once", "--for", "10m"];
        let ran = job.probing((0, 3), &top);
        assert_eq!(ran.status, 0, "{ran:?}");
        let shown = job.shown(&ran.stdout);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[1],
            "no call was recorded in rank 1: nothing is traced or called there (`probing trace --list`)"
        );
        for name in ["middle", "leaf"] {
            let row = lines
                .iter()
                .find(|line| line.contains(&format!(" {name} (")));
            let row = row.unwrap_or_else(|| panic!("{shown}"));
            let words: Vec<&str> = row.split_whitespace().collect();
            // Times are two words, each with its unit.
            assert_eq!(
                (words[0], words[1], words[6]),
                ("ranks", "0,2", "4"),
                "{shown}"
            );
        }
        assert!(
            job.shown(&ran.stderr)
                .starts_with("rank 3: no process here has it\n"),
            "{ran:?}"
        );
        let told = job
            .probing((0, 3), &[&top[..], &["--json"]].concat())
            .json();
        let functions = told["functions"].as_array().unwrap();
        let both = job.named(0, 2).replace('-', ",");
        for function in functions {
            assert_eq!(
                (&function["ranks"], &function["calls"]),
                (&json!(both), &json!(4)),
                "{told:#}"
            );
        }
        assert_eq!(told["missing"].as_array().unwrap().len(), 1, "{told:#}");

        files_name_ranks(&job);
        let listed = job.probing((0, 3), &["trace", "--list", "--json"]);
        assert_eq!(listed.status, 3, "{listed:?}");
        let listed = listed.json();
        assert_eq!(
            listed["targets"][2]["report"]["traces"][0]["events"], 12,
            "{listed:#}"
        );
        assert!(listed["targets"][1]["error"].is_string(), "{listed:#}");
        let ended = job.probing((0, 3), &["untrace", "all"]);
        check_lost(&job, &ended);
        let shown = job.shown(&ended.stdout);
        assert!(
            shown.contains("rank 2: trace 1 ended: middle; 12 events"),
            "{shown}"
        );
    });
}

#[test]
fn equal_answers_of_ranks_are_told_once() {
    every_python(|python| {
        let job = Job::of(python, "recording.py", &["probed", "", "probed", ""]);
        let on = job.probing((0, 3), &["memory", "on"]);
        assert_eq!(on.status, 0, "{on:?}");
        insta::assert_snapshot!(job.shown(&on.stdout), @"
        ranks 0-3:
          memory is on now; python.memory: every second, and at every step
          heap is on now; python.heap: every ten seconds, by samples of allocations
        ");
        assert_eq!(job.shown(&on.stderr), "attached to ranks 1,3\n");
        let on = job.probing((0, 3), &["collectives", "on"]);
        assert_eq!((on.status, &*on.stdout), (1, ""), "{on:?}");
        insta::assert_snapshot!(job.shown(&on.stderr), @"
        ranks 0-3: torch is not installed in this program's environment
          hint: `probing -t PID trace` records any function, without torch
        ");
        // Who differs stands apart.
        let off = job.sandbox.probing(["-t", &job.pid(2), "memory", "off"]);
        assert_eq!(off.status, 0, "{off:?}");
        let status = job.probing((0, 3), &["memory", "status"]);
        insta::assert_snapshot!(job.shown(status.ok()), @"
        ranks 0-1,3:
          memory is on; python.memory: every second, and at every step
          heap is on; python.heap: every ten seconds, by samples of allocations
        rank 2:
          memory is off
          heap is off
        ");
    });
}

/// Files for viewers have ranks 0 and 2 as such.
fn files_name_ranks(job: &Job) {
    let file = job.sandbox.path().join("ranks.json");
    let export = ["trace", "--export", "chrome", "-o", file.to_str().unwrap()];
    let ran = job.probing((0, 2), &export);
    assert_eq!(ran.status, 0, "{ran:?}");
    let events: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let names = events["traceEvents"].as_array().unwrap().iter();
    let names = names.filter(|event| event["name"] == "process_name");
    let mut names: Vec<String> = names
        .map(|event| job.shown(event["args"]["name"].as_str().unwrap()))
        .collect();
    names.sort();
    assert_eq!(names, ["rank 0", "rank 2"]);
    let export = export.map(|word| word.replace("chrome", "perfetto"));
    let ran = job.probing((0, 2), &export.each_ref().map(String::as_str));
    assert!(
        ran.stderr
            .starts_with("note: Perfetto's native format is not JSON"),
        "{ran:?}"
    );
}

/// `probing leak` of these ranks for longer than anybody waits, when it samples; and what it said until then.
fn leaking(job: &Job, ranks: (u32, u32), options: &[&str]) -> (Child, String) {
    let mut command = job.sandbox.command();
    command.args([
        "--ranks",
        &job.named(ranks.0, ranks.1),
        "leak",
        "--for",
        "10m",
    ]);
    command.args(options);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let said = said_first(child.stderr.as_mut().unwrap());
    (child, said)
}

#[test]
fn what_grows_in_ranks_is_told_with_their_ranks() {
    every_python(|python| {
        let mut job = two_of_four(python, "leaking.py");
        let on = job.probing((0, 3), &["memory", "on", "--no-heap"]);
        check_lost(&job, &on);
        let row = "memory is on now; python.memory: every second, and at every step";
        assert_eq!(job.shown(&on.stdout), format!("ranks 0,2: {row}\n"));
        // Who is not watched is said before the watch, and how to end it.
        let (child, said) = leaking(&job, (0, 3), &["--top", "2"]);
        let begun = "sampling allocations in ranks 0,2 for 600.0 s (Ctrl-C ends sampling)\n";
        let shown = job.shown(&said);
        let before = shown
            .strip_suffix(begun)
            .unwrap_or_else(|| panic!("{shown}"));
        assert_eq!(lost(&job, before), LOST);
        run(&mut job.ranks[2], "serve(4000)");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ran = CommandResult::finished(child);
        assert_eq!(ran.status, 3, "{ran:?}");
        let shown = job.shown(&ran.stdout);
        let grows = |who: &str| {
            let mut lines = shown.lines().filter(|line| line.starts_with(who));
            lines.any(|line| line.contains("(leaking.py:"))
        };
        assert!(!grows("rank 0: ") && grows("rank 2: "), "{shown}");
        assert_eq!(
            job.shown(&ran.stderr),
            "rank 0: nothing that Python allocated grows\n"
        );
        let told = job.probing((0, 2), &["leak", "--for", "10ms", "--json"]);
        assert_eq!(told.status, 3, "{told:?}");
        let told = told.json();
        assert_eq!(told["targets"][0]["report"]["moments"], 7, "{told:#}");
        assert!(told["targets"][1]["error"].is_string(), "{told:#}");
        let off = job.probing((0, 3), &["memory", "off"]);
        check_lost(&job, &off);
        assert_eq!(
            job.shown(&off.stdout),
            "ranks 0,2:\n  memory is off now\n  heap is off\n"
        );
    });
}

#[test]
fn a_killed_leak_search_leaves_nothing_on() {
    every_python(|python| {
        let job = Job::of(python, "leaking.py", &["probed"; 2]);
        let is_sampled = |rank: usize| {
            let told = job
                .sandbox
                .probing(["-t", &job.pid(rank), "memory", "--json"]);
            told.json()["tracers"][1]["on"] == true
        };
        let (mut first, _) = leaking(&job, (0, 1), &[]);
        let (mut second, _) = leaking(&job, (0, 0), &[]);
        assert!(is_sampled(0) && is_sampled(1));
        first.kill().unwrap();
        first.wait().unwrap();
        wait_until("nobody wants the one to be sampled", || !is_sampled(1));
        // Somebody else looks at the other.
        assert!(is_sampled(0));
        let on = job.sandbox.probing(["-t", &job.pid(1), "memory", "on"]);
        assert!(on.ok().contains("heap is on now"), "{on:?}");
        let (mut third, _) = leaking(&job, (0, 1), &[]);
        for child in [&mut second, &mut third] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        wait_until("nobody looks at the first", || !is_sampled(0));
        // Who asked for it to stay on is not disturbed.
        assert!(is_sampled(1));
        for target in job.ranks {
            assert_eq!(target.end().stderr, [""; 0]);
        }
    });
}
