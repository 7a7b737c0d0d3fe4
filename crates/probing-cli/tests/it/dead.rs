//! What is left of a process that has ended: its rows, until somebody sweeps them.
#![expect(clippy::print_stderr, reason = "says what was left out")]

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use probing_testkit::{Python, Sandbox, Target, every_python, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::recording::{outcome, rings, run, told};
use crate::{sandbox, scrubbed};

const KILLS: u64 = 200;

/// A target that has recorded two rows, and been killed.
fn killed(sandbox: &Sandbox, python: &Python) -> u32 {
    let mut target = sandbox
        .target(python, "recording.py")
        .env("RANK", "3")
        .start();
    run(&mut target, "probing.record('t', n=1)");
    run(&mut target, "probing.record('t', n=2)");
    let pid = target.pid();
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    target.wait();
    pid
}

fn dead(sandbox: &Sandbox) -> Vec<Value> {
    let json = sandbox.probing(["list", "--dead", "--json"]).json();
    json.as_array().unwrap().clone()
}

#[test]
fn a_killed_process_is_listed_with_what_it_recorded() {
    every_python(|python| {
        let sandbox = sandbox();
        let pid = killed(&sandbox, python);
        let living = sandbox.probed(python, "idle.py");
        let json = dead(&sandbox);
        assert_eq!(json.len(), 1, "{json:?}");
        let process = &json[0];
        assert_eq!(
            (&process["pid"], &process["rank"]),
            (&pid.into(), &3.into())
        );
        let version = format!("3.{}.", python.version.1);
        assert!(process["python"].as_str().unwrap().starts_with(&version));
        assert_eq!(
            process["tables"].to_string(),
            r#"[{"name":"user.t","rows":2}]"#
        );
        assert!(process["bytes"].as_u64().unwrap() > 4096);
        assert!(
            process["command"][1]
                .as_str()
                .unwrap()
                .ends_with("recording.py")
        );

        let shown = sandbox.probing(["list", "--dead"]);
        let lines: Vec<String> = shown.ok().lines().map(scrubbed).collect();
        assert_eq!(
            lines[0].trim_start(),
            "PID RANK PYTHON LAST ROW SIZE TABLES COMMAND"
        );
        assert!(
            lines[1].contains(" N.N.N Ns N.N KB user.t (N) "),
            "{lines:?}"
        );
        assert!(lines[1].ends_with("recording.py"), "{lines:?}");
        // A look at the living does not sweep it.
        sandbox.probing(["list"]).ok();
        assert_eq!(told(&sandbox, pid, "user.t"), ["n i64", "1", "2"]);
        drop(living);
    });
}

#[test]
fn nobody_dead_is_said_in_words() {
    let sandbox = sandbox();
    let ran = sandbox.probing(["list", "--dead"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, ""));
    assert_eq!(ran.stderr, "no ended process has recorded rows here\n");
    assert_eq!(dead(&sandbox), Vec::<Value>::new());
    let ran = sandbox.probing(["clean"]);
    assert_eq!(ran.stderr, "no ended process has recorded rows to remove\n");
}

#[test]
fn clean_removes_what_the_dead_recorded_and_nothing_of_the_living() {
    every_python(|python| {
        let sandbox = sandbox();
        let pid = killed(&sandbox, python);
        let rings_of_the_dead = rings(&sandbox, pid);
        let mut living = sandbox.target(python, "recording.py").start();
        run(&mut living, "probing.record('t', n=1)");
        living.stop();

        let dry = sandbox.probing(["clean", "--dry-run"]);
        assert!(
            dry.stdout
                .starts_with(&format!("would remove {pid}: 2 rows, ")),
            "{dry:?}"
        );
        assert!(
            dry.stderr
                .ends_with(" of 1 ended processes would be removed\n"),
            "{dry:?}"
        );
        for kept in [
            &["clean", "--older-than", "3600"][..],
            &["clean", "--keep", "64M"],
            &["clean", "--dry-run", "--json"],
        ] {
            assert_eq!(sandbox.probing(kept).status, 0);
            assert_eq!(
                told(&sandbox, pid, "user.t"),
                ["n i64", "1", "2"],
                "{kept:?}"
            );
        }
        let report = sandbox.probing(["clean", "--json"]).json();
        assert_eq!(report["removed"][0]["pid"], pid);
        assert_eq!(report["removed"].as_array().unwrap().len(), 1);
        assert_eq!(report["dry_run"], false);
        assert_eq!(dead(&sandbox), Vec::<Value>::new());
        assert!(!rings_of_the_dead.exists());
        assert_eq!(sandbox.target_dirs().len(), 1);

        living.signal(Signal::CONT);
        run(&mut living, "probing.record('t', n=2)");
        assert_eq!(told(&sandbox, living.pid(), "user.t"), ["n i64", "1", "2"]);
    });
}

#[test]
fn the_oldest_go_first_when_there_is_too_much() {
    every_python(|python| {
        let sandbox = sandbox();
        let [older, newer] = [killed(&sandbox, python), killed(&sandbox, python)];
        let pids = |sandbox: &Sandbox| -> Vec<Value> {
            dead(sandbox)
                .iter()
                .map(|process| process["pid"].clone())
                .collect()
        };
        assert_eq!(pids(&sandbox), [older, newer]);
        let bytes = dead(&sandbox)[1]["bytes"].as_u64().unwrap();
        let keep = (bytes + bytes / 2).to_string();
        let ran = sandbox.probing(["clean", "--keep", &keep]);
        assert!(
            ran.stdout.starts_with(&format!("removed {older}: ")),
            "{ran:?}"
        );
        assert_eq!(pids(&sandbox), [newer]);
        // All that is left is older than nothing.
        assert_eq!(sandbox.probing(["clean", "--older-than", "0"]).status, 0);
        assert_eq!(pids(&sandbox), Vec::<Value>::new());
    });
}

/// What a sweep that was killed half-way may leave: any part of the rings, with or without the process's folder.
#[test]
fn what_a_sweep_left_half_done_is_swept_by_the_next() {
    every_python(|python| {
        let sandbox = sandbox();
        let pid = killed(&sandbox, python);
        let folder = rings(&sandbox, pid);
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "ring") {
                fs::remove_file(path).unwrap();
                break;
            }
        }
        assert_eq!(dead(&sandbox)[0]["tables"].to_string(), "[]");
        assert_eq!(sandbox.probing(["clean"]).status, 0);
        assert!(!folder.exists());
        assert_eq!(sandbox.target_dirs(), Vec::<String>::new());

        // The rings are gone, the link to them is not.
        let pid = killed(&sandbox, python);
        fs::remove_dir_all(rings(&sandbox, pid)).unwrap();
        assert_eq!(dead(&sandbox), Vec::<Value>::new());
        assert_eq!(sandbox.target_dirs().len(), 1);
    });
}

