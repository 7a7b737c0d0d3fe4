//! Reaching a process that nobody prepared: what the user sees, and what is left afterwards.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use probing_testkit::{CommandResult, Python, Sandbox, Target, every_python, root, wait_until};

use crate::{sandbox, scrubbed};

/// The base interpreter: it has nothing of ours installed.
fn bare(python: &Python) -> PathBuf {
    let printed = python
        .run(["-c", "import sys; print(sys._base_executable)"])
        .output()
        .unwrap();
    PathBuf::from(String::from_utf8(printed.stdout).unwrap().trim())
}

fn unprepared(sandbox: &Sandbox, python: &Python, program: &str) -> Target {
    let mut command = Command::new(bare(python));
    command.arg(root().join("tests/targets").join(program));
    sandbox.target_command(command).start()
}

/// Names of the mappings of a process that are ours, or that nobody can name.
fn strange_mappings(target: &Target) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", target.pid())).unwrap();
    let executable_without_file = |line: &&str| {
        let mut words = line.split_ascii_whitespace();
        words
            .nth(1)
            .is_some_and(|permissions| permissions.contains('x'))
            && words.nth(3).is_none()
    };
    maps.lines()
        .filter(executable_without_file)
        .map(str::to_owned)
        .collect()
}

#[test]
fn any_command_brings_the_probe_in_and_says_so() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = unprepared(&sandbox, python, "idle.py");
        let ran = sandbox.eval(&target, "loss");
        assert_eq!((ran.status, ran.stdout.as_str()), (0, "0.25\n"), "{ran:?}");
        let said = scrubbed(&ran.stderr);
        assert!(said.starts_with("attached to N (Python N.N.N, "), "{ran:?}");
        assert!(said.ends_with(", paused N.N ms)\n"), "{ran:?}");
        // The second time it is there.
        assert_eq!(sandbox.eval(&target, "loss").ok(), "0.25\n");
        let ended = target.end();
        assert_eq!(
            (ended.status, ended.stdout, ended.stderr),
            (0, vec![], vec![])
        );
        assert_eq!(sandbox.target_dirs(), [""; 0]);
    });
}

#[test]
fn attach_tells_how_it_went_in_json() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = unprepared(&sandbox, python, "idle.py");
        let attach = || {
            sandbox
                .probing(["-t", &target.pid().to_string(), "attach", "--json"])
                .json()
        };
        let first = attach();
        assert!(
            ["new thread", "pending call", "remote exec"]
                .contains(&first["strategy"].as_str().unwrap()),
            "{first}"
        );
        assert!(first["took_seconds"].as_f64().unwrap() > 0.0);
        assert!(first["paused_seconds"].as_f64().unwrap() < 5.0);
        assert!(
            first["python"]
                .as_str()
                .unwrap()
                .starts_with(&format!("3.{}.", python.version.1))
        );
        assert!(attach()["strategy"].is_null());
    });
}

#[test]
fn the_program_finds_its_names_paths_and_variables_as_they_were() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = unprepared(&sandbox, python, "commands.py");
        let state = "(list(sys.path), dict(os.environ), sorted(globals()), sys.stdout, threading.active_count(), \
                      signal.getsignal(signal.SIGINT), sys.getrecursionlimit(), sys.gettrace(), sys.getprofile())";
        target.say("import os, sys, threading, signal; before = None");
        assert_eq!(target.line(), "done");
        target.say(&format!("line = None; before = {state}"));
        assert_eq!(target.line(), "done");
        assert_eq!(
            sandbox
                .probing(["-t", &target.pid().to_string(), "attach"])
                .status,
            0
        );
        target.say(&format!("line = None; print(before == {state})"));
        assert_eq!(target.line(), "True");
        target.say("print([name for name in sys.modules if 'probing' in name])");
        assert_eq!(
            (target.line(), target.line()),
            ("done".into(), "['probing._probe']".into())
        );
    });
}

#[test]
fn detach_after_attach_leaves_no_thread_no_file_no_memory_of_ours() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = unprepared(&sandbox, python, "idle.py");
        let before = (
            target.usage().threads,
            target.usage().open_files,
            strange_mappings(&target),
        );
        let pid = target.pid().to_string();
        for _ in 0..3 {
            assert_eq!(sandbox.probing(["-t", &pid, "attach"]).status, 0);
            assert_eq!(sandbox.probing(["-t", &pid, "detach"]).status, 0);
            assert_eq!(sandbox.target_dirs(), [""; 0]);
            wait_until("nothing is left", || {
                let usage = target.usage();
                (usage.threads, usage.open_files, strange_mappings(&target)) == before
            });
        }
    });
}

