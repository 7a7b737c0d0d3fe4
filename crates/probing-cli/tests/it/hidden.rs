//! Processes that the kernel does not let other processes read.
//!
//! What has a probe is read through it.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use probing_testkit::{CommandResult, Python, Sandbox, Target, every_python, root};

use crate::attach::system_python;
use crate::{sandbox, scrubbed};

fn prepared(sandbox: &Sandbox, python: &Python) -> Target {
    sandbox.probed(python, "hidden.py")
}

fn backtrace(sandbox: &Sandbox, target: &Target, arguments: &[&str]) -> CommandResult {
    let pid = target.pid().to_string();
    let command = ["-t", &pid, "backtrace"];
    sandbox.powerless(command.iter().chain(arguments))
}

/// The one line that says how it was read.
#[track_caller]
fn assert_through_probe(ran: &CommandResult) {
    let [note] = ran.stderr.lines().collect::<Vec<_>>()[..] else {
        panic!("{ran:?}")
    };
    assert!(
        note.starts_with("note: not permitted to read process "),
        "{ran:?}"
    );
    let end = "; read through its probe, which cannot show native frames or hold threads";
    assert!(note.ends_with(end), "{ran:?}");
}

#[track_caller]
fn assert_has(ran: &CommandResult, lines: &[&str]) {
    for line in lines {
        assert!(ran.stdout.contains(line), "{line}: {ran:?}");
    }
}

#[test]
fn what_may_not_be_read_from_outside_is_read_through_its_probe() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = prepared(&sandbox, python);
        let main = backtrace(&sandbox, &target, &["--native"]);
        assert_through_probe(&main);
        let file = root().join("tests/targets/hidden.py");
        let shown = main.stdout.replace(file.to_str().unwrap(), "hidden.py");
        // In what a thread waits is told to few.
        let shown = shown.replace("asleep", "waits in read");
        insta::assert_snapshot!(scrubbed(&shown), @r#"
        Thread MainThread (N), waits in read (most recent call last)
         File "hidden.py", line N, in <module>
         hear("given") # @main-hears
         File "hidden.py", line N, in hear
         line = sys.stdin.readline() # @hear
        "#);

        let all = backtrace(&sandbox, &target, &["--all", "--locals"]);
        assert_through_probe(&all);
        assert_has(
            &all,
            &[
                "Thread MainThread (",
                "Thread waiter (",
                "Thread loop (",
                "      word = 'given'\n      number = 42\n",
                "    event.wait()  # @wait\n      event = <",
            ],
        );
        let waiter = backtrace(&sandbox, &target, &["--thread", "waiter", "--json"]);
        assert_through_probe(&waiter);
        let waiter: serde_json::Value = serde_json::from_str(&waiter.stdout).unwrap();
        assert_eq!(waiter["read"], "probe");
        assert_eq!(waiter["threads"].as_array().unwrap().len(), 1);
        let frames = waiter["threads"][0]["frames"].as_array().unwrap();
        assert!(frames.iter().any(|frame| frame["func"] == "wait"));
        let tasks = backtrace(&sandbox, &target, &["--tasks"]);
        assert_through_probe(&tasks);
        assert_has(&tasks, &["Task-1 (nap), sleeps\n", "# @nap\n"]);
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn many_readings_go_through_the_probe_too() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = prepared(&sandbox, python);
        let dump = backtrace(&sandbox, &target, &["--dump", "2", "--every", "0.01"]);
        assert_through_probe(&dump);
        assert_eq!(dump.stdout.matches("in hear\n").count(), 2, "{dump:?}");
        let pid = target.pid().to_string();
        let flames = ["-t", &pid, "flamegraph", "--for", "0.05", "--idle"];
        let flames = sandbox.powerless(flames.iter().chain(&["--format", "folded", "-o", "-"]));
        assert_has(&flames, &["<module> (hidden.py:"]);
        assert!(flames.stderr.contains("; read through its probe"));
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn a_held_gil_does_not_keep_the_probe_from_telling_stacks() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "hidden.py").env("PROBING", "1");
        let target = target.arg("hold").start();
        let ran = backtrace(&sandbox, &target, &[]);
        assert_through_probe(&ran);
        assert_has(&ran, &["holds the GIL", "in hold_the_gil\n", "# @hold\n"]);
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn without_a_probe_it_is_refused_and_the_way_that_needs_no_right_is_named() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "hidden.py").start();
        let ran = backtrace(&sandbox, &target, &[]);
        assert_eq!((ran.status, ran.stdout.as_str()), (3, ""), "{ran:?}");
        assert!(
            ran.stderr
                .starts_with("error: not permitted to read process "),
            "{ran:?}"
        );
        let way = "; a program that was started with PROBING=1 or `probing run` needs no ptrace";
        assert!(ran.stderr.contains(way), "{ran:?}");
        assert_eq!(sandbox.target_dirs(), [""; 0]);
    });
}

