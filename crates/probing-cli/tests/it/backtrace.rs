//! `probing backtrace`: where a process is, whatever state it is in.

use probing_testkit::{Sandbox, Target, every_python, root, wait_until};
use serde_json::Value;

use crate::{sandbox, scrubbed};

/// The line of a target's program that carries the mark.
fn line_of(program: &str, mark: &str) -> u64 {
    let text = std::fs::read_to_string(root().join("tests/targets").join(program)).unwrap();
    let marked = text
        .lines()
        .position(|line| line.ends_with(&format!("# @{mark}")));
    marked.unwrap() as u64 + 1
}

fn stacks(sandbox: &Sandbox, target: &Target) -> Value {
    sandbox
        .probing([
            "-t",
            &target.pid().to_string(),
            "backtrace",
            "--all",
            "--json",
        ])
        .json()
}

fn thread<'a>(stacks: &'a Value, name: &str) -> &'a Value {
    let threads = stacks["threads"].as_array().unwrap();
    threads
        .iter()
        .find(|thread| thread["thread_name"] == name)
        .unwrap_or_else(|| panic!("no {name}: {stacks}"))
}

/// Waits until every thread has come to where it waits.
fn settled(sandbox: &Sandbox, target: &Target) {
    wait_until("all threads wait", || {
        let stacks = stacks(sandbox, target);
        let threads = stacks["threads"].as_array().unwrap();
        let waits = |thread: &Value| thread["state"] != "running" && thread["gil"] == "free";
        threads.len() == 6 && threads.iter().all(waits)
    });
}

#[test]
fn the_main_thread_is_shown_like_a_traceback() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "waiting.py").start();
        settled(&sandbox, &target);
        let pid = target.pid().to_string();
        let shown = sandbox
            .probing(["-t", &pid, "backtrace"])
            .ok()
            .replace(&root().display().to_string(), "");
        insta::assert_snapshot!(scrubbed(&shown), @r#"
        Thread MainThread (N), waits in read (most recent call last)
         File "/tests/targets/waiting.py", line N, in <module>
         epoch()
         File "/tests/targets/waiting.py", line N, in epoch
         wait_for_the_end() # @epoch
         File "/tests/targets/waiting.py", line N, in wait_for_the_end
         sys.stdin.read() # @main
        "#);
        let reversed = sandbox.probing(["-t", &pid, "backtrace", "--reverse"]);
        assert!(reversed.ok().contains("(most recent call first)"));
        assert!(
            reversed.ok().trim_end().ends_with("epoch()"),
            "{reversed:?}"
        );
        // Nothing was brought in for it.
        assert_eq!(target.usage().threads, 6);
        assert_eq!(sandbox.target_dirs(), [""; 0]);
    });
}

#[test]
fn every_thread_is_where_it_is() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "waiting.py");
        wait_until("all threads wait", || {
            let stacks = stacks(&sandbox, &target);
            stacks["threads"]
                .as_array()
                .unwrap()
                .iter()
                .all(|thread| thread["state"] != "running")
        });
        let stacks = stacks(&sandbox, &target);
        // The probe's own thread is not the program's.
        assert_eq!(stacks["threads"].as_array().unwrap().len(), 6, "{stacks}");
        let check = |name: &str, func: &str, mark: &str, depth: usize| {
            let frame = &thread(&stacks, name)["frames"][depth];
            assert_eq!(
                (&frame["func"], &frame["lineno"]),
                (&func.into(), &line_of("waiting.py", mark).into()),
                "{frame}"
            );
            assert_eq!(
                (&frame["depth"], &frame["frame_type"]),
                (&depth.into(), &"Python".into())
            );
        };
        check("MainThread", "wait_for_the_end", "main", 0);
        check("MainThread", "epoch", "epoch", 1);
        check("guard", "guard", "guard", 0);
        assert_eq!(stacks["threads"][0]["main"], true);
        let loader = thread(&stacks, "loader-2")["frames"].as_array().unwrap();
        let load = loader.iter().find(|frame| frame["func"] == "load").unwrap();
        assert_eq!(load["lineno"], line_of("waiting.py", "load"));
    });
}

