//! Threads that stand still: every frame of every one is known.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use probing_proto::process::Pid;
use probing_stacks::{FrameGap, Gil, LocalLimits, Options, State, ThreadStack};
use probing_testkit::{Sandbox, Target, every_python, wait_until};
use serde_json::Value;

use crate::target::{line_of, main_of, places, read, start};

/// Main has printed the truth and waits for its input.
fn wait_for_main(target: &Target) {
    let here = ("<module>".to_owned(), line_of("truth.py", "here"));
    wait_until("main waits", || {
        let snapshot = read(target.pid());
        let main = main_of(&snapshot);
        places(&main.frames) == [here.clone()]
            && matches!(main.state, State::Syscall { .. } | State::Stopped)
    });
}

/// Compares all threads but main with what the target printed.
fn check_truth(target: &mut Target, line: &str) -> Vec<ThreadStack> {
    let truth: Value = serde_json::from_str(line).unwrap();
    let stacks = truth["stacks"].as_object().unwrap();
    assert!(stacks.len() >= 20, "{}", stacks.len());
    wait_for_main(target);
    let snapshot = read(target.pid());
    assert_eq!(snapshot.threads.len(), stacks.len() + 1);
    for (ident, expected) in stacks {
        let thread = snapshot
            .threads
            .iter()
            .find(|thread| thread.ident.to_string() == *ident);
        let thread = thread.unwrap();
        let known = serde_json::json!([thread.tid, thread.name]);
        assert_eq!(known, truth["idents"][ident]);
        assert_eq!((thread.missing, thread.gil), (FrameGap::Nothing, Gil::Free));
        let found: Vec<Value> = thread
            .frames
            .iter()
            .map(|frame| {
                let file = frame.file.as_os_str().as_bytes();
                serde_json::json!([*frame.func, file, frame.line])
            })
            .collect();
        assert_eq!(&Value::from(found), expected);
    }
    snapshot.threads
}

