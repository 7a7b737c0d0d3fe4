//! Code on several targets: on all at once, equal results together.

use std::process::Stdio;

use probing_testkit::{CommandResult, Python, every_python, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Job;
use crate::scrubbed;

/// Four ranks with the probe; the third has another learning rate.
fn four(python: &Python) -> Job {
    let job = Job::start(python, &["probed"; 4]);
    let one = job.probing((2, 2), &["eval", "learning_rate = 0.2"]);
    assert_eq!(one.ok(), "");
    job
}

#[test]
fn equal_results_are_shown_together() {
    every_python(|python| {
        let job = four(python);
        let check = |code: &str, status: i32, stdout: &str, stderr: &str| {
            let ran = job.probing((0, 3), &["eval", code]);
            let shown = (ran.status, job.shown(&ran.stdout), job.shown(&ran.stderr));
            assert_eq!(
                shown,
                (status, stdout.to_owned(), stderr.to_owned()),
                "{code}"
            );
        };
        check("learning_rate", 0, "ranks 0-1,3: 0.1\nrank 2: 0.2\n", "");
        check(
            "print('a'); print('b'); 3",
            0,
            "ranks 0-3:\n  a\n  b\n  3\n",
            "",
        );
        check("print('a', end=''); 3", 0, "ranks 0-3:\n  a\n  3\n", "");
        check("learning_rate += 0", 0, "", "ranks 0-3: done\n");
        // The third counts one eval more than the others.
        check(
            "nothing",
            1,
            "",
            "ranks 0-3:\n  Traceback (most recent call last):\n    File \"<eval>\", line 1, in <module>\n      \
             nothing\n  NameError: name 'nothing' is not defined\n",
        );
        let some = job.probing((0, 3), &["eval", "print('x'); 1 / (learning_rate - 0.2)"]);
        assert_eq!(some.status, 1);
        assert_eq!(
            job.shown(&some.stdout),
            "ranks 0-1,3:\n  x\n  -10.0\nrank 2: x\n"
        );
        assert!(
            job.shown(&some.stderr).starts_with("rank 2:\n  Traceback"),
            "{some:?}"
        );
        let syntax = job.probing((0, 3), &["eval", "1 +"]);
        assert_eq!(syntax.status, 2);
        assert!(
            job.shown(&syntax.stderr).starts_with("ranks 0-3:\n"),
            "{syntax:?}"
        );
        // One is shown as one.
        assert_eq!(
            job.probing((2, 2), &["eval", "learning_rate"]).ok(),
            "0.2\n"
        );
    });
}

#[test]
fn several_must_be_meant() {
    every_python(|python| {
        let job = Job::start(python, &["probed", ""]);
        let both = format!("{},{}", job.pid(0), job.pid(1));
        let refused = job
            .sandbox
            .probing(["-t", &both, "eval", "learning_rate = 9"]);
        assert_eq!((refused.status, refused.stdout.as_str()), (2, ""));
        insta::assert_snapshot!(job.shown(&refused.stderr), @"
        error: this would run on 2 targets: ranks 0-1
        hint: add --all to run it on every one of them, or choose with --ranks 0,2-5
        ");
        let all = job
            .sandbox
            .probing(["-t", "all", "eval", "learning_rate = 9"]);
        assert_eq!((all.status, all.stdout.as_str()), (2, ""));
        let meant = job
            .sandbox
            .probing(["-t", &both, "eval", "--all", "learning_rate"]);
        assert_eq!(
            (meant.status, job.shown(&meant.stdout)),
            (0, "ranks 0-1: 0.1\n".to_owned())
        );
        assert_eq!(job.shown(&meant.stderr), "attached to rank 1\n");
    });
}

#[test]
fn code_runs_on_all_at_the_same_time() {
    every_python(|python| {
        let job = Job::start(python, &["probed"; 4]);
        let folder = job.sandbox.path().join("met");
        std::fs::create_dir(&folder).unwrap();
        // Ends only when everybody is there.
        let code = format!(
            "import os\nopen('{0}/' + str(os.getpid()), 'w').close()\nwhile len(os.listdir('{0}')) < 4: pass\n'met'",
            folder.display()
        );
        let ran = job.probing((0, 3), &["eval", &code]);
        assert_eq!(job.shown(ran.ok()), "ranks 0-3: 'met'\n");
    });
}

#[test]
fn ctrl_c_interrupts_the_code_on_all() {
    every_python(|python| {
        let job = Job::start(python, &["probed"; 3]);
        let mut command = job.sandbox.command();
        command
            .args(["--ranks", &job.named(0, 2), "eval", "--timeout", "0"])
            .arg("begun = True\nwhile True: pass")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        wait_until("the code runs on all", || {
            let ran = job.probing((0, 2), &["eval", "'begun' in globals()"]);
            job.shown(ran.ok()) == "ranks 0-2: True\n"
        });
        kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
        let ran = CommandResult::finished(child);
        assert_eq!((ran.status, ran.stdout.as_str()), (130, ""), "{ran:?}");
        // Each may have been in another line of the loop.
        assert!(ran.stderr.ends_with("KeyboardInterrupt\n"), "{ran:?}");
        for target in &job.ranks {
            wait_until("the evals are over", || target.usage().threads == 2);
        }
    });
}

#[test]
fn those_that_cannot_answer_are_told_and_delay_nobody() {
    every_python(|python| {
        let job = Job::start(python, &["probed"; 3]);
        job.ranks[1].stop();
        let ran = job.probing((0, 3), &["eval", "learning_rate"]);
        assert_eq!(
            (ran.status, job.shown(&ran.stdout)),
            (3, "ranks 0,2: 0.1\n".to_owned())
        );
        insta::assert_snapshot!(scrubbed(&job.shown(&ran.stderr)), @"
        rank N: process is stopped by a signal and cannot answer: N
         hint: resume it with: kill -CONT N
        rank N: no process here has it
         hint: it has ended, or runs on another machine; `probing list` shows the ranks of this machine
        ");
        let json = job.probing((0, 3), &["eval", "--json", "learning_rate"]);
        assert_eq!(json.status, 3);
        let json = json.json();
        let targets = &json["targets"];
        assert_eq!(targets[0]["report"]["value"], "0.1");
        assert_eq!(targets[1]["report"], Value::Null);
        assert!(
            targets[1]["error"]
                .as_str()
                .unwrap()
                .starts_with("process is stopped")
        );
        assert_eq!(targets[2]["pid"], job.ranks[2].pid());
        assert_eq!(json["missing_ranks"], (job.first + 3).to_string());
    });
}

#[test]
fn time_is_up_on_all() {
    let python = Python::all().remove(0);
    let job = Job::start(&python, &["probed"; 2]);
    let ran = job.probing((0, 1), &["eval", "--timeout", "0.5", "while True: pass"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (124, ""));
    assert!(
        job.shown(&ran.stderr).starts_with("ranks 0-1: timed out"),
        "{ran:?}"
    );
}
