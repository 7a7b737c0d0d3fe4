//! `probing backtrace --tasks` on asyncio programs.

use probing_testkit::{Sandbox, Target, TargetBuilder, Terminal, every_python, root, wait_until};
use rustix::process::Signal;
use serde_json::Value;

use crate::{sandbox, scrubbed};

fn shown(sandbox: &Sandbox, target: &Target) -> String {
    let pid = target.pid().to_string();
    let ran = sandbox.probing(["-t", &pid, "backtrace", "--tasks"]);
    scrubbed(ran.ok())
}

/// Without frames of asyncio, which differ between versions of Python, and with paths from our root.
fn of_the_program(text: &str) -> String {
    let mut lines = text.lines();
    let mut kept = String::new();
    while let Some(line) = lines.next() {
        if line.contains("/asyncio/") {
            lines.next();
        } else {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept.replace(root().to_str().unwrap(), "")
}

#[test]
fn a_deadlock_of_two_tasks_is_named() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "stacks/task_deadlock.py").start();
        wait_until("main waits", || {
            shown(&sandbox, &target).contains("Task-N (main), waits for")
        });
        let pid = target.pid().to_string();
        let ran = sandbox.probing(["-t", &pid, "backtrace", "--tasks"]);
        insta::assert_snapshot!(of_the_program(ran.ok()), @r#"
        3 asyncio tasks (most recent call last)

        Deadlock: refund waits for a lock that rent holds; rent waits for a lock that refund holds

        Task-1 (main), waits for 2 tasks (asyncio.wait)
          File "/tests/targets/stacks/task_deadlock.py", line 28, in main
            await asyncio.wait([end, *tasks], return_when=asyncio.FIRST_COMPLETED)
          ├─ Task refund (transfer), waits for a lock that rent holds
          │    File "/tests/targets/stacks/task_deadlock.py", line 11, in transfer
          │      async with destination:  # @second
          └─ Task rent (transfer), waits for a lock that refund holds
               File "/tests/targets/stacks/task_deadlock.py", line 11, in transfer
                 async with destination:  # @second
        "#);
        // Nothing was brought in for it.
        assert!(sandbox.target_dirs().is_empty());
    });
}

#[test]
fn tasks_that_are_alike_are_shown_together_below_those_that_await_them() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, "stacks/tasks.py").arg("200").start();
        target.line();
        wait_until("main waits", || {
            shown(&sandbox, &target).contains("Task-N (main), waits for a future")
        });
        let text = shown(&sandbox, &target);
        let check = |part: &str| assert!(text.contains(part), "{part}: {text}");
        check(", worker-N … worker-N (sleep), sleeps, thread MainThread (N)\n");
        check("\nTask gather (gather), waits for N tasks (gather), thread MainThread (N)\n");
        check("\n └─ N tasks: child-N … child-N, grandchild (sleep), sleeps\n");
        check("\nTask other_task (other_task), waits for awaited, thread MainThread (N)\n");
        check("\nTask second (Second.wait), waits for an event, thread second (N)\n");
        check("\nTask lock (lock), waits for a lock, thread");
        assert!(!text.contains("done"), "{text}");
        let reversed = [
            "-t",
            &target.pid().to_string(),
            "backtrace",
            "--tasks",
            "--reverse",
        ];
        let reversed = scrubbed(sandbox.probing(reversed).ok());
        assert!(reversed.starts_with("N asyncio tasks (most recent call first)\n"));
    });
}

#[test]
fn tasks_are_shown_again_and_again() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, "stacks/tasks.py").start();
        target.line();
        let pid = target.pid().to_string();
        let dump = ["backtrace", "--tasks", "--dump", "2", "--every", "0.01"];
        let ran = sandbox.probing(["-t", &pid].iter().chain(&dump));
        let shown = scrubbed(ran.ok());
        let head = "--- N-N-NTN:N:N.NZ\nN asyncio tasks (most recent call last)\n";
        assert_eq!(shown.matches(head).count(), 2, "{shown}");

        let json = dump.iter().chain(&["--json"]);
        let ran = sandbox.probing(["-t", &pid, "-t", &pid].iter().chain(json));
        let reports: Vec<Value> = ran
            .ok()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let of_sets = reports
            .iter()
            .filter_map(|report| report["targets"].as_array());
        assert_eq!(of_sets.count(), 2, "{reports:?}");

        let mut watch = sandbox.command();
        watch.args(["-t", &pid, "backtrace", "--tasks", "--watch", "3600"]);
        let terminal = Terminal::start(watch);
        terminal.wait_for("asyncio tasks");
        terminal.signal(Signal::INT);
        assert_eq!(terminal.finish().0, 0);
    });
}

