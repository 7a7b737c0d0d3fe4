//! What `watch-nan` says of a training in which all is well, and what it leaves on; whose value was not finite.

use std::io::Read as _;
use std::process::{Child, Stdio};

use probing_testkit::{CommandResult, every_torch, root, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::sandbox;
use crate::steps::Training;

#[test]
fn watch_nan_reports_what_it_checked_and_switches_off_what_it_switched_on() {
    let mut training = Training::start();
    let watch = |training: &Training| {
        let ran = training.job.probing(&["watch-nan", "--for", "10ms"]);
        assert_eq!((ran.status, &*ran.stdout), (0, ""), "{ran:?}");
        ran.stderr
    };
    let status = |training: &Training| {
        let ran = training.job.probing(&["torch", "status"]);
        ran.ok().to_owned()
    };
    // Nothing is called meanwhile.
    let said = watch(&training);
    let nothing = "nothing was checked: no model was called meanwhile\n";
    assert!(said.ends_with(nothing), "{said}");
    assert!(status(&training).starts_with("ranks 0-1: off"));
    let json = training
        .job
        .probing(&["watch-nan", "--for", "10ms", "--json"]);
    assert_eq!(json.json()["modules"], 0);

    // Modules that are known from before were not looked at.
    training.job.probing(&["torch", "on"]).ok();
    training.go_on(1);
    let said = watch(&training);
    assert!(said.ends_with(nothing), "{said}");
    // What others switched on stays on, and no more than that.
    let now = status(&training);
    assert!(now.starts_with("ranks 0-1:\n  on, by"), "{now}");
    assert!(!now.contains("nan"), "{now}");
    let other = Watching::start(&training);
    training.go_on(1);
    let said = watch(&training);
    assert!(said.ends_with(nothing), "{said}");
    assert!(status(&training).contains("nan: watched; 0 found"));
    other.enough();
    assert!(!status(&training).contains("nan"));
    training.job.probing(&["torch", "off"]).ok();

    let watching = Watching::start(&training);
    training.go_on(1);
    let watched = watching.enough();
    let finite = "all values of 10 modules were finite\n";
    assert!(watched.stderr.ends_with(finite), "{watched:?}");
    assert!(status(&training).starts_with("ranks 0-1: off"));

    // Others that switch it on or off meanwhile have their own say.
    let watching = Watching::start(&training);
    training.job.probing(&["torch", "on"]).ok();
    watching.enough();
    let now = status(&training);
    assert!(now.starts_with("ranks 0-1:\n  on, by"), "{now}");
    assert!(!now.contains("nan"), "{now}");
    let watching = Watching::start(&training);
    training.job.probing(&["torch", "off"]).ok();
    assert!(status(&training).contains("nan: watched"));
    watching.enough();
    assert!(status(&training).starts_with("ranks 0-1: off"));

    // One that is killed leaves nothing on.
    let watching = Watching::start(&training);
    assert!(status(&training).contains("nan: watched"));
    watching.kill();
    wait_until("it is off again", || {
        status(&training).starts_with("ranks 0-1: off")
    });
    assert_eq!(training.job.torchrun.end().status, 0);
}

#[test]
fn what_a_rank_that_ended_had_checked_is_reported() {
    let mut training = Training::start();
    let watching = Watching::start_with(&training, &["--json"]);
    training.go_on(1);
    training.job.kill_rank(1);
    let told = watching.enough().json();
    assert_eq!(told["modules"], Value::Null, "{told:#}");
    // torchrun may have ended the other one, too.
    let missing = told["missing"].as_array().unwrap().iter();
    let of_rank = missing.filter(|one| one["rank"] == 1);
    let words: Vec<&str> = of_rank.map(|one| one["error"].as_str().unwrap()).collect();
    // A query that comes while it is a zombie says that it has ended.
    let is_said =
        |words: &&str| words.contains("unknown what was checked: ") || words.contains("has ended");
    assert!(!words.is_empty() && words.iter().all(is_said), "{told:#}");
    training.job.torchrun.end();
}

/// A `watch-nan` that runs.
struct Watching(Child);

impl Watching {
    fn start(training: &Training) -> Self {
        Self::start_with(training, &[])
    }

    /// Returns when both ranks look.
    fn start_with(training: &Training, more: &[&str]) -> Self {
        let mut command = training.job.command(&[&["watch-nan"], more].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        let stderr = child.stderr.as_mut().unwrap();
        while !said.ends_with("(Ctrl-C exits)\n") {
            let mut byte = [0];
            stderr.read_exact(&mut byte).unwrap();
            said.push(char::from(byte[0]));
        }
        Self(child)
    }

    fn enough(self) -> CommandResult {
        kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        let ran = CommandResult::finished(self.0);
        assert_eq!(ran.status, 0, "{ran:?}");
        ran
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

const POISONED: &str = "tests/targets/with_torch/poisoned.py";

#[test]
fn watch_nan_names_the_class_and_the_forward_of_the_module_and_who_counts_steps() {
    every_torch(|python| {
        let sandbox = sandbox();
        let command = python.run([root().join(POISONED)]);
        let target = sandbox.target_command(command).env("PROBING", "1");
        let mut target = target.env("PROBING_TORCH", "nan").start_without_waiting();
        assert_eq!(target.line(), "ready");
        for call in ["plain", "decorated", "native", "own 4711"] {
            target.say(call);
            assert_eq!(target.line(), "done", "{call}");
        }
        let pid = target.pid().to_string();
        let asked = |more: &[&str]| {
            let arguments = [&["-t", &pid, "watch-nan", "--recorded"], more].concat();
            sandbox.probing(arguments)
        };
        let file = root().join(POISONED).display().to_string();
        let line = |mark: &str| {
            let source = std::fs::read_to_string(&file).unwrap();
            source
                .lines()
                .position(|line| line.ends_with(mark))
                .unwrap()
                + 1
        };
        let told = asked(&["--json"]).json();
        let named: Vec<Value> = told["found"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["class"] != "Model")
            .map(|one| {
                json!([
                    one["class"],
                    one["file"],
                    one["lineno"],
                    one["step"],
                    one["counted_by"]
                ])
            })
            .collect();
        assert_eq!(
            named,
            [
                json!(["Plain", file, line("@plain"), 0, "optimizer"]),
                json!(["Decorated", file, line("@decorated"), 0, "optimizer"]),
                json!(["Plain", null, null, 0, "optimizer"]),
                json!(["Plain", file, line("@own"), 4711, "program"]),
            ],
            "{told:#}"
        );
        let text = asked(&[]);
        assert_eq!(
            text.ok().lines().nth(1).unwrap(),
            format!(
                "  in Plain.forward at {file}:{}; steps are counted by the optimizer since recording began",
                line("@plain")
            )
        );
        assert_eq!(target.end().status, 0);
    });
}
