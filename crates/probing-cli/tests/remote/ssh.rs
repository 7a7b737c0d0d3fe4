//! `-t ssh://user@host/PID`: the same over a login, with nothing that listens.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use probing_testkit::{CommandResult, Sandbox, every_python};
use serde_json::json;

use crate::agent::Agent;
use crate::sandbox;

/// What SSH does, without a network: the command runs in a shell of the other machine, which is `there`.
const SSH: &str = r#"#!/bin/sh
echo "$@" >> "$THERE/ssh.log"
while [ "$1" != -- ]; do shift; done
[ "$2" = me@node7 ] || { echo "Could not resolve hostname $2" >&2; exit 255; }
PROBING_DIR=$THERE_DIR PATH=$THERE:$PATH exec sh -c "$3"
"#;

/// A command on `here`, for which `there` is another machine that has the command.
fn command(here: &Sandbox, there: &Sandbox, arguments: &[&str]) -> Command {
    let program = here.command().get_program().to_owned();
    let bin = there.path().join("bin");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("ssh"), SSH).unwrap();
        fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink(&program, bin.join("probing")).unwrap();
    }
    let own = here.command();
    let mut command = Command::new("sh");
    command.args(["-c", "PATH=$THERE:$PATH exec \"$0\" \"$@\""]);
    command.arg(&program).args(arguments);
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .env("THERE", &bin)
        .env("THERE_DIR", there.runtime_dir())
        .env_remove("PROBING_TOKEN");
    command
}

#[test]
fn a_process_is_asked_over_ssh_and_nothing_listens() {
    every_python(|python| {
        let (here, there) = (sandbox(), sandbox());
        let target = there.probed(python, "idle.py");
        let name = format!("ssh://me@node7:2222/{}", target.pid());
        let ask = |arguments: &[&str]| {
            let arguments = [&["-t", name.as_str()], arguments].concat();
            CommandResult::to_the_end(command(&here, &there, &arguments))
        };
        assert_eq!(ask(&["eval", "print('out'); 6 * 7"]).ok(), "out\n42\n");
        assert_eq!(ask(&["eval", "1 / 0"]).status, 1);
        assert!(ask(&["backtrace"]).ok().contains("tests/targets/idle.py"));
        let sql = "SELECT func FROM python.backtrace WHERE main AND depth = 0";
        let rows = ask(&["query", "--json", sql]);
        assert_eq!(rows.json(), json!([{"func": "<module>"}]), "{rows:?}");
        let all = ["-t", "ssh://me@node7", "list", "--json"];
        let listed = CommandResult::to_the_end(command(&here, &there, &all)).json();
        assert_eq!(listed[0]["pid"], target.pid(), "{listed}");
        let mut repl = here
            .target_command(command(&here, &there, &["-t", &name, "repl"]))
            .start_without_waiting();
        repl.say("21 * 2");
        assert_eq!(repl.line(), "42");
        assert_eq!(repl.end().status, 0);
        // No agent has said that it listens; what was done is written down all the same.
        let agents = fs::read_dir(there.runtime_dir().join("agents")).unwrap();
        let names: Vec<_> = agents.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["audit.log"]);
        let lines = Agent::audit(&there);
        assert_eq!(lines[0]["from"], "standard input");
        assert_eq!(lines[0]["code"], "print('out'); 6 * 7");
        let log = fs::read_to_string(there.path().join("bin/ssh.log")).unwrap();
        assert!(log.starts_with("-T -p 2222 "), "{log}");
        let nowhere = ["-t", "ssh://you@elsewhere/1", "eval", "1"];
        let refused = CommandResult::to_the_end(command(&here, &there, &nowhere));
        assert_eq!(refused.status, 3);
        assert!(
            refused.stderr.contains("Could not resolve hostname")
                && refused
                    .stderr
                    .contains("error: no agent could be started over ssh://you@elsewhere")
                && refused.stderr.contains("\nhint: SSH must let you in"),
            "{refused:?}"
        );
        assert_eq!(target.end().stderr, Vec::<String>::new());
    });
}
