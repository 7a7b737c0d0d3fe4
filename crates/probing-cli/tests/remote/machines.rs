//! Two machines for real: each with its own network, joined by a cable.
#![expect(clippy::print_stderr, reason = "says what was left out")]

use std::process::Command;

use probing_testkit::{CommandResult, Sandbox, every_python};
use serde_json::json;

use crate::agent::Agent;
use crate::sandbox;

/// Two network namespaces with an address each, gone with this.
struct Machines {
    names: [String; 2],
}

fn ip(arguments: &str) -> bool {
    let ran = Command::new("ip").args(arguments.split(' ')).output();
    ran.is_ok_and(|ran| ran.status.success())
}

impl Machines {
    /// None where that is not permitted.
    fn start(number: usize) -> Option<Self> {
        let machines = Self {
            names: ["a", "b"].map(|name| format!("p{}-{number}{name}", std::process::id())),
        };
        let [one, other] = &machines.names;
        let cable = format!("p{}", std::process::id() % 10_000_000 * 10 + number as u32);
        let made = ip(&format!("netns add {one}"))
            && ip(&format!("netns add {other}"))
            && ip(&format!(
                "link add {cable}a netns {one} type veth peer name {cable}b netns {other}"
            ))
            && ip(&format!("-n {one} addr add {ONE}/24 dev {cable}a"))
            && ip(&format!("-n {other} addr add {OTHER}/24 dev {cable}b"))
            && ip(&format!("-n {one} link set lo up"))
            && ip(&format!("-n {one} link set {cable}a up"))
            && ip(&format!("-n {other} link set {cable}b up"));
        made.then_some(machines)
    }

    /// The same command on the first machine, or on the second.
    fn on(&self, machine: usize, command: &Command) -> Command {
        let mut there = Command::new("ip");
        there.args(["netns", "exec", &self.names[machine]]);
        there.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => there.env(name, value),
                None => there.env_remove(name),
            };
        }
        there
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

const ONE: &str = "10.213.7.1";
const OTHER: &str = "10.213.7.2";

/// A command on the second machine, about the agent on the first.
fn from_the_other(
    machines: &Machines,
    (here, agent): (&Sandbox, &Agent),
    arguments: &[&str],
) -> CommandResult {
    let mut command = here.command();
    let endpoint = format!("{ONE}:{}", agent.address.port());
    command.args(["-t", &endpoint]).args(arguments);
    command.env("XDG_STATE_HOME", here.path().join("state"));
    command.env("PROBING_TOKEN", &agent.token);
    command.env("PROBING_ACCEPT_NEW", "1");
    CommandResult::to_the_end(machines.on(1, &command))
}

#[test]
fn one_machine_looks_into_the_other() {
    let number = std::sync::atomic::AtomicUsize::new(0);
    every_python(|python| {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let Some(machines) = Machines::start(number) else {
            eprintln!("left out: network namespaces are not permitted here");
            return;
        };
        let (here, there) = (sandbox(), sandbox());
        let target = there.probed(python, "idle.py");
        let listen = |arguments: &[&str]| {
            Agent::with(&there, arguments, |command| {
                *command = machines.on(0, command);
            })
        };
        let agent = listen(&["--listen", "0"]);
        let ask = |arguments: &[&str]| from_the_other(&machines, (&here, &agent), arguments);
        let first = ask(&["eval", "6 * 7"]);
        assert_eq!(
            (first.status, first.stdout.as_str()),
            (0, "42\n"),
            "{first:?}"
        );
        assert!(ask(&["backtrace"]).ok().contains("tests/targets/idle.py"));
        let sql = "SELECT func FROM python.backtrace WHERE main AND depth = 0";
        assert_eq!(
            ask(&["query", "--json", sql]).json(),
            json!([{"func": "<module>"}])
        );
        let mut repl = here.command();
        repl.args(["-t", &format!("{ONE}:{}", agent.address.port()), "repl"]);
        repl.env("XDG_STATE_HOME", here.path().join("state"))
            .env("PROBING_TOKEN", &agent.token);
        // The agent is known by now.
        let mut repl = here
            .target_command(machines.on(1, &repl))
            .start_without_waiting();
        repl.say("21 * 2");
        assert_eq!(repl.line(), "42");
        assert_eq!(repl.end().status, 0);
        let from = Agent::audit(&there)[0]["from"].as_str().unwrap().to_owned();
        assert!(from.starts_with(&format!("{OTHER}:")), "{from}");
        // The other's address is not among those that may.
        let closed = listen(&["--listen", "0", "--allow", "10.213.8.0/24"]);
        let refused = from_the_other(&machines, (&here, &closed), &["eval", "noticed = True"]);
        assert_eq!(refused.status, 3);
        assert!(
            refused.stderr.contains("refuses this address"),
            "{refused:?}"
        );
        // Nor does anything but a loopback address come without TLS.
        let local = listen(&["--listen", "127.0.0.1:0"]);
        let unreachable = from_the_other(&machines, (&here, &local), &["list"]);
        assert_eq!(unreachable.status, 3);
        assert!(
            unreachable
                .stderr
                .contains("cannot reach an agent at 10.213.7.1:"),
            "{unreachable:?}"
        );
        assert_eq!(target.end().stderr, Vec::<String>::new());
    });
}
