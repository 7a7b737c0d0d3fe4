//! `probing list`: what can be looked at.

use std::fs;
use std::process::Command;
use std::time::Instant;

use probing_testkit::{Sandbox, every_python, root, wait_until};
use serde_json::{Value, json};

use crate::{sandbox, scrubbed};

/// The element of `list --json` about a process.
fn listed(sandbox: &Sandbox, pid: u32) -> Value {
    let json = sandbox.probing(["list", "--json"]).json();
    let processes = json.as_array().unwrap();
    processes
        .iter()
        .find(|process| process["pid"] == pid)
        .cloned()
        .unwrap_or(Value::Null)
}

#[test]
fn a_probed_process_is_shown_with_what_is_known_of_it() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox
            .target(python, "idle.py")
            .env("PROBING", "1")
            .env("RANK", "3")
            .start();
        let row = sandbox.probing(["list"]);
        let row = row
            .ok()
            .lines()
            .find(|line| line.contains(&target.pid().to_string()))
            .unwrap();
        let columns: Vec<&str> = row.split_whitespace().collect();
        let (pid, version) = (target.pid().to_string(), format!("3.{}.", python.version.1));
        assert_eq!(
            (columns[0], columns[1], columns[3]),
            (pid.as_str(), "3", "running"),
            "{row}"
        );
        assert!(columns[2].starts_with(&version), "{row}");
        assert!(row.ends_with("idle.py"), "{row}");

        let json = listed(&sandbox, target.pid());
        assert_eq!(
            (&json["rank"], &json["probe"], &json["stopped"]),
            (&3.into(), &"running".into(), &false.into())
        );
        assert!(
            json["command"][1]
                .as_str()
                .unwrap()
                .ends_with("tests/targets/idle.py")
        );
        assert!(json["age_seconds"].as_u64().unwrap() < 600);
    });
}

#[test]
fn a_process_without_a_probe_is_shown_as_such() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox
            .target(python, "idle.py")
            .env("SLURM_PROCID", "5")
            .start();
        let json = listed(&sandbox, target.pid());
        assert_eq!((&json["probe"], &json["rank"]), (&"none".into(), &5.into()));
        assert_eq!(json["python"], format!("3.{}", python.version.1));
    });
}

#[test]
fn stopped_processes_delay_nobody() {
    every_python(|python| {
        let sandbox = sandbox();
        let targets = [0; 3].map(|_| sandbox.probed(python, "idle.py"));
        targets[0].stop();
        targets[1].stop();
        let before = Instant::now();
        let json = listed(&sandbox, targets[0].pid());
        assert!(
            before.elapsed().as_secs() < 20,
            "the list waits for stopped processes"
        );
        assert_eq!(
            (&json["probe"], &json["stopped"]),
            (&"silent".into(), &true.into())
        );
        assert_eq!(listed(&sandbox, targets[2].pid())["probe"], "running");
        assert!(sandbox.probing(["list"]).ok().contains("silent (stopped)"));
        targets[0].signal(rustix::process::Signal::CONT);
        assert_eq!(sandbox.eval(&targets[0], "loss").ok(), "0.25\n");
    });
}

#[test]
fn what_the_dead_left_is_swept() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "idle.py");
        let other = sandbox.probed(python, "idle.py");
        target.signal(rustix::process::Signal::KILL);
        probing_testkit::wait_until("the target is dead", || !target.lives());
        assert_eq!(sandbox.target_dirs().len(), 2);
        sandbox.probing(["list"]).ok();
        let left = sandbox.target_dirs();
        assert_eq!(left.len(), 1);
        assert!(left[0].starts_with(&other.pid().to_string()), "{left:?}");
    });
}

