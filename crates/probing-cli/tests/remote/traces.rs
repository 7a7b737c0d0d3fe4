//! Traces of programs of another machine.

use probing_testkit::{CommandResult, Python, Sandbox, Target, every_python, wait_until};
use rustix::process::Signal;

use crate::agent::Agent;
use crate::sandbox;

#[test]
fn a_function_is_traced_shown_and_no_longer_traced_through_an_agent() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "traced.py");
        let agent = Agent::start(&sandbox);
        let ask = |arguments: &[&str]| {
            let ran = agent.probing(&sandbox, arguments);
            assert_eq!(ran.status, 0, "{ran:?}");
            ran.stdout
        };
        let begun = ask(&["trace", "middle", "--depth", "1"]);
        assert!(begun.contains("trace 1: "), "{begun}");
        target.say("middle(1)");
        assert_eq!(target.line(), "done");
        let rows = ask(&[
            "query",
            "--csv",
            "select kind, func, depth from python.trace_event order by ts",
        ]);
        assert_eq!(
            rows.lines().skip(1).collect::<Vec<_>>(),
            [
                "call,middle,0",
                "call,leaf,1",
                "return,leaf,1",
                "return,middle,0"
            ]
        );
        let listed = ask(&["trace", "--list"]);
        assert!(listed.contains("4 events; cost so far"), "{listed}");
        let top = ask(&["top", "--once"]);
        assert!(
            top.starts_with("by python.trace_stats") && top.contains("leaf ("),
            "{top}"
        );
        let ended = ask(&["untrace", "all"]);
        assert!(ended.contains("trace 1 ended: middle; 4 events"), "{ended}");
    });
}

const TOKEN: &str = "one token for both machines";

/// Ranks of a job of four, on a machine of its own behind an agent.
struct Machine {
    ranks: Vec<Target>,
    agent: Agent,
    sandbox: Sandbox,
}

impl Machine {
    fn start(python: &Python, ranks: [u32; 2]) -> Self {
        let sandbox = sandbox();
        let start = |rank: u32| {
            let target = sandbox.target(python, "traced.py").env("PROBING", "1");
            let target = target.env("RANK", rank.to_string()).env("WORLD_SIZE", "4");
            target.start_without_waiting()
        };
        let mut ranks: Vec<Target> = ranks.into_iter().map(start).collect();
        for rank in &mut ranks {
            assert_eq!(rank.line(), "ready");
        }
        let agent = Agent::with(&sandbox, &["--listen", "127.0.0.1:0"], |command| {
            command.env("PROBING_TOKEN", TOKEN);
        });
        Self {
            ranks,
            agent,
            sandbox,
        }
    }

    /// Has them run a line.
    fn run(&mut self, line: &str) {
        for rank in &mut self.ranks {
            rank.say(line);
            assert_eq!(rank.line(), "done");
        }
    }
}

