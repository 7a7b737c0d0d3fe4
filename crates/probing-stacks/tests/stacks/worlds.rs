//! Targets in places of their own: other interpreters, namespaces, a static Python, odd paths.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use probing_testkit::{Python, Sandbox, every_python, root, wait_until};

use crate::target::{line_of, main_of, places, read, start};

#[test]
fn frames_of_a_second_interpreter_are_above_those_that_called_it() {
    every_python(|python| {
        let target = start(python, "subinterpreter.py");
        wait_until("it waits", || {
            let snapshot = read(target.pid());
            assert_eq!(snapshot.threads.len(), 1);
            let places = places(&main_of(&snapshot).frames);
            let names: Vec<&str> = places.iter().map(|(func, _)| &**func).collect();
            let called = ("outside".to_owned(), line_of("subinterpreter.py", "here"));
            names == ["inside", "<module>", "outside", "<module>"] && places[2] == called
        });
    });
}

#[test]
fn frames_of_other_interpreters_are_on_the_threads_that_run_them() {
    every_python(|python| {
        let target = start(python, "subinterpreter_threads.py");
        wait_until("all wait", || {
            let snapshot = read(target.pid());
            let stacks = snapshot.threads.iter().map(|thread| {
                let functions = thread.frames.iter().map(|frame| &*frame.func);
                let known = functions.filter(|func| {
                    func.starts_with("inside_") || ["<module>", "runs", "waits"].contains(func)
                });
                let known: Vec<&str> = known.collect();
                let name = thread.name.as_deref().filter(|_| !thread.is_main);
                (name, thread.interpreter, known)
            });
            let stacks: Vec<_> = stacks.collect();
            let interpreters = (stacks.iter()).map(|(_, number, _)| *number);
            let interpreters: std::collections::BTreeSet<i64> = interpreters.collect();
            assert_eq!((stacks.len(), interpreters.len()), (3, 3), "{stacks:?}");
            assert_eq!((stacks[0].0, stacks[0].1), (None, 0), "{stacks:?}");
            let mut others = stacks[1..].to_vec();
            others.sort();
            others[0].0 == Some("runs-1")
                && others[0].2 == ["inside_1", "<module>", "runs"]
                && others[1].0 == Some("runs-2")
                && others[1].2 == ["inside_2", "<module>", "runs"]
                && stacks[0].2 == ["waits", "<module>"]
        });
    });
}

#[test]
fn a_static_and_stripped_python_is_read() {
    let path = Path::new("/usr/bin/python3.11");
    if path.exists() {
        let python = Python {
            path: path.to_owned(),
            version: (3, 11),
        };
        let target = start(&python, "truth.py");
        assert!(read(target.pid()).threads.len() > 20);
    }
}

#[test]
fn a_program_whose_path_is_not_utf_8_is_read() {
    every_python(|python| {
        let folder = tempfile::tempdir().unwrap();
        let program = folder
            .path()
            .join(OsStr::from_bytes(b"\xe9 \xf0\x9f\x98\x80.py"));
        std::fs::write(&program, "print('ready', flush=True)\ninput()\n").unwrap();
        let mut command = Command::new(&python.path);
        command.arg(&program);
        let target = Sandbox::new("none").target_command(command).start();
        wait_until("it waits", || {
            let snapshot = read(target.pid());
            let frame = &main_of(&snapshot).frames[0];
            assert_eq!(*frame.file, *program);
            frame.line == Some(2)
        });
    });
}

#[test]
fn a_target_with_its_own_pids_and_files_is_read() {
    let can = |arguments: &[&str]| {
        let status = Command::new("unshare").args(arguments).arg("true").output();
        status.is_ok_and(|output| output.status.success())
    };
    let arguments = ["--pid", "--mount", "--fork", "--kill-child"];
    if !can(&arguments) {
        return;
    }
    every_python(|python| {
        let mut command = Command::new("unshare");
        let program = root().join("tests/targets/stacks/deadlock.py");
        command.args(arguments).arg(&python.path).arg(program);
        let target = Sandbox::new("none").target_command(command).start();
        let children = format!("/proc/{0}/task/{0}/children", target.pid());
        let child = std::fs::read_to_string(children).unwrap();
        let child: u32 = child.split_whitespace().next().unwrap().parse().unwrap();
        let snapshot = read(child);
        assert_eq!(snapshot.threads.len(), 3);
        assert_eq!(main_of(&snapshot).tid, Some(child));
        assert!(
            snapshot
                .threads
                .iter()
                .all(|thread| thread.tid.unwrap() >= child)
        );
    });
}
