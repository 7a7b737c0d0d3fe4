//! What cannot be done is said, in time, with its reason; and it is not done later.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use probing_attach::{AttachError, Options, Strategy, Unsupported};
use probing_proto::process::Pid;

use crate::target::{Target, eventually, on_every_python, pythons};

#[test]
fn a_held_gil_refuses_in_time_and_nothing_runs_late() {
    on_every_python(|python| {
        let mut target = Target::start(python, "gil_held", &[]);
        let started = Instant::now();
        let result = target.run_within(
            "import sys; sys.late = 1",
            Duration::from_millis(150),
            false,
        );
        assert!(
            matches!(result, Err(AttachError::Busy { .. })),
            "{target}: {result:?}"
        );
        assert!(started.elapsed() < Duration::from_millis(600), "{target}");
        assert!(result.unwrap_err().hint().is_some());
        target.wait_for("released");
        assert_eq!(target.eval("hasattr(sys, 'late')"), "False", "{target}");
        target.assert_unharmed();
        eventually(&format!("{target}: no block stays"), || {
            target.blocks() == 0
        });
    });
}

#[test]
fn force_runs_in_the_thread_that_holds_the_gil() {
    on_every_python(|python| {
        let mut target = Target::start(python, "gil_held", &[]);
        let report = target
            .run_within(
                "import sys; sys.forced = 1",
                Duration::from_millis(400),
                true,
            )
            .unwrap();
        assert_eq!(report.strategy, Strategy::Hijack, "{target}");
        target.wait_for("released");
        assert_eq!(target.eval("sys.forced"), "1", "{target}");
        eventually(&format!("{target}: no block stays"), || {
            target.blocks() == 0
        });
    });
}

#[test]
fn a_stopped_target_stays_stopped() {
    on_every_python(|python| {
        let mut target = Target::start(python, "sleep", &[]);
        target.signal("-STOP");
        eventually("stopped", || target.is_stopped());
        let result = target.run("pass");
        assert!(
            matches!(result, Err(AttachError::Stopped { .. })),
            "{target}: {result:?}"
        );
        assert!(target.is_stopped(), "{target}");
        target
            .run_within("import sys; sys.forced = 1", Duration::from_secs(2), true)
            .unwrap();
        eventually("stopped again", || target.is_stopped());
        target.signal("-CONT");
        eventually("goes on", || !target.is_stopped());
        assert_eq!(target.eval("sys.forced"), "1", "{target}");
        target.assert_unharmed();
    });
}

#[test]
fn a_traced_target_names_its_tracer() {
    on_every_python(|python| {
        let target = Target::start(python, "sleep", &[]);
        let tracer = Target::start(python, "tracer", &[&target.pid.to_string()]);
        match target.run("pass") {
            Err(AttachError::AlreadyTraced { tracer: named, .. }) => {
                assert_eq!(named, tracer.pid, "{target}");
            }
            other => panic!("{target}: {other:?}"),
        }
        drop(tracer);
        target.count_up_to(1);
    });
}

#[test]
fn what_the_source_raises_comes_back() {
    on_every_python(|python| {
        for state in ["sleep", "tight_loop"] {
            let mut target = Target::start(python, state, &[]);
            for (source, message) in [
                ("x = 1\n1/0", "ZeroDivisionError: division by zero (line 2)"),
                ("raise SystemExit(3)", "SystemExit: 3 (line 1)"),
                ("raise KeyboardInterrupt", "KeyboardInterrupt:  (line 1)"),
                ("raise ValueError('ü' * 9000)", "ValueError: üüü"),
                ("def", "SyntaxError: "),
                (
                    "x = '\0'",
                    "ValueError: source code string cannot contain null bytes",
                ),
            ] {
                match target.run(source) {
                    Err(AttachError::Raised { message: found, .. }) => {
                        // The last one is a SyntaxError since 3.12.
                        let null = found.contains("null bytes");
                        assert!(found.starts_with(message) || null, "{target}: {found}");
                    }
                    other => panic!("{target}: {source:?}: {other:?}"),
                }
            }
            target.assert_unharmed();
        }
    });
}

#[test]
fn what_is_no_python_is_refused() {
    let mut sleep = Command::new("sleep")
        .arg("60")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let result = probing_attach::run(Pid(sleep.id()), "pass", &Options::default());
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    assert!(
        matches!(result, Err(AttachError::NotPython { .. })),
        "{result:?}"
    );
    let gone = probing_attach::run(Pid(sleep.id()), "pass", &Options::default());
    assert!(
        matches!(gone, Err(AttachError::NoSuchProcess { .. })),
        "{gone:?}"
    );
}

#[test]
fn an_old_python_is_refused_by_its_version() {
    let Some(home) = std::env::home_dir() else {
        return;
    };
    let Some(old) = std::fs::read_dir(home.join(".pyenv/versions"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin/python")))
        .find(|path| path.to_string_lossy().contains("/3.9."))
    else {
        return;
    };
    let target = Target::start(&old, "sleep", &[]);
    let result = target.run("pass");
    let Err(AttachError::NotSupported { what, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(what, Unsupported::OldPython { version: (3, 9) });
}

#[test]
fn several_at_once_all_get_in() {
    on_every_python(|python| {
        for state in ["sleep", "tight_loop", "hundred_threads"] {
            let mut target = Target::start(python, state, &[]);
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..3 {
                            target
                                .run("import sys; sys.n = getattr(sys, 'n', 0)")
                                .unwrap();
                        }
                    });
                }
            });
            target.assert_unharmed();
        }
    });
}

#[test]
fn a_target_without_memory_is_left_alone() {
    on_every_python(|python| {
        let mut target = Target::start(python, "no_memory", &[]);
        target.settle();
        let result = target.run("pass");
        assert!(
            matches!(result, Err(AttachError::Io { .. })),
            "{target}: {result:?}"
        );
        target.assert_unharmed();
        assert_eq!(target.blocks(), 0, "{target}");
    });
}

#[test]
fn source_that_takes_too_long_is_left_to_end() {
    on_every_python(|python| {
        let target = Target::start(python, "sleep", &[]);
        target.settle();
        let source = "import sys, time; time.sleep(0.5); sys.ended = 1";
        let result = target.run_within(source, Duration::from_millis(100), false);
        assert!(
            matches!(result, Err(AttachError::Unfinished { .. })),
            "{target}: {result:?}"
        );
        eventually("it ends", || target.eval("getattr(sys, 'ended', 0)") == "1");
        eventually(&format!("{target}: no block stays"), || {
            target.blocks() == 0
        });
    });
}

#[test]
fn a_source_that_is_too_long_is_refused() {
    let target = Target::start(&pythons()[0], "sleep", &[]);
    let result = target.run(&" ".repeat(2 << 20));
    assert!(
        matches!(result, Err(AttachError::SourceTooLong { .. })),
        "{result:?}"
    );
    target
        .run(&format!("x = '{}'", "y".repeat(1_000_000)))
        .unwrap();
}
