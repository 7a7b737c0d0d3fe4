//! Files that never end, readers that have gone, captures that are none: commands end, quietly and alike.

use std::fs;
use std::io::PipeWriter;
use std::path::Path;
use std::process::{Command, Stdio};

use probing_testkit::{CommandResult, Python, every_python};

use super::rows::{End, ROWS};
use super::{Hostile, piped};
use crate::sandbox;

/// Files that never end, that nobody writes to, or that have no end of data are neither read nor waited for.
#[test]
fn files_that_hold_no_source_keep_nobody_waiting() {
    every_python(|python| {
        let sandbox = sandbox();
        let [pipe, source] = ["pipe", "real.py"].map(|name| sandbox.path().join(name));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        fs::write(&source, "def through():\n    call()  # that is the line\n").unwrap();
        let target = sandbox
            .target(python, "odd_files.py")
            .arg("/proc/kmsg")
            .arg("/dev/zero")
            .arg("/dev/tty")
            .arg(&pipe)
            .arg(&source)
            .env("PROBING", "1")
            .start();
        let pid = target.pid().to_string();
        let shown = sandbox.probing(["-t", &pid, "backtrace"]);
        assert!(
            shown.ok().contains("call()  # that is the line"),
            "{shown:?}"
        );
        assert!(
            shown.ok().contains("File \"/proc/kmsg\", line 2"),
            "{shown:?}"
        );
        let capture = sandbox.path().join("odd.probe");
        let taken = sandbox.probing(["-t", &pid, "capture", "-o", capture.to_str().unwrap()]);
        assert_eq!(taken.status, 0, "{taken:?}");
    });
}

/// Nobody reads it any more: that is no error, whatever is being printed.
#[test]
fn a_reader_that_has_gone_ends_every_command_quietly() {
    let hostile = Hostile::start(Python::all().last().unwrap());
    let of = Some(hostile.pid.as_str());
    let many = "SELECT * FROM generate_series(1, 300000)";
    let ways: [(&str, Option<&str>, &[&str]); 17] = [
        ("list", None, &[]),
        ("list", None, &["--json"]),
        ("backtrace", of, &["--all", "--locals"]),
        ("backtrace", of, &["--all", "--json"]),
        ("backtrace", of, &["--tasks"]),
        ("backtrace", of, &["--all", "--dump", "3", "--every", "0.1"]),
        ("query", of, &["SELECT * FROM python.backtrace"]),
        ("query", of, &["SELECT * FROM python.backtrace", "--json"]),
        ("query", of, &["SELECT * FROM python.backtrace", "--csv"]),
        ("query", of, &["SELECT * FROM python.backtrace", "--arrow"]),
        ("query", of, &[many]),
        ("query", of, &[many, "--json"]),
        ("query", of, &[many, "--csv"]),
        ("eval", of, &["print(value)"]),
        ("eval", of, &["odd"]),
        ("flamegraph", of, &["--for", "0.2", "--idle", "-o", "-"]),
        ("completions", None, &["bash"]),
    ];
    for (name, of, arguments) in ways {
        let ran = unread(hostile.command(name, of, arguments), Stdio::piped());
        let is_quiet = !ran.stderr.contains("error") && !ran.stderr.contains("panicked");
        assert!(ran.status == 0 && is_quiet, "{name} {arguments:?}: {ran:?}");
        // As with `2>&1 | head`.
        let ran = unread(hostile.command(name, of, arguments), gone().into());
        assert_eq!(ran.status, 0, "{name} {arguments:?}: {ran:?}");
    }
    // What went wrong is in the status, also when nobody can be told.
    let none = hostile.command("backtrace", Some("999999999"), &[]);
    assert_eq!(unread(none, gone().into()).status, 3);
}

/// A pipe that nobody reads.
fn gone() -> PipeWriter {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer
}

/// Runs a command whose output nobody reads.
fn unread(mut command: Command, stderr: Stdio) -> CommandResult {
    let command = command.stdin(Stdio::null()).stdout(gone()).stderr(stderr);
    CommandResult::finished(command.spawn().unwrap())
}

/// One that was not copied to its end, and others.
#[test]
fn a_bad_capture_ends_every_command_alike() {
    let hostile = Hostile::start(Python::all().last().unwrap());
    let of = Some(hostile.pid.as_str());
    let whole = hostile.command("capture", of, &["-o", "whole.probe"]);
    assert_eq!(CommandResult::to_the_end(whole).status, 0);
    let folder = Path::new(&hostile.folder);
    let bytes = fs::read(folder.join("whole.probe")).unwrap();
    let half = &bytes[..bytes.len() / 2];
    for (file, bytes) in [
        ("empty.probe", &b""[..]),
        ("text.probe", b"no zip"),
        ("half.probe", half),
    ] {
        fs::write(folder.join(file), bytes).unwrap();
        for (name, needs_target, ways) in ROWS {
            let (end, _, arguments) = ways[0];
            // What serves a program tells it in a line; those without a target have none to read.
            if !*needs_target || end == End::Interrupt {
                continue;
            }
            let ran = piped(hostile.command(name, Some(file), arguments), end);
            assert_eq!(ran.status, 3, "-t {file} {name}: {ran:?}");
        }
    }
}
