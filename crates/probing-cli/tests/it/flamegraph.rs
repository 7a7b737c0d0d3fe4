//! `probing flamegraph`: where a process spends its time.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;

use probing_testkit::{CommandResult, Python, Sandbox, Target, Terminal, every_python, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{sandbox, scrubbed};

/// Runs `probing -t PID flamegraph --for 0.5 …`.
fn flamegraph(sandbox: &Sandbox, target: &Target, options: &[&str]) -> CommandResult {
    let pid = target.pid().to_string();
    let words = ["-t", &pid, "flamegraph", "--for", "0.5"];
    sandbox.probing(words.iter().chain(options))
}

/// Starts a target and waits until all of its threads but the main one sleep.
fn at_work(sandbox: &Sandbox, python: &Python) -> Target {
    let target = sandbox.target(python, "flames.py").start();
    let pid = target.pid().to_string();
    wait_until("the others sleep", || {
        let stacks = sandbox.probing(["-t", &pid, "backtrace", "--all", "--json"]);
        let stacks = stacks.json();
        let others = &stacks["threads"].as_array().unwrap()[1..];
        others.len() == 2
            && others
                .iter()
                .all(|thread| thread["state"] == "futex" || thread["state"] == "read")
            && others.iter().all(|thread| thread["gil"] == "free")
    });
    target
}

/// Stacks and how often each was seen.
fn folded(ran: &CommandResult) -> Vec<(String, u64)> {
    assert_eq!(ran.status, 0, "{ran:?}");
    let line = |line: &str| {
        let (stack, seen) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), seen.parse().unwrap())
    };
    ran.stdout.lines().map(line).collect()
}

/// `0 missed` in a summary.
fn told(ran: &CommandResult, what: &str) -> u64 {
    let (before, _) = ran.stderr.split_once(&format!(" {what}")).unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Starts an endless sampling on a terminal and returns when it has begun.
fn endless(sandbox: &Sandbox, target: &Target, file: &PathBuf) -> Terminal {
    let mut command = sandbox.command();
    command
        .args(["-t", &target.pid().to_string(), "flamegraph"])
        .args(["--for", "3600", "-o"])
        .arg(file);
    let terminal = Terminal::start(command);
    // After the first reading.
    terminal.wait_for("sampling ");
    terminal
}

#[test]
fn what_runs_is_counted_and_what_sleeps_only_when_asked() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = at_work(&sandbox, python);
        let ran = flamegraph(&sandbox, &target, &["--format", "folded", "-o", "-"]);
        let hot = "<module> (flames.py:N);work (flames.py:N);hot (flames.py:N)";
        let stacks = folded(&ran);
        assert!(
            stacks.iter().any(|(stack, _)| scrubbed(stack) == hot),
            "{stacks:?}"
        );
        // Every stack is a part of that, at most.
        for (stack, _) in &stacks {
            let stack = scrubbed(stack);
            let seen = stack.replace(";[changed during the read]", "");
            assert!(hot.starts_with(&seen), "{stacks:?}");
        }
        // No beat is lost without a word: 50 in half a second.
        let (taken, missed) = (told(&ran, "samples"), told(&ran, "missed"));
        assert_eq!(taken + missed + told(&ran, "failed"), 50, "{ran:?}");
        assert!(stacks.iter().map(|(_, seen)| seen).sum::<u64>() <= taken);

        let idle = [
            "--idle",
            "--thread",
            "sleeper",
            "--threads",
            "--functions",
            "--format",
            "folded",
            "-o",
            "-",
        ];
        let ran = flamegraph(&sandbox, &target, &idle);
        let stacks = folded(&ran);
        let [(stack, seen)] = &stacks[..] else {
            panic!("{stacks:?}")
        };
        assert_eq!(*seen, told(&ran, "samples"));
        assert!(
            scrubbed(stack).starts_with("sleeper (N);") && stack.contains(";sleep (flames.py);"),
            "{stack}"
        );
        assert_eq!(sandbox.target_dirs(), [""; 0]);
    });
}

#[test]
fn a_picture_and_a_file_for_speedscope_are_written() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "flames.py").start();
        let folder = TempDir::new().unwrap();
        let svg = folder.path().join("out.svg");
        fs::write(&svg, "what was there before").unwrap();
        let ran = flamegraph(&sandbox, &target, &["-o", svg.to_str().unwrap()]);
        assert_eq!((ran.status, ran.stdout.as_str()), (0, ""), "{ran:?}");
        let summary = scrubbed(&ran.stderr.replace(folder.path().to_str().unwrap(), ""));
        assert_eq!(
            summary,
            "/out.svg: N samples in N.N s, N missed, N failed; N of N stacks torn; sampling used N.N % of a core\n"
        );
        let picture = fs::read_to_string(&svg).unwrap();
        assert!(picture.starts_with("<?xml") && picture.trim_end().ends_with("</svg>"));
        assert!(picture.contains("hot (flames.py:"), "{picture}");

        let json = folder.path().join("out.json");
        let ran = flamegraph(
            &sandbox,
            &target,
            &["--pause", "-o", json.to_str().unwrap()],
        );
        assert_eq!((ran.status, told(&ran, "of")), (0, 0), "{ran:?}");
        let file: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        let frames = file["shared"]["frames"].as_array().unwrap();
        let profile = &file["profiles"][0];
        let (samples, weights) = (&profile["samples"], profile["weights"].as_array().unwrap());
        assert_eq!(samples.as_array().unwrap().len(), weights.len());
        for stack in samples.as_array().unwrap() {
            let outermost = stack[0].as_u64().unwrap() as usize;
            assert_eq!(frames[outermost]["name"], "<module>");
        }
        let total: f64 = weights.iter().map(|weight| weight.as_f64().unwrap()).sum();
        assert!((total - profile["endValue"].as_f64().unwrap()).abs() < 1e-6);
        // Nothing else is left in the folder.
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    });
}