/// In the words of the store's promise: every committed row is there, none is torn, at most the one in flight is missing.
#[test]
fn a_recorder_that_is_killed_loses_at_most_the_row_in_flight() {
    let python = Python::all().pop().unwrap();
    let sandbox = sandbox();
    let mut target = sandbox.target(&python, "recording_kills.py").start();
    let witness = sandbox.path().join("witness");
    let mut total = 0;
    for kill in 0..KILLS {
        File::create(&witness).unwrap().set_len(8).unwrap();
        target.say(witness.to_str().unwrap());
        let pid: u32 = target.line().parse().unwrap();
        // Any moment will do, and each time another.
        thread::sleep(Duration::from_micros(kill * 7919 % 3000));
        kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
        assert_eq!(target.line(), "over");
        let noted: u64 = noted(&witness);
        let lines = told(&sandbox, pid, "user.t");
        assert_eq!(lines[0], "a i64, b f64, c text, d bool, e i64");
        for (n, line) in lines[1..].iter().enumerate() {
            let odd = if n % 3 == 2 {
                "-".to_owned()
            } else {
                n.to_string()
            };
            let text = format!("\"a text of row {n}, too long to be inline\"");
            assert_eq!(*line, format!("{n}, {n}, {text}, {}, {odd}", n % 2 == 0));
        }
        let there = lines.len() as u64 - 1;
        assert!(
            there == noted || there == noted + 1,
            "{there} rows, {noted} noted"
        );
        total += there;
        fs::remove_dir_all(rings(&sandbox, pid)).unwrap();
    }
    assert!(total > KILLS, "{total} rows in all");
}