#[test]
fn signals_of_children_that_evaluated_code_starts_are_not_blocked() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = unprepared(&sandbox, python, "idle.py");
        assert_eq!(
            sandbox
                .probing(["-t", &target.pid().to_string(), "attach"])
                .status,
            0
        );
        let code = "import subprocess; subprocess.run(['grep', 'SigBlk', '/proc/self/status'], capture_output=True).stdout";
        assert_eq!(
            sandbox.eval(&target, code).ok(),
            "b'SigBlk:\\t0000000000000000\\n'\n"
        );
    });
}

#[test]
fn threading_that_evaluated_code_imports_first_knows_the_main_thread() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = unprepared(&sandbox, python, "commands.py");
        assert_eq!(
            sandbox
                .probing(["-t", &target.pid().to_string(), "attach"])
                .status,
            0
        );
        let code = "import threading; threading.current_thread() is threading.main_thread()";
        assert_eq!(sandbox.eval(&target, code).ok(), "False\n");
        target.say("print(threading.current_thread() is threading.main_thread(), threading.active_count())");
        assert_eq!(target.line(), "True 1");
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, vec![]));
    });
}

#[test]
fn two_commands_may_attach_at_the_same_time() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = unprepared(&sandbox, python, "idle.py");
        let start = || {
            let mut command = sandbox.command();
            command.args(["-t", &target.pid().to_string(), "eval", "loss"]);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let commands = [start(), start(), start()];
        for command in commands {
            let ran = CommandResult::finished(command);
            assert_eq!((ran.status, ran.stdout.as_str()), (0, "0.25\n"), "{ran:?}");
        }
        wait_until("one probe is left", || target.usage().threads == 2);
    });
}

#[test]
fn a_gil_that_is_held_in_c_is_told_and_nothing_runs_late() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = unprepared(&sandbox, python, "holds_gil.py");
        target.say("hold");
        assert_eq!(target.line(), "holding");
        let ran = sandbox.probing([
            "-t",
            &target.pid().to_string(),
            "attach",
            "--timeout",
            "0.5",
        ]);
        assert_eq!(ran.status, 3, "{ran:?}");
        assert!(
            scrubbed(&ran.stderr)
                .starts_with("error: could not run Python in process N within N ms: "),
            "{ran:?}"
        );
        target.say("release");
        assert_eq!(target.line(), "released");
        wait_until("the thread that came too late has gone", || {
            target.usage().threads == 1
        });
        assert_eq!(target.end().status, 0);
        assert_eq!(sandbox.target_dirs(), [""; 0]);
    });
}

#[test]
fn the_thread_that_holds_the_gil_is_named_and_where_it_is() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = unprepared(&sandbox, python, "attach/worker_holds_gil.py");
        let worker = target.line();
        let pid = target.pid().to_string();
        let ran = sandbox.probing(["-t", &pid, "attach", "--timeout", "0.5"]);
        assert_eq!(ran.status, 3, "{ran:?}");
        let holder = format!("; thread {worker} (Thread-1 (hold)) holds the GIL in hold (");
        assert!(ran.stderr.contains(&holder), "{ran:?}");
        assert!(ran.stderr.contains("worker_holds_gil.py:12)\n"), "{ran:?}");
        target.say("");
        assert_eq!(target.line(), "released");
    });
}

#[test]
fn a_stopped_process_is_left_stopped_and_forced_only_when_asked() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = unprepared(&sandbox, python, "idle.py");
        target.stop();
        let ran = sandbox.eval(&target, "loss");
        assert_eq!(ran.status, 3);
        insta::assert_snapshot!(scrubbed(&ran.stderr), @r"
        error: process is stopped: N
        hint: resume it (`kill -CONT N`), or attach to the stopped process with --force
        ");
        assert_eq!(target.state(), 'T');
        target.signal(rustix::process::Signal::CONT);
        assert_eq!(sandbox.eval(&target, "loss").stdout, "0.25\n");
    });
}

#[test]
fn a_process_that_another_debugger_holds_is_named_with_its_holder() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = unprepared(&sandbox, python, "idle.py");
        let tracer = sandbox
            .target(python, "traces.py")
            .arg(target.pid().to_string())
            .start();
        let ran = sandbox.eval(&target, "loss");
        assert_eq!(ran.status, 3);
        let expected = format!(
            "error: process {} is already traced by process: {}\n",
            target.pid(),
            tracer.pid()
        );
        assert!(ran.stderr.starts_with(&expected), "{ran:?}");
        assert_eq!(tracer.end().status, 0);
        assert_eq!(sandbox.eval(&target, "loss").stdout, "0.25\n");
    });
}