#[test]
fn ctrl_c_ends_the_sampling_and_the_file_is_written() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "flames.py").start();
        let folder = TempDir::new().unwrap();
        let svg = folder.path().join("out.svg");
        let terminal = endless(&sandbox, &target, &svg);
        terminal.signal(Signal::INT);
        let (status, shown) = terminal.finish();
        assert_eq!(status, 0, "{shown}");
        assert!(shown.contains("(stopped early)"), "{shown}");
        assert!(fs::read_to_string(&svg).unwrap().contains("flames.py"));
        assert_eq!(target.end().stderr, [""; 0]);
    });
}

#[test]
fn a_target_that_ends_leaves_what_was_seen_of_it() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "flames.py").start();
        let folder = TempDir::new().unwrap();
        let svg = folder.path().join("out.svg");
        let terminal = endless(&sandbox, &target, &svg);
        target.end();
        let (status, shown) = terminal.finish();
        assert_eq!(status, 0, "{shown}");
        assert!(shown.contains("(the process ended)"), "{shown}");
        assert!(fs::read_to_string(&svg).unwrap().contains("flames.py"));
    });
}

#[test]
fn what_cannot_be_drawn_is_told() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = at_work(&sandbox, python);
        target.say("rest");
        assert_eq!(target.line(), "resting");
        let check = |options: &[&str], says: &str| {
            let ran = flamegraph(&sandbox, &target, options);
            assert_eq!(ran.status, 1, "{ran:?}");
            assert!(ran.stderr.contains(says), "{ran:?}");
        };
        // It is on its way to sleep when it says so: one thread that surely sleeps.
        check(
            &["--thread", "sleeper", "-o", "-"],
            "error: thread sleeper never ran in ",
        );
        check(
            &["--thread", "nobody", "-o", "-"],
            "error: no thread is named nobody; there are: MainThread (",
        );
        check(&["-o", "out.png"], "error: unknown format of out.png:");
        check(
            &["-o", "/nowhere/out.svg"],
            "error: cannot write /nowhere/out.svg: ",
        );
        check(&["-o", "/"], "error: unknown format of /:");
        check(&["-o", "/", "--format", "svg"], "error: cannot write /: ");
    });
}

#[test]
fn the_file_is_like_any_other() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "flames.py").start();
        let folder = TempDir::new().unwrap();
        let mut command = sandbox.command();
        command
            .args(["-t", &target.pid().to_string(), "flamegraph"])
            .args(["--for", "0.1", "--idle"])
            .current_dir(&folder);
        let ran = CommandResult::to_the_end(command);
        let path = folder
            .path()
            .join(format!("flamegraph-{}.svg", target.pid()));
        let plain = folder.path().join("plain");
        fs::write(&plain, "").unwrap();
        let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain), "{ran:?}");
        // A device is written to, not replaced.
        let ran = flamegraph(
            &sandbox,
            &target,
            &["--idle", "--format", "svg", "-o", "/dev/null"],
        );
        assert_eq!(ran.status, 0, "{ran:?}");
        assert!(
            fs::metadata("/dev/null")
                .unwrap()
                .file_type()
                .is_char_device()
        );
        // What a link points to is replaced, not the link.
        let link = folder.path().join("link.svg");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        fs::write(&path, "before").unwrap();
        let ran = flamegraph(&sandbox, &target, &["--idle", "-o", link.to_str().unwrap()]);
        assert_eq!(ran.status, 0, "{ran:?}");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_ne!(fs::read_to_string(&path).unwrap(), "before");
    });
}

#[test]
fn top_shows_the_line_in_which_a_function_was_seen_most() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "stacks/tight_loop.py").start();
        let pid = target.pid().to_string();
        let top = sandbox.probing(["-t", &pid, "top", "--once", "--for", "0.5"]);
        let shown = top.stdout.split("tight_loop.py:").nth(1);
        let line = shown.and_then(|rest| rest.split(')').next());
        assert!(
            line.is_some_and(|line| line.parse::<u32>().is_ok()),
            "{top:?}"
        );
    });
}
