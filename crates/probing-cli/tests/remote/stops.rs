//! Breakpoints and stopped threads of another machine, and what is written down of who moved them.

use std::io::Write as _;
use std::process::Stdio;

use probing_testkit::{CommandResult, every_python, wait_until};
use serde_json::Value;

use crate::agent::Agent;
use crate::sandbox;

#[test]
fn a_thread_is_stopped_stepped_and_released_through_its_agent_and_that_is_written_down() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let agent = Agent::start(&sandbox);
        let ask = |arguments: &[&str]| agent.probing(&sandbox, arguments);
        let armed = ask(&["break", "add_up", "--once"]);
        assert!(armed.ok().contains(": breakpoint 1: add_up"), "{armed:?}");
        target.say("3");
        wait_until("it has stopped", || {
            ask(&["stops"]).stdout.contains("in add_up")
        });
        let released = ask(&["resume", "all"]);
        assert!(
            released.ok().contains(": stop 1: MainThread resumed"),
            "{released:?}"
        );
        assert_eq!(target.line(), "total 6");
        // Debug registers are set by who is there.
        let refused = ask(&["watch", "--addr", "0x7f0000000000"]);
        assert!(
            refused.stderr.contains("hint: run `probing watch` there"),
            "{refused:?}"
        );

        let mut debug = agent.command(&sandbox, ["debug", "add_up"]);
        let pipes = debug.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut debugger = pipes.stderr(Stdio::piped()).spawn().unwrap();
        wait_until("it is armed", || {
            ask(&["breakpoints"]).stdout.contains("breakpoint 2: ")
        });
        target.say("2");
        let mut commands = debugger.stdin.take().unwrap();
        commands.write_all(b"p count\nn\nq\n").unwrap();
        drop(commands);
        let ran = CommandResult::finished(debugger);
        assert!(ran.status == 0 && ran.stdout.contains("\n2\n"), "{ran:?}");
        assert_eq!(target.line(), "total 2");

        let lines = Agent::audit(&sandbox);
        let actions: Vec<&Value> = lines.iter().map(|line| &line["action"]).collect();
        let [first, second, rest @ ..] = actions.as_slice() else {
            panic!("{lines:?}")
        };
        assert_eq!([*first, *second], ["arm", "release"], "{lines:?}");
        assert!(
            lines[0]["code"].as_str().unwrap().contains("add_up"),
            "{lines:?}"
        );
        for action in ["arm", "eval", "step"] {
            assert!(rest.iter().any(|noted| *noted == action), "{lines:?}");
        }
        assert!(lines.iter().all(|line| line["pid"] == target.pid()));
        assert_eq!(target.end().stderr, Vec::<String>::new());
    });
}