#[test]
fn a_probe_that_cannot_answer_is_told_beside_the_refusal() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = prepared(&sandbox, python);
        target.stop();
        let ran = backtrace(&sandbox, &target, &[]);
        assert_eq!(ran.status, 3, "{ran:?}");
        let said = scrubbed(&ran.stderr);
        let reason = "; and its probe cannot be asked: process is stopped by a signal and cannot answer: N\n\
                      hint: resume it with: kill -CONT N\n";
        assert!(said.ends_with(reason), "{ran:?}");
        assert_eq!(target.state(), 'T');
    });
}

#[test]
fn another_user_hears_that_a_process_asked_to_be_left_alone() {
    let (true, Some(system)) = (rustix::process::geteuid().is_root(), system_python()) else {
        return;
    };
    let sandbox = sandbox();
    let program = sandbox.path().join("hidden.py");
    let command = sandbox.path().join("probing");
    std::fs::copy(root().join("tests/targets/hidden.py"), &program).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_probing"), &command).unwrap();
    std::fs::set_permissions(sandbox.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let mut python = Command::new(system);
    python.arg(&program).uid(65534).gid(65534);
    let target = sandbox.target_command(python).start();
    let pid = target.pid().to_string();
    let ask = || {
        let mut nobody = Command::new(&command);
        nobody.env("PROBING_DIR", sandbox.runtime_dir());
        nobody.args(["-t", &pid, "backtrace"]).uid(65534).gid(65534);
        CommandResult::to_the_end(nobody)
    };
    let refused = ask();
    assert_eq!(refused.status, 3, "{refused:?}");
    insta::assert_snapshot!(scrubbed(&refused.stderr), @"
    error: not permitted to read process N: it is not dumpable (it changed users, or asked to be left alone): Permission denied (os error N)
    hint: run with CAP_SYS_PTRACE, for instance with sudo; a program that was started with PROBING=N or `probing run` needs no ptrace (see docs/permissions.md)
    ");
    // Root brings the probe in; then the user can ask.
    assert_eq!(sandbox.probing(["-t", &pid, "attach"]).status, 0);
    let told = ask();
    assert_through_probe(&told);
    assert_has(&told, &["Thread MainThread (", ", asleep", "in hear\n"]);
}

#[test]
fn a_process_of_another_container_is_read_through_its_socket() {
    let unshare = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let may = Command::new("unshare").args(unshare).arg("true").status();
    if !may.is_ok_and(|status| status.success()) {
        return;
    }
    every_python(|python| {
        let sandbox = sandbox();
        let target = prepared(&sandbox, python);
        let folder = sandbox.target_dirs().remove(0);
        let socket = sandbox.runtime_dir().join(folder).join("probe.sock");
        let socket = format!("unix:{}", socket.display());
        let mut command = Command::new("unshare");
        command.args(unshare).arg(env!("CARGO_BIN_EXE_probing"));
        command.args(["-t", &socket, "backtrace", "--all"]);
        let ran = CommandResult::to_the_end(command);
        assert_eq!(
            ran.stderr,
            "note: the process of this socket is not visible here; read through its probe, \
             which cannot show native frames or hold threads\n"
        );
        let main = format!("Thread MainThread ({})", target.pid());
        assert_has(&ran, &[&main, "Thread waiter (", "in hear\n"]);
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn an_environment_that_may_not_be_read_is_an_error_and_not_empty() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = prepared(&sandbox, python);
        let pid = target.pid().to_string();
        let query = ["-t", &pid, "query", "SELECT name FROM process.envs"];
        let ran = sandbox.powerless(query);
        assert_ne!(ran.status, 0, "{ran:?}");
        let words = "not permitted to read the environment of the process";
        assert!(ran.stderr.contains(words), "{ran:?}");
    });
}