#[test]
fn the_table_has_a_head() {
    let sandbox = sandbox();
    let python = probing_testkit::Python::all().remove(0);
    let _target = sandbox.probed(&python, "idle.py");
    let table = sandbox.probing(["list"]);
    let head = scrubbed(table.ok().lines().next().unwrap());
    assert_eq!(head.trim(), "PID RANK PYTHON PROBE AGE ROLE COMMAND");
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let sandbox = sandbox();
    let script = format!(
        "set -o pipefail; {} list --json | true",
        env!("CARGO_BIN_EXE_probing")
    );
    let mut command = std::process::Command::new("bash");
    command
        .args(["-c", &script])
        .env("PROBING_DIR", sandbox.runtime_dir());
    let ran = probing_testkit::CommandResult::to_the_end(command);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
}

/// A launcher has the name of the program among its arguments; so has a child that was forked.
#[test]
fn launchers_workers_and_children_are_marked_and_a_launcher_is_not_meant_by_the_programs_name() {
    every_python(|python| {
        let sandbox = sandbox();
        let launcher = sandbox.path().join("torchrun");
        fs::copy(root().join("tests/targets/launcher.py"), &launcher).unwrap();
        let mut command = Command::new(&python.path);
        let program = root().join("tests/targets/launched.py");
        command.arg(launcher).arg(program);
        let mut target = sandbox.target_command(command).start_without_waiting();
        let said = target.line();
        let pids: Vec<u32> = said.split(' ').map(|pid| pid.parse().unwrap()).collect();
        let [program, child, worker] = pids[..] else {
            panic!("{said}")
        };
        let roles = [
            (target.pid(), json!("launcher")),
            (program, Value::Null),
            (child, json!("child")),
            (worker, json!("worker")),
        ];
        for (pid, role) in roles {
            assert_eq!(listed(&sandbox, pid)["role"], role, "{pid}: {said}");
        }
        let shown = sandbox.probing(["list"]);
        let pid = target.pid().to_string();
        let mut rows = shown.ok().lines();
        let row = rows.find(|line| line.trim_start().starts_with(&pid));
        assert!(row.unwrap().contains("  launcher  "), "{shown:?}");

        let named = sandbox.probing(["-t", "launched.py", "backtrace"]);
        assert_eq!(named.status, 3, "{named:?}");
        let expected = "error: 2 Python processes are named launched.py:\n";
        assert!(named.stderr.starts_with(expected), "{named:?}");
        assert!(!named.stderr.contains("torchrun"), "{named:?}");
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn only_the_named_targets_are_listed() {
    every_python(|python| {
        let sandbox = sandbox();
        let (one, _other) = (
            sandbox.target(python, "idle.py").start(),
            sandbox.target(python, "idle.py").start(),
        );
        let pid = one.pid().to_string();
        let json = sandbox.probing(["-t", &pid, "list", "--json"]).json();
        let pids: Vec<&Value> = json
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["pid"])
            .collect();
        assert_eq!(pids, [one.pid()]);
        let none = sandbox.probing(["-t", "no-such-program.py", "list"]);
        assert_ne!(none.status, 0, "{none:?}");
    });
}

#[test]
fn a_rank_is_no_child_whoever_started_it() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let start = |variables: &str| {
            // They end with the target, whose pipes they read.
            let code = format!(
                "import os, subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE, env={{**os.environ, {variables}}}).pid"
            );
            let pid = sandbox.eval(&target, &code).ok().trim().parse().unwrap();
            wait_until("it is a Python", || !listed(&sandbox, pid).is_null());
            listed(&sandbox, pid)
        };
        let rank = start("'RANK': '5', 'WORLD_SIZE': '8'");
        assert_eq!((&rank["rank"], &rank["role"]), (&json!(5), &Value::Null));
        assert_eq!(start("")["role"], "child");
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn ranks_that_no_process_has_are_named_beside_the_list() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "idle.py").env("RANK", "3").start();
        let pid = target.pid().to_string();
        for more in [&[][..], &["--json"]] {
            let arguments = [&["-t", &pid, "--ranks", "3,7", "list"], more].concat();
            let ran = sandbox.probing(arguments);
            assert_eq!(ran.status, 3, "{ran:?}");
            let missing = "rank 7: no process here has it\n";
            assert!(ran.stderr.starts_with(missing), "{ran:?}");
            assert!(ran.stdout.contains(&pid), "{ran:?}");
        }
    });
}
