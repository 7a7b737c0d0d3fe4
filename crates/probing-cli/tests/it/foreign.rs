//! Rows that a probe of another version has recorded: they are not read, and every command says so.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use probing_testkit::{CommandResult, Python, Sandbox, Target, every_python};
use serde_json::json;

use crate::recording::{rings, run};
use crate::sandbox;

/// Where a ring says what format it is in.
const FORMAT_AT: u64 = 8;
const OTHER: u32 = 3;
const HINT: &str =
    "hint: use the version of `probing` that the target was started with, or restart the target";

fn words(table: &str) -> String {
    format!("rows of {table} are in format {OTHER}, which this version does not read")
}

fn ring_of(sandbox: &Sandbox, pid: u32, table: &str) -> PathBuf {
    let entries = fs::read_dir(rings(sandbox, pid)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_str().unwrap().ends_with(&format!("-{table}.ring")));
    assert_eq!(paths.len(), 1, "{paths:?}");
    paths.remove(0)
}

/// Makes a ring one of another version.
fn is_foreign(path: &PathBuf) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_at(&OTHER.to_le_bytes(), FORMAT_AT).unwrap();
}

/// A target that has recorded two tables, one of them in another format.
fn recorded(sandbox: &Sandbox, python: &Python) -> Target {
    let mut target = sandbox.target(python, "recording.py").start();
    run(&mut target, "probing.record('train', step=1)");
    run(&mut target, "probing.record('loss', value=0.5)");
    is_foreign(&ring_of(sandbox, target.pid(), "user.train"));
    target
}

/// The same for tables that only a training has: what is in them is not read in any case.
fn has_too(sandbox: &Sandbox, pid: u32, table: &str) {
    let path = ring_of(sandbox, pid, "user.train");
    fs::copy(&path, path.with_file_name(format!("9000-{table}.ring"))).unwrap();
}

fn check_refused(ran: &CommandResult, table: &str) {
    assert_eq!((ran.status, ran.stdout.as_str()), (3, ""), "{ran:?}");
    let told = format!("error: {}\n{HINT}\n", words(table));
    assert!(ran.stderr.ends_with(&told), "{ran:?}");
}

#[test]
fn rows_of_another_version_are_said_to_be_there_and_others_are_read() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = recorded(&sandbox, python);
        let pid = target.pid().to_string();
        let query = |sql: &str| sandbox.probing(["-t", &pid, "query", "--csv", sql]);
        check_refused(&query("SELECT step FROM user.train"), "user.train");
        // The other table is not affected, nor is anything else.
        let ran = query("SELECT value FROM user.loss");
        assert_eq!((ran.status, ran.stdout.as_str()), (0, "value\n0.5\n"));
        assert!(!ran.stderr.contains("format"), "{ran:?}");
        let ran = query(
            "SELECT table_name, \"rows\" FROM probing.tables WHERE table_name LIKE 'user.%' ORDER BY 1",
        );
        assert_eq!(ran.stdout, "table_name,rows\nuser.loss,1\nuser.train,\n");
        // A table that a newer ring goes on with is read as far as it can be.
        run(&mut target, "probing.record('train', step=2, more='x')");
        let ran = query("SELECT step FROM user.train");
        assert_eq!((ran.status, ran.stdout.as_str()), (0, "step\n2\n"));
        let warning = format!("warning: pid {pid}: {}\n  {HINT}\n", words("user.train"));
        assert!(ran.stderr.contains(&warning), "{ran:?}");
    });
}

#[test]
fn of_several_targets_those_of_another_version_are_named() {
    every_python(|python| {
        let sandbox = sandbox();
        let older = recorded(&sandbox, python);
        let mut newer = sandbox.target(python, "recording.py").start();
        run(&mut newer, "probing.record('train', step=7)");
        let (older, newer) = (older.pid().to_string(), newer.pid().to_string());
        let sql = "SELECT step FROM user.train";
        let ran = sandbox.probing(["-t", &older, "-t", &newer, "query", "--csv", sql]);
        assert_eq!((ran.status, ran.stdout.as_str()), (0, "step\n7\n"));
        let warning = format!("warning: pid {older}: {}\n  {HINT}\n", words("user.train"));
        assert!(ran.stderr.contains(&warning), "{ran:?}");
    });
}

#[test]
fn every_command_that_reads_rows_says_that_they_are_of_another_version() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = recorded(&sandbox, python);
        let pid = target.pid().to_string();
        for table in ["python.collectives", "python.tensors", "python.trace_stats"] {
            has_too(&sandbox, target.pid(), table);
        }
        let of = |arguments: &[&str]| {
            let target = ["-t", pid.as_str()];
            sandbox.probing(target.iter().chain(arguments))
        };
        check_refused(&of(&["collectives"]), "python.collectives");
        check_refused(&of(&["watch-nan", "--recorded"]), "python.tensors");
        // What can be had without rows is.
        let top = of(&["top", "--once", "--for", "0.1"]);
        assert_eq!(top.status, 0, "{top:?}");
        let why = words("python.trace_stats");
        assert!(top.stdout.starts_with(&why), "{top:?}");

        let folder = sandbox.path().join("exported");
        let export = of(&["export", "--parquet", folder.to_str().unwrap()]);
        let exported = export.stdout.contains("user.loss.parquet: 1 row");
        assert!(export.status == 0 && exported, "{export:?}");
        for table in ["user.train", "python.collectives", "python.tensors"] {
            let warning = format!("warning: {}\n{HINT}\n", words(table));
            assert!(export.stderr.contains(&warning), "{export:?}");
        }

        let file = sandbox.path().join("one.probe");
        let capture = of(&["capture", "-o", file.to_str().unwrap(), "--json"]);
        let missing = capture.json()[0]["capture"]["missing"].to_string();
        for table in ["user.train", "python.collectives", "python.tensors"] {
            assert!(missing.contains(&words(table)), "{missing}");
        }
    });
}

#[test]
fn rows_of_another_version_are_listed_among_the_dead_and_can_be_removed() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = recorded(&sandbox, python);
        let pid = target.pid();
        target.end();
        let told = words("user.train");
        let dead = sandbox.probing(["list", "--dead", "--json"]).json();
        assert_eq!(dead[0]["tables"], json!([{"name": "user.loss", "rows": 1}]));
        assert_eq!(dead[0]["unreadable"][0]["name"], "user.train");
        assert_eq!(dead[0]["unreadable"][0]["error"], told.as_str());
        let ran = sandbox.probing(["list", "--dead"]);
        let listed = ran.stdout.contains("user.loss (1), user.train (?)");
        assert!(ran.status == 0 && listed, "{ran:?}");
        assert_eq!(
            ran.stderr,
            format!("warning: process {pid}: {told}\n  {HINT}\n")
        );
        let sql = "SELECT * FROM user.train";
        let ran = sandbox.probing(["-t", &pid.to_string(), "query", sql]);
        check_refused(&ran, "user.train");
        assert_eq!(sandbox.probing(["clean"]).status, 0);
        assert_eq!(sandbox.target_dirs(), Vec::<String>::new());
    });
}