#[test]
fn ranks_of_two_machines_are_traced_and_watched_by_one_command_each() {
    every_python(|python| {
        let here = sandbox();
        let mut machines = [
            Machine::start(python, [0, 1]),
            Machine::start(python, [2, 3]),
        ];
        let names = [machines[0].agent.name(), machines[1].agent.name()];
        let ask = |arguments: &[&str]| {
            let mut command = here.command();
            command.args(["-t", &names[0], "-t", &names[1]]);
            command.args(arguments).env("PROBING_TOKEN", TOKEN);
            command.env("PROBING_TLS", "off");
            CommandResult::to_the_end(command)
        };
        // Lines of each rank, without its name.
        let of_ranks = |text: &str| -> Vec<(String, String)> {
            let lines = text.lines().map(|line| line.split_once(": ").unwrap());
            lines
                .map(|(who, line)| (who.to_owned(), line.to_owned()))
                .collect()
        };
        let begun = ask(&["--ranks", "0,2-3", "trace", "middle", "--json"]).json();
        let begun = begun["targets"].as_array().unwrap();
        let traced = begun
            .iter()
            .filter(|target| target["report"]["traces"][0]["trace"] == 1);
        let whose: Vec<u64> = traced
            .map(|target| target["rank"].as_u64().unwrap())
            .collect();
        assert_eq!(whose, [0, 2, 3], "{begun:?}");
        for machine in &mut machines {
            machine.run("middle(1)");
        }
        let sums = "SELECT count(DISTINCT rank) AS ranks FROM python.trace_stats";
        wait_until("their sums are taken", || {
            ask(&["query", "--json", sums]).json()[0]["ranks"] == 3
        });
        let top = ask(&["top", "--once", "--for", "10m"]);
        let lines: Vec<&str> = top.ok().lines().collect();
        assert!(
            lines[1].starts_with("no call was recorded in rank 1: "),
            "{top:?}"
        );
        assert!(
            lines[3].starts_with("ranks 0,2-3 ") && lines[3].contains(" middle ("),
            "{top:?}"
        );
        let on = ask(&["memory", "on"]);
        assert!(on.ok().starts_with("ranks 0-3:\n  memory is on"), "{on:?}");
        assert!(on.stdout.contains("\n  heap is on now; "), "{on:?}");
        let leak = ask(&["--ranks", "1-2", "leak", "--for", "10ms"]);
        let grown = of_ranks(&leak.stdout)
            .into_iter()
            .filter(|(_, line)| line.contains(" s: Python's heap "));
        let grown: Vec<String> = grown.map(|(who, _)| who).collect();
        assert_eq!(grown, ["rank 1", "rank 2"], "{leak:?}");
        assert!(
            leak.stderr
                .starts_with("sampling allocations in ranks 1-2 for 0.0 s "),
            "{leak:?}"
        );
        the_lost_are_named(machines, &ask);
    });
}

/// One rank dies, another stops, and then a machine is gone: each is named, and the others answer.
fn the_lost_are_named([near, far]: [Machine; 2], ask: &dyn Fn(&[&str]) -> CommandResult) {
    near.ranks[1].signal(Signal::KILL);
    far.ranks[1].stop();
    let far_name = far.agent.name();
    let lost = [
        "rank 1: no process here has it",
        "rank 3: process is stopped by a signal",
    ];
    let mut ranks = near.ranks.into_iter();
    let first = ranks.next().unwrap();
    ranks.next().unwrap().wait();
    let all = ["--ranks", "all"];
    for arguments in [
        ["memory", "status"].as_slice(),
        &["trace", "--list"],
        &["trace", "leaf"],
        &["leak", "--for", "10ms"],
        &["untrace", "all"],
    ] {
        let ran = ask(&[&all[..], arguments].concat());
        assert_eq!(ran.status, 3, "{ran:?}");
        assert!(
            lost.iter().all(|words| ran.stderr.contains(words)),
            "{ran:?}"
        );
        let is_told = |who: &str| ran.stdout.contains(who) || ran.stderr.contains(who);
        let each = is_told("rank 0:") && is_told("rank 2:");
        assert!(each || is_told("ranks 0,2:"), "{ran:?}");
    }
    // The last sums are shown for a moment.
    let top = [&all[..], &["top", "--once", "--for", "100ms"]].concat();
    wait_until("nothing is traced any more", || {
        let sampled = ask(&top);
        assert_eq!(sampled.status, 0, "{sampled:?}");
        assert!(sampled.stderr.contains(lost[0]), "{sampled:?}");
        sampled
            .stdout
            .starts_with("no traced call was recorded: by ")
    });
    let Machine {
        agent,
        sandbox,
        ranks,
    } = far;
    drop(agent);
    for arguments in [
        ["memory", "off"].as_slice(),
        &["trace", "--list", "--json"],
        &["leak", "--for", "10ms"],
    ] {
        let ran = ask(arguments);
        assert_eq!(ran.status, 3, "{ran:?}");
        let down = format!("cannot reach an agent at {far_name}");
        assert!(
            ran.stderr.contains(&down) || ran.stdout.contains(&down),
            "{ran:?}"
        );
        let is_told = ran.stdout.contains("rank 0:") || ran.stdout.contains("\"rank\": 0");
        assert!(is_told, "{ran:?}");
    }
    assert_eq!(first.end().stderr, [""; 0]);
    drop((ranks, sandbox));
}
