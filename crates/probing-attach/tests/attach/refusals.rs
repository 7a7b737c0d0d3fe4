//! What cannot be done is said, in time, with its reason; and it is not done later.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use probing_attach::{AttachError, Options, Strategy, Unsupported};
use probing_process::error::ProcessError;
use probing_proto::process::Pid;
use probing_testkit::{Python, Sandbox, every_python, wait_until};
use rustix::process::{Signal, kill_process};

use crate::target::{Target, left_out, library};

/// From its standard input, in C.
fn wait_until_it_reads(target: &Target, thread: &str) {
    let call = format!("{} 0x0 ", libc::SYS_read);
    wait_until(&format!("{target} reads"), || {
        target
            .read(&format!("task/{thread}/syscall"))
            .starts_with(&call)
    });
}

/// Main keeps the GIL inside C until it is told to release it.
fn hold(target: &mut Target) {
    target.program.say("hold");
    assert_eq!(target.program.line(), "holding");
    let main = target.pid.to_string();
    wait_until_it_reads(target, &main);
}

#[test]
fn a_held_gil_refuses_in_time_and_nothing_runs_late() {
    every_python(|python| {
        let mut target = Target::start(python, "../holds_gil", &[]);
        hold(&mut target);
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
        assert!(started.elapsed() < Duration::from_secs(3), "{target}");
        let error = result.unwrap_err();
        assert!(error.hint().is_some());
        let seen = "the GIL was not free, and main is in the system call read";
        assert!(error.to_string().ends_with(seen), "{target}: {error}");
        target.program.say("release");
        assert_eq!(target.program.line(), "released");
        target.settle();
        assert_eq!(target.eval("hasattr(sys, 'late')"), "False", "{target}");
        target.assert_unharmed();
        target.assert_no_block_stays();
    });
}

#[test]
fn a_worker_that_holds_the_gil_refuses_as_main_does() {
    every_python(|python| {
        let mut target = Target::start(python, "worker_holds_gil", &[]);
        let worker = target.program.line();
        wait_until_it_reads(&target, &worker);
        let result = target.run_within("pass", Duration::from_millis(150), false);
        let Err(AttachError::Busy { seen, .. }) = result else {
            panic!("{target}: {result:?}")
        };
        // It waits for the GIL, and wakes up every 5 ms to ask for it.
        let main = ["is in the system call futex", "is running"];
        assert!(
            main.iter().any(|place| seen.ends_with(place)),
            "{target}: {seen}"
        );
        target.program.say("release");
        assert_eq!(target.program.line(), "released");
        target.settle();
        target.count_up_to(1);
        target.assert_no_block_stays();
    });
}

/// The target is in a state that cannot be entered until a line comes.
fn is_refused_then_goes_on(state: &str, is_there: impl Fn(&Target) -> bool) {
    let Some(library) = library() else { return };
    every_python(|python| {
        let mut target = Target::start(python, state, &[library]);
        wait_until(&format!("{target} is there"), || is_there(&target));
        let started = Instant::now();
        let result = target.run_within(
            "import sys; sys.late = 1",
            Duration::from_millis(300),
            false,
        );
        assert!(
            matches!(
                result,
                Err(AttachError::NoThread { .. } | AttachError::Busy { .. })
            ),
            "{target}: {result:?}"
        );
        assert!(started.elapsed() < Duration::from_secs(3), "{target}");
        target.program.say("go on");
        assert_eq!(target.program.line(), "back");
        target.settle();
        assert_eq!(target.eval("hasattr(sys, 'late')"), "False", "{target}");
        target.count_up_to(1);
        target.assert_unharmed();
        target.assert_no_block_stays();
    });
}

#[test]
fn a_thread_that_does_not_stop_is_left_alone() {
    is_refused_then_goes_on("in_vfork", |target| target.program.state() == 'D');
}

#[test]
fn a_full_queue_of_pending_calls_is_left_alone() {
    is_refused_then_goes_on("full_queue", |_| true);
}

