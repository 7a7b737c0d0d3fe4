//! `probing list`: what can be looked at.

use std::time::Instant;

use probing_testkit::{Sandbox, every_python};
use serde_json::Value;

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
    assert_eq!(head.trim(), "PID RANK PYTHON PROBE AGE COMMAND");
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
    let ran = probing_testkit::Ran::to_the_end(command);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
}
