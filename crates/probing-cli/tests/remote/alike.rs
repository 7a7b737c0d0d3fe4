//! What a command says of a target on this machine it says also of the same target behind an agent.

use std::collections::BTreeSet;

use probing_testkit::{CommandResult, Sandbox, Target, every_python, scrubbed};

use crate::agent::Agent;
use crate::sandbox;

/// A target with a probe, reached in two ways.
struct TwoWays<'a> {
    sandbox: &'a Sandbox,
    local: String,
    remote: String,
}

impl<'a> TwoWays<'a> {
    fn to(target: &Target, agent: &Agent, sandbox: &'a Sandbox) -> Self {
        let pid = target.pid();
        Self {
            sandbox,
            local: pid.to_string(),
            remote: format!("{}/{pid}", agent.name()),
        }
    }

    /// What a command answers of the local target, and of the one behind the agent.
    fn ask(&self, arguments: &[&str]) -> [CommandResult; 2] {
        [&self.local, &self.remote].map(|target| {
            let mut command = self.sandbox.command();
            command
                .args(["-t", target])
                .args(arguments)
                .env("XDG_STATE_HOME", self.sandbox.path().join("state"));
            CommandResult::to_the_end(command)
        })
    }

    /// Status, output and words, without numbers and without the name of the target.
    fn said(&self, ran: &CommandResult) -> (i32, String, String) {
        let plain = |text: &str| scrubbed(&text.replace(&self.remote, &self.local));
        (ran.status, plain(&ran.stdout), plain(&ran.stderr))
    }

    #[track_caller]
    fn check(&self, arguments: &[&str]) -> (i32, String, String) {
        let [local, remote] = self.ask(arguments).map(|ran| self.said(&ran));
        assert_eq!(local, remote, "{arguments:?}");
        local
    }
}

/// Names of the threads whose stacks `backtrace` shows.
fn shown(ran: &CommandResult) -> BTreeSet<String> {
    let report = ran.json();
    let threads = report["threads"].as_array().unwrap().iter();
    threads
        .map(|thread| thread["thread_name"].as_str().unwrap().to_owned())
        .collect()
}

/// Names of the threads whose stacks `flamegraph --threads` counts.
fn sampled(ran: &CommandResult) -> BTreeSet<String> {
    // Words beside it say how the samples were taken.
    assert_eq!(ran.status, 0, "{ran:?}");
    let stacks = ran.stdout.lines();
    stacks
        .map(|line| line.split(" (").next().unwrap().to_owned())
        .collect()
}

#[test]
fn a_selection_of_threads_means_the_same_threads_in_every_command() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "waiting.py");
        let agent = Agent::start(&sandbox);
        let ways = TwoWays::to(&target, &agent, &sandbox);
        let [all, _] = ways.ask(&["backtrace", "--all", "--json"]);
        let all = all.json();
        let threads = all["threads"].as_array().unwrap();
        let main = threads
            .iter()
            .find(|thread| thread["main"] == true)
            .unwrap();
        let loader = threads
            .iter()
            .find(|thread| thread["thread_name"] == "loader-2")
            .unwrap();
        let id = |thread: &serde_json::Value, id: &str| thread[id].to_string();
        for (selector, name) in [
            ("main".to_owned(), "MainThread"),
            ("MainThread".to_owned(), "MainThread"),
            (id(main, "thread_id"), "MainThread"),
            (id(main, "ident"), "MainThread"),
            ("loader-2".to_owned(), "loader-2"),
            (id(loader, "thread_id"), "loader-2"),
            (id(loader, "ident"), "loader-2"),
        ] {
            let expected = BTreeSet::from([name.to_owned()]);
            for ran in ways.ask(&["backtrace", "--thread", &selector, "--json"]) {
                assert_eq!(shown(&ran), expected, "{selector}");
            }
            let sample = [
                "flamegraph",
                "--for",
                "0.1",
                "--idle",
                "--threads",
                "-o",
                "-",
            ];
            let folded = ["--format", "folded", "--thread", &selector];
            for ran in ways.ask(&[&sample[..], &folded].concat()) {
                assert_eq!(sampled(&ran), expected, "{selector}");
            }
            for ran in ways.ask(&["top", "--once", "--for", "0.1", "--thread", &selector]) {
                assert_eq!(ran.status, 0, "{selector}: {ran:?}");
            }
            if name == "MainThread" {
                // It waits in C: the frame tells whose it is, and nothing has to run there.
                for ran in ways.ask(&["eval", "--thread", &selector, "--frame", "0", "work"]) {
                    assert_eq!(ran.status, 0, "{selector}: {ran:?}");
                }
            }
        }
        for command in [
            &["backtrace"][..],
            &["flamegraph", "--for", "0.1", "-o", "-"],
            &["top", "--once", "--for", "0.1"],
            &["eval", "1"],
        ] {
            let (status, _, words) = ways.check(&[command, &["--thread", "nobody"]].concat());
            assert_eq!(status, 1, "{command:?}: {words}");
            assert!(
                words.starts_with("error: no thread is named nobody"),
                "{command:?}: {words}"
            );
            assert!(words.contains("there are: MainThread (N), "), "{words}");
        }
    });
}