/// Main comes by no queued call, so the call is taken out of the queue, and the memory with it.
#[test]
fn a_call_that_main_never_makes_is_taken_back_whole() {
    let Some(library) = library() else { return };
    every_python(|python| {
        let folder = Sandbox::new("");
        let flag = folder.path().join("flag");
        std::fs::write(&flag, [0; 4]).unwrap();
        let mut target = Target::start(python, "spins", &[library, flag.to_str().unwrap()]);
        target.settle();
        let mappings = target.mappings();
        let late = "import sys; sys.late = 1";
        let result = target.run_within(late, Duration::from_millis(300), false);
        assert!(
            matches!(result, Err(AttachError::Busy { .. })),
            "{target}: {result:?}"
        );
        assert_eq!(target.mappings(), mappings, "{target} spins");

        // Now main goes to wait while the call is queued: a thread can be started instead.
        let report = thread::scope(|scope| {
            let deadline = Duration::from_secs(10);
            let options = Options {
                deadline,
                ..Options::default()
            };
            let pid = target.pid;
            let run = move || probing_attach::run(pid, "import sys; sys.ran = 1", &options);
            let attacher = scope.spawn(run);
            wait_until(&format!("a block is in {target}"), || target.blocks() == 1);
            // Without making it shorter first, which would take the memory away.
            let file = OpenOptions::new().write(true).open(&flag).unwrap();
            file.write_all_at(&[1; 4], 0).unwrap();
            attacher.join().unwrap()
        });
        assert_eq!(report.unwrap().strategy, Strategy::NewThread, "{target}");
        assert_eq!(target.blocks(), 0, "{target} waits");
        target.program.say("go on");
        assert_eq!(target.program.line(), "back");
        target.settle();
        assert_eq!(
            target.eval("(hasattr(sys, 'late'), sys.ran)"),
            "(False, 1)",
            "{target}"
        );
        target.assert_unharmed();
        target.assert_no_block_stays();
    });
}

#[test]
fn a_busy_second_interpreter_is_not_mistaken_for_the_first() {
    every_python(|python| {
        let mut target = Target::start(python, "subinterpreter_loop", &[]);
        // Only the first interpreter has this name.
        let source = "import __main__; __main__.second";
        let result = target.run_within(source, Duration::from_millis(300), false);
        let is_right = matches!(
            result,
            Ok(_) | Err(AttachError::Busy { .. } | AttachError::NoThread { .. })
        );
        assert!(is_right, "{target}: {result:?}");
        target.assert_unharmed();
    });
}

#[test]
fn force_runs_in_the_thread_that_holds_the_gil() {
    every_python(|python| {
        let mut target = Target::start(python, "../holds_gil", &[]);
        hold(&mut target);
        let report = target
            .run_within(
                "import sys; sys.forced = 1",
                Duration::from_millis(400),
                true,
            )
            .unwrap();
        assert_eq!(report.strategy, Strategy::Hijack, "{target}");
        target.program.say("release");
        assert_eq!(target.program.line(), "released");
        target.settle();
        assert_eq!(target.eval("sys.forced"), "1", "{target}");
        target.assert_no_block_stays();
    });
}

#[test]
fn a_stopped_target_stays_stopped() {
    every_python(|python| {
        let mut target = Target::start(python, "sleep", &[]);
        target.program.stop();
        let result = target.run("pass");
        assert!(
            matches!(result, Err(AttachError::Stopped { .. })),
            "{target}: {result:?}"
        );
        assert!(target.is_stopped(), "{target}");
        target
            .run_within("import sys; sys.forced = 1", Duration::from_secs(2), true)
            .unwrap();
        wait_until("stopped again", || target.is_stopped());
        target.program.signal(Signal::CONT);
        wait_until("goes on", || !target.is_stopped());
        assert_eq!(target.eval("sys.forced"), "1", "{target}");
        target.assert_unharmed();
    });
}

