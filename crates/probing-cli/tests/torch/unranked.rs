//! Ranks that only torch knows: their launcher has set no variables.

use std::process::Stdio;

use probing_testkit::{CommandResult, Python, Sandbox, Target, every_torch, root, wait_until};
use rustix::process::Signal;
use serde_json::json;

use crate::sandbox;

/// Two ranks that have met.
struct Pair {
    sandbox: Sandbox,
    targets: [Target; 2],
    both: String,
}

impl Pair {
    fn start(python: &Python, variables: &[(&str, &str)]) -> Self {
        let sandbox = sandbox();
        let place = sandbox.path().join("meeting");
        let start = |rank: &str| {
            let program = root().join("tests/targets/with_torch/unranked.py");
            let mut command = python.run([program.as_os_str(), rank.as_ref()]);
            command.arg(&place);
            let mut target = sandbox.target_command(command);
            for (name, value) in [&[("GLOO_SOCKET_IFNAME", "lo")], variables].concat() {
                target = target.env(name, value);
            }
            target.start_without_waiting()
        };
        let mut targets = [start("0"), start("1")];
        for target in &mut targets {
            assert_eq!(target.line(), "ready");
        }
        let both = targets.each_ref().map(|target| target.pid().to_string());
        Self {
            sandbox,
            targets,
            both: both.join(","),
        }
    }

    fn probing(&self, arguments: &[&str]) -> CommandResult {
        let arguments = [&["-t", &self.both], arguments].concat();
        self.sandbox.probing(arguments)
    }

    fn rows(&self, sql: &str) -> Vec<String> {
        let rows = self.probing(&["query", "--csv", sql]);
        assert_eq!(rows.status, 0, "{rows:?}");
        rows.stdout.lines().skip(1).map(str::to_owned).collect()
    }

    /// Has both do something.
    fn say(&mut self, word: &str) {
        for target in &mut self.targets {
            target.say(word);
        }
        for target in &mut self.targets {
            assert_eq!(target.line(), "done");
        }
    }

    /// One operation is recorded.
    fn record_an_operation(&mut self) {
        let on = self.probing(&["collectives", "on"]);
        assert_eq!(on.status, 0, "{on:?}");
        self.say("go on");
    }

    fn check_that_operations_have_ranks(&mut self) {
        self.record_an_operation();
        let sql = "SELECT rank, group_rank, count(*) FROM python.collectives WHERE state = 'enqueued' GROUP BY rank, group_rank ORDER BY rank";
        assert_eq!(self.rows(sql), ["0,0,1", "1,1,1"]);
    }

    fn end(self) {
        for target in self.targets {
            assert_eq!(target.end().status, 0);
        }
    }
}

#[test]
fn a_rank_that_only_torch_knows_is_in_rows() {
    let mut pair = Pair::start(&Python::with_torch(), &[]);
    pair.check_that_operations_have_ranks();
    pair.end();
}

/// The probe was there before torch was.
#[test]
fn a_rank_that_torch_learns_after_the_start_of_the_probe_is_in_rows() {
    every_torch(|python| {
        let mut pair = Pair::start(python, &[("PROBING", "1")]);
        pair.check_that_operations_have_ranks();
        pair.end();
        // Nobody asks the probe.
        let mut pair = Pair::start(python, &[("PROBING", "1")]);
        pair.say("record");
        let sql = "SELECT rank, count(*) FROM user.turns GROUP BY rank ORDER BY rank";
        wait_until("rows have ranks", || pair.rows(sql) == ["0,1", "1,1"]);
        pair.end();
    });
}

/// It holds the GIL, so that it is being asked until it is killed.
#[test]
fn a_rank_that_is_killed_while_it_is_asked_counts_as_ended() {
    let mut pair = Pair::start(&Python::with_torch(), &[]);
    pair.record_an_operation();
    pair.targets[1].say("hold the GIL");
    assert_eq!(pair.targets[1].line(), "held");
    let mut command = pair.sandbox.command();
    command.args(["-t", &pair.both, "collectives", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let asking = command.spawn().unwrap();
    let tasks = format!("/proc/{}/task", pair.targets[1].pid());
    wait_until("the probe waits for the GIL", || {
        let mut tasks = std::fs::read_dir(&tasks).unwrap().flatten();
        tasks.any(|task| {
            let name = std::fs::read_to_string(task.path().join("comm"));
            name.is_ok_and(|name| name.trim_end() == "probing-eval")
        })
    });
    pair.targets[1].signal(Signal::KILL);
    let told = CommandResult::finished(asking);
    let report = told.json();
    let world = &report["jobs"][0]["groups"][0];
    assert_eq!(
        (&world["ranks"], &world["ended"]),
        (&json!([0, 1]), &json!([1])),
        "{report:#}"
    );
    let [living, dead] = pair.targets;
    dead.wait();
    assert_eq!(living.end().status, 0);
}