fn noted(witness: &Path) -> u64 {
    let bytes = fs::read(witness).unwrap();
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// A program that sees a `/dev/shm` of this size of its own; `None` where we may not make one.
fn with_little_memory(sandbox: &Sandbox, python: &Python, size: &str) -> Option<Target> {
    let mut probe = Command::new("unshare");
    probe.args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
    if !probe.output().is_ok_and(|output| output.status.success()) {
        eprintln!("left out: a /dev/shm of our own; run the tests as root");
        return None;
    }
    let mut command = Command::new("unshare");
    let script = format!("mount -t tmpfs -o size={size} tmpfs /dev/shm && exec \"$0\" \"$@\"");
    command.args(["--mount", "sh", "-c", &script]);
    command.arg(&python.path);
    command.arg(probing_testkit::root().join("tests/targets/recording.py"));
    Some(sandbox.target_command(command).start())
}

#[test]
fn without_room_rows_are_kept_in_the_process_and_everybody_is_told() {
    every_python(|python| {
        let sandbox = sandbox();
        let Some(mut target) = with_little_memory(&sandbox, python, "64k") else {
            return;
        };
        run(
            &mut target,
            "exec('for i in range(20_000): probing.record(\"t\", n=i, s=str(i) * 10)')",
        );
        run(
            &mut target,
            "assert storage().startswith('heap: the memory that may be used'), storage()",
        );
        let listed = sandbox.probing(["list"]);
        let pid = target.pid().to_string();
        let row = listed.ok().lines().find(|line| line.contains(&pid));
        assert!(row.unwrap().contains("  none (heap only)  "), "{row:?}");
        let json = sandbox.probing(["list", "--json"]).json();
        let of_target = |process: &&Value| process["pid"] == target.pid();
        let process = json.as_array().unwrap().iter().find(of_target).unwrap();
        assert_eq!(process["recording"]["kind"], "heap");
        let reason = process["recording"]["reason"].as_str().unwrap();
        let words = "the memory that may be used for recording is used up (";
        assert!(reason.starts_with(words), "{reason}");
        assert_eq!(target.end().status, 0);
    });
}

/// Where others fill what the program has been promised nothing of: a sparse file would be a SIGBUS here.
#[test]
fn a_full_dev_shm_does_not_hurt_a_program_that_records() {
    every_python(|python| {
        let sandbox = sandbox();
        let Some(mut target) = with_little_memory(&sandbox, python, "2m") else {
            return;
        };
        run(&mut target, "probing.record('t', n=-1)");
        run(&mut target, "assert storage() == 'shared', storage()");
        run(
            &mut target,
            "fill = open('/dev/shm/fill', 'wb', buffering=0)",
        );
        let full = outcome(&mut target, "exec('while True: fill.write(bytes(4096))')");
        assert_eq!(full, "OSError: [Errno 28] No space left on device");
        run(
            &mut target,
            "exec('for i in range(20_000): probing.record(\"t\", n=i)')",
        );
        run(
            &mut target,
            "exec('for i in range(20_000): probing.record(\"u\", n=i, s=str(i) * 10)')",
        );
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn rings_whose_process_has_no_folder_any_more_are_swept() {
    every_python(|python| {
        let sandbox = sandbox();
        let pid = killed(&sandbox, python);
        let folder = rings(&sandbox, pid);
        // As `/tmp` is cleaned behind our back. The folder is as old as it must be.
        fs::remove_dir_all(sandbox.runtime_dir()).unwrap();
        let long_ago = std::time::SystemTime::now() - Duration::from_hours(1);
        File::open(&folder).unwrap().set_modified(long_ago).unwrap();
        wait_until("the rings are gone", || {
            sandbox.probing(["list", "--json"]).ok();
            !folder.exists()
        });
    });
}