#[test]
fn a_traced_target_names_its_tracer() {
    every_python(|python| {
        let target = Target::start(python, "sleep", &[]);
        let tracer = Target::start(python, "../traces", &[&target.pid.to_string()]);
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

/// `last_words`: what makes it end, if not an interrupt.
fn is_named_while_it_is_there(tool: &str, arguments: &[&str], last_words: Option<&str>) {
    if Command::new(tool).arg("--version").output().is_err() {
        left_out(&format!("{tool}: it is not installed"));
        return;
    }
    let python = Python::all().pop().unwrap();
    let mut target = Target::start(&python, "sleep", &[]);
    target.settle();
    let mut holder = Command::new(tool)
        .args(arguments)
        .args(["-p", &target.pid.to_string()])
        .env_remove("DEBUGINFOD_URLS")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until(&format!("{tool} holds {target}"), || {
        target.tracer() == Some(holder.id())
    });
    let result = target.run("pass");
    match &result {
        Err(error @ AttachError::AlreadyTraced { tracer, .. }) => {
            assert_eq!(tracer.0, holder.id(), "{target}");
            assert!(error.hint().unwrap().contains(&tracer.to_string()));
        }
        other => panic!("{target} held by {tool}: {other:?}"),
    }
    match last_words {
        Some(words) => {
            let mut input = holder.stdin.take().unwrap();
            input.write_all(words.as_bytes()).unwrap();
        }
        None => kill_process(rustix::process::Pid::from_child(&holder), Signal::INT).unwrap(),
    }
    holder.wait().unwrap();
    target.count_up_to(1);
    target.assert_unharmed();
}

#[test]
fn strace_is_named() {
    is_named_while_it_is_there("strace", &["-o", "/dev/null"], None);
}

#[test]
fn gdb_is_named() {
    is_named_while_it_is_there("gdb", &["-nx", "-q"], Some("detach\nquit\n"));
}

/// It holds its target for the moment of each sample: we wait for our turn.
#[test]
fn beside_py_spy_both_get_what_they_want() {
    let home = std::env::home_dir().unwrap_or_default();
    let ours = home.join(".cache/probing-dev/peers/py-spy/bin/py-spy");
    let is_there = |path: &PathBuf| Command::new(path).arg("--version").output().is_ok();
    let Some(spy) = [PathBuf::from("py-spy"), ours].into_iter().find(is_there) else {
        left_out("py-spy: it is not installed");
        return;
    };
    for state in ["sleep", "python_work"] {
        let mut target = Target::start(&Python::all()[0], state, &[]);
        target.settle();
        let samples = target.folder().join("samples");
        let mut holder = Command::new(&spy)
            .args([
                "record",
                "--rate",
                "200",
                "--duration",
                "600",
                "--format",
                "raw",
            ])
            .args(["--idle", "--pid", &target.pid.to_string(), "--output"])
            .arg(&samples)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until(&format!("py-spy holds {target}"), || {
            target.tracer().is_some()
        });
        for round in 1..=10 {
            target.count_up_to(round);
        }
        kill_process(rustix::process::Pid::from_child(&holder), Signal::INT).unwrap();
        assert!(holder.wait().unwrap().success());
        let samples = std::fs::read_to_string(samples).unwrap();
        assert!(samples.contains(&format!("{state}.py")), "{samples}");
        target.assert_unharmed();
        target.assert_no_block_stays();
    }
}

#[test]
fn a_filter_that_forbids_new_code_is_respected() {
    every_python(|python| {
        for filter in ["new code", "mprotect"] {
            let mut target = Target::start(python, "filtered", &[filter]);
            assert_eq!(target.program.line(), "[0, 0]", "{target}");
            target.settle();
            let error = target.run("pass").unwrap_err();
            let expected = match filter {
                "new code" => {
                    "it may not be given new code (a seccomp filter, or a security module)"
                }
                _ => "cannot make memory writable in process",
            };
            assert!(error.to_string().contains(expected), "{target}: {error}");
            target.assert_unharmed();
            assert_eq!(target.blocks(), 0, "{target}");
        }
    });
}

#[test]
fn a_filter_that_kills_is_left_alone() {
    every_python(|python| {
        let mut target = Target::start(python, "filtered", &["deadly"]);
        assert_eq!(target.program.line(), "[0, 0]", "{target}");
        target.settle();
        let error = target.run("pass").unwrap_err();
        let expected = format!(
            "kills it for one that we need, number: {}",
            libc::SYS_rt_sigpending
        );
        assert!(error.to_string().ends_with(&expected), "{target}: {error}");
        target.assert_unharmed();
    });
}

#[test]
fn what_the_source_raises_comes_back() {
    every_python(|python| {
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
        matches!(
            result,
            Err(AttachError::Process(ProcessError::NotPython { .. }))
        ),
        "{result:?}"
    );
    let gone = probing_attach::run(Pid(sleep.id()), "pass", &Options::default());
    assert!(
        matches!(
            gone,
            Err(AttachError::Process(ProcessError::NoSuchProcess { .. }))
        ),
        "{gone:?}"
    );
}

#[test]
fn an_old_python_is_refused_by_its_version() {
    let versions = std::env::home_dir()
        .unwrap_or_default()
        .join(".pyenv/versions");
    let Some(path) = std::fs::read_dir(versions)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin/python")))
        .find(|path| path.to_string_lossy().contains("/3.9."))
    else {
        left_out("an old Python, because there is no 3.9");
        return;
    };
    let version = (3, 9);
    let target = Target::start(&Python { path, version }, "sleep", &[]);
    let result = target.run("pass");
    let Err(AttachError::NotSupported { what, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(what, Unsupported::OldPython { version: (3, 9) });
}

#[test]
fn several_at_once_all_get_in() {
    every_python(|python| {
        for state in ["sleep", "tight_loop", "hundred_threads"] {
            let mut target = Target::start(python, state, &[]);
            let pid = target.pid;
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..3 {
                            probing_attach::run(pid, "pass", &Options::default()).unwrap();
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
    every_python(|python| {
        for kind in ["AS", "DATA"] {
            let mut target = Target::start(python, "no_memory", &[kind]);
            target.settle();
            let result = target.run("pass");
            assert!(
                matches!(result, Err(AttachError::Process(ProcessError::Io { .. }))),
                "{target}: {result:?}"
            );
            target.assert_unharmed();
            assert_eq!(target.blocks(), 0, "{target}");
        }
    });
}

#[test]
fn a_target_without_free_files_is_entered_and_prints_nothing() {
    every_python(|python| {
        for free in ["0", "1", "2"] {
            let target = Target::start(python, "no_files", &[free]);
            target.settle();
            for _ in 0..3 {
                target.run("pass").unwrap();
            }
            // It may have ended before we hear that the source ran.
            let told = target.run("import __main__ as main; main.goes_on = False");
            let has_run = matches!(
                told,
                Ok(_) | Err(AttachError::Process(ProcessError::Ended { .. }))
            );
            assert!(has_run, "{python:?}: {told:?}");
            let ended = target.program.wait();
            assert_eq!(
                (ended.status, ended.stderr),
                (0, Vec::<String>::new()),
                "{python:?}"
            );
        }
    });
}

#[test]
fn source_that_takes_too_long_is_left_to_end() {
    every_python(|python| {
        let target = Target::start(python, "sleep", &[]);
        target.settle();
        let flag = target.folder().join("end");
        let source = format!(
            "import os, sys, time\nwhile not os.path.exists('{}'): time.sleep(0.01)\nsys.ended = 1",
            flag.display()
        );
        let mut deadline = Duration::from_millis(100);
        let mut result = target.run_within(&source, deadline, false);
        // What did not begin in time never begins, so it can be tried again.
        while matches!(result, Err(AttachError::Busy { .. })) {
            deadline *= 2;
            result = target.run_within(&source, deadline, false);
        }
        assert!(
            matches!(result, Err(AttachError::Unfinished { .. })),
            "{target}: {result:?}"
        );
        std::fs::write(flag, "").unwrap();
        wait_until("it ends", || target.eval("getattr(sys, 'ended', 0)") == "1");
        target.assert_no_block_stays();
    });
}

#[test]
fn a_source_that_is_too_long_is_refused() {
    let target = Target::start(&Python::all()[0], "sleep", &[]);
    let result = target.run(&" ".repeat(2 << 20));
    assert!(
        matches!(result, Err(AttachError::SourceTooLong { .. })),
        "{result:?}"
    );
    target
        .run(&format!("x = '{}'", "y".repeat(1_000_000)))
        .unwrap();
}