#[test]
fn tasks_are_told_as_json() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, "stacks/tasks.py").start();
        target.line();
        let pid = target.pid().to_string();
        let report = || -> Value {
            let ran = sandbox.probing(["-t", &pid, "backtrace", "--tasks", "--json"]);
            serde_json::from_str(ran.ok()).unwrap()
        };
        wait_until("main waits", || {
            let report = report();
            let mut tasks = report["tasks"].as_array().unwrap().iter();
            tasks.any(|task| task["coroutine"] == "main" && task["state"] == "waiting")
        });
        let report = report();
        let tasks = report["tasks"].as_array().unwrap();
        let named = |name: &str| tasks.iter().find(|task| task["name"] == name).unwrap();
        let (waits, awaited) = (named("other_task"), named("awaited"));
        assert_eq!(waits["waits_for"]["kind"], "task");
        assert_eq!(
            waits["waits_for"]["tasks"],
            serde_json::json!([awaited["id"]])
        );
        assert_eq!(awaited["awaited_by"], serde_json::json!([waits["id"]]));
        assert_eq!(awaited["thread_id"], target.pid());
        assert_eq!(awaited["thread_name"], "MainThread");
        assert_eq!(awaited["frames"][1]["func"], "sleep");
        assert_eq!(awaited["frames"][1]["source"], "await asyncio.sleep(3600)");
        assert_eq!(named("queue_get")["waits_for"]["kind"], "queue_get");
        assert_eq!(
            (&report["asyncio"], &report["complete"]),
            (&true.into(), &true.into())
        );
        assert_eq!(report["deadlocks"], serde_json::json!([]));
    });
}

#[test]
fn coroutines_that_wait_have_locals() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, "stacks/tasks.py").start();
        target.line();
        let pid = target.pid().to_string();
        let ran = sandbox.probing(["-t", &pid, "backtrace", "--tasks", "--locals", "--json"]);
        let report: Value = serde_json::from_str(ran.ok()).unwrap();
        let mut tasks = report["tasks"].as_array().unwrap().iter();
        let five = tasks.find(|task| task["name"] == "five").unwrap();
        let depth = |frame: &Value| {
            let locals = frame["locals"].as_array()?;
            let depth = locals.iter().find(|local| local["name"] == "depth")?;
            Some(depth["value"].as_str()?.to_owned())
        };
        let frames = five["frames"].as_array().unwrap();
        let depths: Vec<String> = frames.iter().filter_map(depth).collect();
        assert_eq!(depths, ["1", "2", "3", "4", "5"]);
    });
}

#[test]
fn a_task_that_blocks_its_loop_is_shown_running() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "stacks/task_runs.py").start();
        wait_until("it reads", || {
            let text = shown(&sandbox, &target);
            text.contains(
                "Task blocks (outer), runs now, while another is ready, thread MainThread (N)\n",
            ) && text.contains("sys.stdin.readline()")
                && text.contains("Task next (other), ready to run\n")
        });
    });
}

#[test]
fn a_program_without_tasks_is_told_apart_from_one_without_asyncio() {
    every_python(|python| {
        let sandbox = sandbox();
        let says = |module: Option<&str>| {
            let target = sandbox.target(python, "stacks/imports.py");
            let target = module.into_iter().fold(target, TargetBuilder::arg).start();
            let pid = target.pid().to_string();
            let ran = sandbox.probing(["-t", &pid, "backtrace", "--tasks"]);
            assert_eq!((ran.status, &*ran.stdout), (0, ""));
            ran.stderr
        };
        assert!(says(None).starts_with("no tasks: the program has not imported asyncio"));
        assert!(says(Some("asyncio")).starts_with("no tasks: asyncio has none that is not done"));
    });
}

#[test]
fn tasks_of_several_targets_come_one_after_the_other() {
    every_python(|python| {
        let sandbox = sandbox();
        let start = |program: &str| sandbox.target(python, program).start();
        let (one, other) = (start("stacks/task_deadlock.py"), start("stacks/imports.py"));
        let pids = [one.pid().to_string(), other.pid().to_string()];
        let ran = sandbox.probing(["-t", &pids[0], "-t", &pids[1], "backtrace", "--tasks"]);
        let text = ran.ok();
        assert!(
            text.contains(&format!("== pid {} ==\n3 asyncio tasks", pids[0])),
            "{text}"
        );
        assert!(
            text.contains(&format!("== pid {} ==\nno tasks: the program", pids[1])),
            "{text}"
        );
        let ran = sandbox.probing([
            "-t",
            &pids[0],
            "-t",
            &pids[1],
            "backtrace",
            "--tasks",
            "--json",
        ]);
        let report: Value = serde_json::from_str(ran.ok()).unwrap();
        let counts = |target: &Value| target["report"]["tasks"].as_array().unwrap().len();
        let counts: Vec<usize> = report["targets"]
            .as_array()
            .unwrap()
            .iter()
            .map(counts)
            .collect();
        assert_eq!(counts.iter().sum::<usize>(), 3, "{counts:?}");
    });
}