#[test]
fn a_command_says_the_same_of_a_local_target_and_through_an_agent() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "waiting.py");
        let agent = Agent::start(&sandbox);
        let ways = TwoWays::to(&target, &agent, &sandbox);
        for arguments in [
            &["backtrace"][..],
            &["backtrace", "--all"],
            &["backtrace", "--locals"],
            &["backtrace", "--all", "--native"],
            &["backtrace", "--tasks"],
            &["backtrace", "--dump", "1", "--thread", "nobody"],
            &["query", "--csv", "SELECT name, state FROM python.threads"],
            &["query", "SELECT nothing FROM python.threads"],
            &["query", "SELECT 1 FROM"],
            &["eval", "print('out'); 6 * 7"],
            &["eval", "1 / 0"],
            &["eval", "1 +"],
            &["eval", "--frame", "99", "1"],
            &["eval", "--max-output", "2", "print('more than two')"],
            &["eval", "--timeout", "0.1", "while True: pass"],
            &["break", "no_such_function"],
            &["break", "epoch", "--action", "count"],
            &["watch", "no_such_function:x"],
            &["breakpoints"],
            &["disarm", "77"],
            &["stops"],
            &["release", "77"],
            &["trace", "no_such_function"],
            &["trace", "--list"],
            &["untrace", "77"],
            &["torch", "status"],
            &["collectives"],
        ] {
            ways.check(arguments);
        }
        for switch in ["on", "off"] {
            // The first to switch it says that it is so now.
            ways.ask(&["memory", switch]);
            ways.check(&["memory", switch]);
        }
    });
}

#[test]
fn notes_of_a_target_that_cannot_answer_come_through_an_agent() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "holds_gil.py");
        let agent = Agent::start(&sandbox);
        let ways = TwoWays::to(&target, &agent, &sandbox);
        target.say("hold");
        assert_eq!(target.line(), "holding");
        let (_, _, words) = ways.check(&["backtrace", "--locals"]);
        assert!(
            words.starts_with("note: values of N are those read from outside: "),
            "{words}"
        );
        let (_, _, words) = ways.check(&["backtrace", "--locals", "--dump", "1"]);
        assert!(words.starts_with("note: values of N are those"), "{words}");
        let (status, _, words) = ways.check(&["eval", "--timeout", "1.5", "1"]);
        assert_eq!(status, 124, "{words}");
        assert!(words.contains("holds the GIL"), "{words}");
        target.say("release");
    });
}

#[test]
fn top_samples_the_thread_that_is_selected() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "flames.py");
        let agent = Agent::start(&sandbox);
        let ways = TwoWays::to(&target, &agent, &sandbox);
        let top = |thread: &str| ways.ask(&["top", "--once", "--for", "0.5", "--thread", thread]);
        for ran in top("main") {
            assert!(ran.ok().contains("hot ("), "{ran:?}");
        }
        for ran in top("sleeper") {
            assert!(!ran.ok().contains("hot ("), "{ran:?}");
        }
    });
}