#[test]
fn threads_with_the_same_stack_are_shown_together() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "waiting.py").start();
        settled(&sandbox, &target);
        let pid = target.pid().to_string();
        let all = sandbox.probing(["-t", &pid, "backtrace", "--all"]);
        assert!(
            scrubbed(all.ok()).contains(
                "N threads: loader-N (N), loader-N (N), loader-N (N), loader-N (N), waits in futex"
            ),
            "{all:?}"
        );
        let one = sandbox.probing(["-t", &pid, "backtrace", "--thread", "guard"]);
        assert!(one.ok().starts_with("Thread guard ("), "{one:?}");
        let none = sandbox.probing(["-t", &pid, "backtrace", "--thread", "nobody"]);
        assert_eq!(none.status, 1);
        assert!(
            none.stderr
                .starts_with("error: no thread is named nobody; there are: MainThread ("),
            "{none:?}"
        );
    });
}

#[test]
fn native_frames_are_shown_where_they_belong() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "waiting.py");
        let pid = target.pid().to_string();
        wait_until("main waits", || {
            let main = sandbox.probing(["-t", &pid, "backtrace", "--native"]);
            main.ok().contains(", waits in read ")
        });
        let main = sandbox.probing(["-t", &pid, "backtrace", "--native"]);
        let (outer, inner) = main.ok().split_once("# @main\n").unwrap();
        assert!(outer.contains("# @epoch\n"), "{main:?}");
        assert!(inner.contains("  native read (libc.so.6)\n"), "{main:?}");
        assert!(!inner.contains("  File "), "{main:?}");
        let all = sandbox.probing(["-t", &pid, "backtrace", "--native", "--all", "--json"]);
        let all = all.json();
        let threads = all["threads"].as_array().unwrap();
        // The probe's own thread is not the program's.
        assert_eq!(threads.len(), 6, "{all}");
        for thread in threads {
            let frame = &thread["frames"][0];
            assert_eq!(
                (&frame["depth"], &frame["frame_type"], &frame["lineno"]),
                (&0.into(), &"Native".into(), &Value::Null),
                "{thread}"
            );
            assert!(frame["file"].as_str().unwrap().starts_with('/'), "{thread}");
            assert!(frame["address"].is_u64(), "{thread}");
            assert_eq!(
                (&thread["complete"], thread.get("missing")),
                (&true.into(), None)
            );
        }
    });
}

#[test]
fn a_process_that_cannot_answer_is_read_all_the_same() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, "holds_gil.py").start();
        target.say("hold");
        assert_eq!(target.line(), "holding");
        let pid = target.pid().to_string();
        wait_until("it waits in C", || {
            sandbox
                .probing(["-t", &pid, "backtrace"])
                .ok()
                .contains("holds the GIL, waits in read")
        });
        target.stop();
        let stopped = sandbox.probing(["-t", &pid, "backtrace"]);
        assert!(
            stopped.ok().contains("in <module>\n    while byte.raw"),
            "{stopped:?}"
        );
        assert_eq!(target.state(), 'T');
    });
}

#[test]
fn what_has_no_python_stack_is_told() {
    let sandbox = sandbox();
    let check = |pid: &str, says: &str| {
        let ran = sandbox.probing(["-t", pid, "backtrace"]);
        assert_eq!(ran.status, 3);
        assert!(ran.stderr.starts_with(says), "{ran:?}");
    };
    check("999999999", "error: no such process: 999999999\n");
    let mut cat = std::process::Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    check(&cat.id().to_string(), "error: not a Python process: ");
    cat.kill().unwrap();
    cat.wait().unwrap();
}