#[test]
fn every_thread_is_where_python_says_it_is() {
    every_python(|python| {
        let mut target = start(python, "truth.py");
        let line = target.line();
        let threads = check_truth(&mut target, &line);
        assert!(threads.iter().any(|thread| thread.frames.len() > 1000));
        let main = &threads[0];
        assert_eq!(
            places(&main.frames),
            [("<module>".to_owned(), line_of("truth.py", "here"))]
        );
        let read = State::Syscall {
            number: libc::SYS_read,
            name: Some("read"),
        };
        assert_eq!((main.state, main.gil), (read, Gil::Free));
        assert!(
            main.frames[0]
                .file
                .ends_with("tests/targets/stacks/truth.py")
        );
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn a_hundred_threads_are_read() {
    every_python(|python| {
        let target = Sandbox::new("none")
            .target(python, "stacks/truth.py")
            .arg("100");
        let mut target = target.start();
        let line = target.line();
        check_truth(&mut target, &line);
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn a_stopped_process_is_read_and_left_stopped() {
    every_python(|python| {
        let mut target = start(python, "truth.py");
        let line = target.line();
        wait_for_main(&target);
        target.stop();
        let threads = check_truth(&mut target, &line);
        assert!(threads.iter().all(|thread| thread.state == State::Stopped));
        assert_eq!(target.state(), 'T');
        target.signal(rustix::process::Signal::CONT);
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn a_spinning_process_that_is_stopped_is_read() {
    every_python(|python| {
        let target = start(python, "calls.py");
        // While it says that it is ready it lets go of the GIL.
        wait_until("it spins", || {
            let calls = places(&main_of(&read(target.pid())).frames);
            calls.iter().any(|(func, _)| func == "loop")
        });
        target.stop();
        for _ in 0..20 {
            let snapshot = read(target.pid());
            let main = main_of(&snapshot);
            assert_eq!(
                (main.missing, main.gil, main.state),
                (FrameGap::Nothing, Gil::Holds, State::Stopped)
            );
            assert_eq!(snapshot.retried, 0);
        }
        assert_eq!(target.state(), 'T');
    });
}

#[test]
fn threads_that_hold_or_await_the_gil_in_c_are_named() {
    every_python(|python| {
        let target = start(python, "waits_for_gil.py");
        let (holds, wants) = (
            line_of("waits_for_gil.py", "holds"),
            line_of("waits_for_gil.py", "wants"),
        );
        // Those that wait look up every few milliseconds and are seen running then.
        wait_until("all are stuck", || {
            let is_stuck = |thread: &ThreadStack| {
                let (func, line) = places(&thread.frames)[0].clone();
                let name = match thread.state {
                    State::Syscall { name, .. } => name.unwrap_or("another"),
                    _ => "none",
                };
                match &*func {
                    "hold" => (line, name, thread.gil) == (holds, "read", Gil::Holds),
                    "want" => (line, name, thread.gil) == (wants, "futex", Gil::Waits),
                    _ => thread.is_main && (name, thread.gil) == ("futex", Gil::Waits),
                }
            };
            let threads = read(target.pid()).threads;
            threads.len() == 3 && threads.iter().all(is_stuck)
        });
    });
}

#[test]
fn a_deadlock_is_seen() {
    every_python(|python| {
        let target = start(python, "deadlock.py");
        let line = |mark| line_of("deadlock.py", mark);
        let expected = [("first", line("first")), ("second", line("second"))];
        wait_until("both are stuck, and main waits for them", || {
            let snapshot = read(target.pid());
            let tops: Vec<_> = snapshot.threads[1..]
                .iter()
                .map(|thread| places(&thread.frames)[0].clone())
                .collect();
            let main = places(&main_of(&snapshot).frames);
            tops.iter()
                .map(|(func, line)| (&**func, *line))
                .eq(expected)
                && *main.last().unwrap() == ("<module>".to_owned(), line("main"))
        });
    });
}

#[test]
fn a_forked_child_has_one_thread() {
    every_python(|python| {
        let mut target = start(python, "fork_child.py");
        let child: u32 = target.line().parse().unwrap();
        let expected = ("child".to_owned(), line_of("fork_child.py", "here"));
        wait_until("the child waits", || {
            let snapshot = read(child);
            assert_eq!(snapshot.threads.len(), 1);
            places(&main_of(&snapshot).frames).first() == Some(&expected)
        });
        assert!(
            read(child).threads[0].frames[0]
                .file
                .starts_with(Path::new("/"))
        );
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn threads_of_a_child_that_c_code_has_forked_are_found() {
    let program = "forked_by_c.py";
    let expected = [
        ("child".to_owned(), line_of(program, "here")),
        ("wait".to_owned(), line_of(program, "thread")),
    ];
    every_python(|python| {
        for forked_by in ["libc", "kernel"] {
            let sandbox = Sandbox::new("none");
            let target = sandbox.target(python, &format!("stacks/{program}"));
            let mut target = target.arg(forked_by).start();
            let child: u32 = target.line().parse().unwrap();
            wait_until("both threads of the child wait", || {
                let snapshot = read(child);
                let [main, younger] = &snapshot.threads[..] else {
                    panic!("{forked_by}: {:?}", snapshot.threads);
                };
                assert!(main.is_main && main.tid == Some(child), "{main:?}");
                let of_program = |stack: &ThreadStack| {
                    let mut places = places(&stack.frames).into_iter();
                    places.find(|place| expected.contains(place))
                };
                [main, younger].map(of_program) == expected.clone().map(Some)
            });
            assert_eq!(target.end().status, 0);
        }
    });
}

#[test]
fn a_stack_of_ten_thousand_frames_is_read_whole() {
    every_python(|python| {
        let target = start(python, "deep.py");
        let here = ("recurse".to_owned(), line_of("deep.py", "here"));
        wait_until("it is deep", || {
            let snapshot = read(target.pid());
            let deep = snapshot.threads.iter().find(|thread| !thread.is_main);
            deep.is_some_and(|thread| {
                thread.missing == FrameGap::Nothing
                    && thread.frames.len() == 10_004
                    && places(&thread.frames)[0] == here
            })
        });
        let options = Options {
            locals: Some(LocalLimits::default()),
            ..Options::default()
        };
        let snapshot = probing_stacks::read(Pid(target.pid()), &options).unwrap();
        let deep = snapshot
            .threads
            .iter()
            .find(|thread| !thread.is_main)
            .unwrap();
        for (depth, frame) in deep.frames[..=10_000].iter().enumerate() {
            let locals = frame.locals.as_ref().unwrap();
            assert_eq!(locals.len(), 1);
            assert_eq!(
                (&*locals[0].name, &*locals[0].value),
                ("depth", &*depth.to_string())
            );
        }
    });
}

#[test]
fn threads_that_python_did_not_start_are_read() {
    every_python(|python| {
        let target = start(python, "foreign.py");
        wait_until("both wait", || {
            let snapshot = read(target.pid());
            let mut tops: Vec<_> = snapshot.threads[1..]
                .iter()
                .map(|thread| (places(&thread.frames), thread.tid.is_some()))
                .collect();
            tops.sort();
            let place = |name: &str, mark| (name.to_owned(), line_of("foreign.py", mark));
            tops == [
                (vec![place("bare", "bare")], true),
                (vec![place("from_c", "c")], true),
            ]
        });
    });
}