#[test]
fn root_reaches_a_process_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let sandbox = sandbox();
    std::fs::set_permissions(sandbox.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let program = sandbox.path().join("idle.py");
    std::fs::copy(root().join("tests/targets/idle.py"), &program).unwrap();
    let Some(system) = system_python() else {
        return;
    };
    let mut command = Command::new(system);
    command.arg(&program).uid(65534).gid(65534);
    let target = sandbox.target_command(command).start();
    let ran = sandbox.eval(&target, "loss");
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "0.25\n"), "{ran:?}");
    let pid = target.pid().to_string();
    assert_eq!(sandbox.probing(["-t", &pid, "detach"]).status, 0);
    assert_eq!(sandbox.target_dirs(), [""; 0]);
}

#[test]
fn a_filter_that_nobody_may_read_is_left_alone() {
    let (true, Some(system)) = (rustix::process::geteuid().is_root(), system_python()) else {
        return;
    };
    let sandbox = sandbox();
    let folder = sandbox.path();
    let copied = |from: &Path| {
        let to = folder.join(from.file_name().unwrap());
        std::fs::copy(from, &to).unwrap();
        to
    };
    let program = copied(&root().join("tests/targets/attach/filtered.py"));
    let command = copied(Path::new(env!("CARGO_BIN_EXE_probing")));
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).unwrap();
    let mut python = Command::new(system);
    python.arg(&program).arg("deadly").uid(65534).gid(65534);
    let target = sandbox.target_command(python).start();
    let pid = target.pid().to_string();
    let mut nobody = Command::new(&command);
    nobody
        .env("PROBING_DIR", folder.join("nobodys"))
        .env("PROBING_PACKAGE", root().join("python"));
    nobody.args(["-t", &pid, "attach"]).uid(65534).gid(65534);
    let refused = CommandResult::to_the_end(nobody);
    assert_eq!(refused.status, 3, "{refused:?}");
    insta::assert_snapshot!(scrubbed(&refused.stderr), @"
    error: cannot attach to process N: it has a filter of system calls (seccomp) that may kill it, and that only root can read
    hint: let root attach (sudo), or start the program with PROBING=N; if the filter only answers errors, --force is safe
    ");
    assert_eq!(sandbox.eval(&target, "1").status, 3);
    assert!(Path::new(&format!("/proc/{pid}/exe")).exists());
}

/// An interpreter that `nobody` may read, if this machine has one that is new enough.
pub(crate) fn system_python() -> Option<&'static str> {
    let is_supported = |python: &&str| {
        let check = "import sys; sys.exit(sys.version_info < (3, 10))";
        let status = Command::new(python).args(["-c", check]).status();
        status.is_ok_and(|status| status.success())
    };
    let system = ["/usr/bin/python3", "/usr/local/bin/python3"].into_iter();
    { system }.find(is_supported)
}

#[test]
fn a_process_in_a_container_is_reached_and_left_clean() {
    // A user, mount and pid namespace of its own, with its own /tmp: what containers are made of.
    let unshare = [
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ];
    let may = Command::new("unshare").args(unshare).arg("true").status();
    if !may.is_ok_and(|status| status.success()) {
        return;
    }
    every_python(|python| {
        let sandbox = sandbox();
        let inside = format!(
            "mount -t tmpfs none /mnt && exec {} {}",
            bare(python).display(),
            root().join("tests/targets/idle.py").display()
        );
        let mut command = Command::new("unshare");
        command.args(unshare).args(["sh", "-c", &inside]);
        let parent = sandbox
            .target_command(command)
            .env("PROBING_DIR", "/mnt/run")
            .start();
        let pid = child_of(parent.pid());
        let ran = sandbox.probing(["-t", &pid, "eval", "import os; os.getpid(), loss"]);
        assert_eq!(
            (ran.status, ran.stdout.as_str()),
            (0, "(1, 0.25)\n"),
            "{ran:?}"
        );
        let said = format!("attached to {pid} (1 in its container) (Python ");
        assert!(ran.stderr.starts_with(&said), "{ran:?}");
        let folder = format!("/proc/{pid}/root/mnt/run");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        assert!(!Path::new("/mnt/run").exists());
        let left = sandbox.probing(["-t", &pid, "detach"]);
        let said = format!("detached from {pid} (1 in its container)\n");
        assert_eq!((left.status, left.stderr), (0, said));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    });
}

fn child_of(pid: u32) -> String {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().to_owned()
}