#[test]
fn locals_are_shown_on_request() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "stacks/values.py").start();
        let pid = target.pid().to_string();
        let shown = |options: &[&str]| {
            let command = ["-t", &pid, "backtrace"];
            sandbox.probing(command.iter().chain(options))
        };
        let ran = shown(&["--thread", "cells", "--locals"]);
        let text = ran.ok();
        let expected = "\n    innermost()\n      own = 3\n      innermost = <function cells.<locals>.inner.<locals>.innermost>\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("      later = [3]\n"), "{text}");
        let ran = shown(&["--thread", "texts", "--locals"]);
        let long = ran.ok();
        let line = long
            .lines()
            .find(|line| line.starts_with("      long = '0123"));
        let line = line.unwrap();
        assert!(line.chars().count() == 200 && line.ends_with('…'), "{line}");
        let json = shown(&["--thread", "cells", "--locals", "--json"]).json();
        let frame = &json["threads"][0]["frames"][1];
        let own = serde_json::json!({"name": "own", "value": "3", "type": "int"});
        assert_eq!(
            (&frame["locals"][0], &frame["more_locals"]),
            (&own, &Value::from(0))
        );
        let without = shown(&["--thread", "cells", "--json"]).json();
        assert_eq!(without["threads"][0]["frames"][1]["locals"], Value::Null);
    });
}

#[test]
fn the_holder_of_the_gil_is_named_where_others_wait_for_it() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "stacks/waits_for_gil.py").start();
        let pid = target.pid().to_string();
        // Those that wait look up every few milliseconds and are seen running then.
        wait_until("main waits for the GIL", || {
            let all = sandbox
                .probing(["-t", &pid, "backtrace", "--all", "--json"])
                .json();
            let threads = all["threads"].as_array().unwrap();
            let holder = threads
                .iter()
                .find(|thread| thread["gil"] == "holds")
                .unwrap();
            let name = holder["thread_name"].as_str().unwrap();
            let words = format!("{name} ({})", holder["thread_id"]);
            let shown = sandbox.probing(["-t", &pid, "backtrace"]).stdout;
            shown.contains(&format!("waits for the GIL, which {words} holds"))
        });
    });
}

#[test]
fn threads_that_run_other_interpreters_say_so_and_breakpoints_say_where_they_are_set() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "stacks/subinterpreter_threads.py");
        let pid = target.pid().to_string();
        wait_until("both are inside", || {
            let text = sandbox.probing(["-t", &pid, "backtrace", "--all"]);
            let threads: Vec<&str> = text.ok().split("\nThread ").collect();
            let runs = |number: u32| {
                let is_its = |thread: &&&str| thread.starts_with(&format!("runs-{number} ("));
                threads.iter().find(is_its).is_some_and(|thread| {
                    thread.contains(&format!("in inside_{number}\n"))
                        && thread.contains("), runs interpreter ")
                })
            };
            let main = threads.iter().find(|it| it.contains("MainThread")).unwrap();
            assert!(!main.contains("runs interpreter"), "{main}");
            assert!(!main.contains("in inside_"), "{main}");
            runs(1) && runs(2)
        });
        let words = "they are set in the main interpreter only";
        for place in ["inside_1", "waits", "<string>:4"] {
            let set = sandbox.probing(["-t", &pid, "break", place, "--once"]);
            assert!(set.ok().contains(words), "{set:?}");
        }
        let listed = sandbox.probing(["-t", &pid, "breakpoints"]);
        assert!(listed.ok().contains(words), "{listed:?}");
    });
}

#[test]
fn a_child_that_a_thread_has_forked_says_which_thread_it_runs() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, "stacks/forked_in_thread.py").start();
        let child = target.line();
        let shown = sandbox.probing(["-t", &child, "backtrace"]);
        let title = format!("Thread MainThread ({child}), runs thread forker, ");
        assert!(shown.ok().starts_with(&title), "{shown:?}");
        let json = sandbox
            .probing(["-t", &child, "backtrace", "--json"])
            .json();
        assert_eq!(json["threads"][0]["runs_thread"], "forker");
    });
}
