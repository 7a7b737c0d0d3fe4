//! Tasks of asyncio: what each awaits, as Python itself says.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;

use probing_proto::process::Pid;
use probing_stacks::{AsyncTask, Options, Reader, TaskState, Tasks, WaitKind};
use probing_testkit::{Python, Sandbox, Target, every_python, wait_until};
use serde_json::{Value, json};

use crate::target::{line_of, places, start};

fn tasks_of(target: &Target) -> Tasks {
    let mut reader = Reader::open(Pid(target.pid())).unwrap();
    reader.tasks(&Options::default()).unwrap()
}

fn named<'a>(tasks: &'a Tasks, name: &str) -> &'a AsyncTask {
    let mut found = tasks.tasks.iter().filter(|task| task.name == name);
    let task = found.next();
    assert!(found.next().is_none(), "two are called {name}");
    task.unwrap_or_else(|| panic!("no task is called {name}: {tasks:?}"))
}

/// Names of tasks, given their ids.
fn names(tasks: &Tasks, ids: &[u64]) -> Vec<String> {
    let name = |id: &u64| {
        tasks
            .tasks
            .iter()
            .find(|task| task.id == *id)
            .unwrap()
            .name
            .clone()
    };
    let mut names: Vec<String> = ids.iter().map(name).collect();
    names.sort();
    names
}

/// What a task waits for, and which tasks.
fn waits(tasks: &Tasks, name: &str) -> (WaitKind, Vec<String>) {
    let wait = named(tasks, name).wait.as_ref();
    let wait = wait.unwrap_or_else(|| panic!("{name} waits for nothing: {tasks:?}"));
    (wait.kind, names(tasks, &wait.tasks))
}

/// Main has told the truth and waits.
fn settled(target: &Target) -> Tasks {
    let here = line_of("tasks.py", "main");
    let mut found = None;
    wait_until("main waits", || {
        let tasks = tasks_of(target);
        let main = tasks
            .tasks
            .iter()
            .find(|task| task.coroutine.as_ref() == "main");
        let main = places(&main.unwrap().frames);
        let waits = main == [("main".to_owned(), here)];
        found = waits.then_some(tasks);
        waits
    });
    found.unwrap()
}

fn started(python: &Python, count: usize) -> (Target, Value) {
    let target = Sandbox::new("none")
        .target(python, "stacks/tasks.py")
        .arg(count.to_string());
    let mut target = target.start();
    let truth = serde_json::from_str(&target.line()).unwrap();
    (target, truth)
}

/// Compares all tasks but main and the one of the second loop with what the target printed.
fn check_truth(tasks: &Tasks, truth: &Value) {
    let truth = truth.as_object().unwrap();
    let by_id: HashMap<String, &AsyncTask> = tasks
        .tasks
        .iter()
        .map(|task| (task.id.to_string(), task))
        .collect();
    for (id, expected) in truth {
        let task = by_id
            .get(id)
            .unwrap_or_else(|| panic!("{expected} is missing"));
        let frames: Vec<Value> = task
            .frames
            .iter()
            .rev()
            .map(|frame| {
                json!([
                    *frame.func,
                    String::from_utf8_lossy(frame.file.as_os_str().as_bytes()),
                    frame.line
                ])
            })
            .collect();
        let found = json!({"name": task.name, "coroutine": *task.coroutine, "frames": frames});
        assert_eq!(&found, expected);
        assert_eq!(
            (task.state, task.complete),
            (TaskState::Waiting, true),
            "{task:?}"
        );
    }
    assert_eq!(tasks.tasks.len(), truth.len() + 2);
    assert!(tasks.is_imported && !tasks.is_cut && tasks.circles.is_empty());
}

#[test]
fn every_task_awaits_what_python_says() {
    every_python(|python| {
        let (target, truth) = started(python, 0);
        let tasks = settled(&target);
        check_truth(&tasks, &truth);
        assert!(truth.as_object().unwrap().len() > 25);
        let five = named(&tasks, "five");
        assert_eq!(
            five.frames
                .iter()
                .filter(|frame| &*frame.func == "five")
                .count(),
            5
        );
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn what_a_task_waits_for_is_told() {
    every_python(|python| {
        let (target, _) = started(python, 0);
        let tasks = settled(&target);
        let check = |name: &str, kind: WaitKind, tasks_waited_for: &[&str]| {
            let (found, names) = waits(&tasks, name);
            assert_eq!(
                (found, names.iter().map(|name| &**name).collect::<Vec<_>>()),
                (kind, tasks_waited_for.to_vec()),
                "{name}"
            );
            for awaited in tasks_waited_for {
                assert_eq!(names_of_waiting(&tasks, awaited), [name], "{awaited}");
            }
        };
        check("sleep", WaitKind::Sleep, &[]);
        check("five", WaitKind::Sleep, &[]);
        check("lock", WaitKind::Lock, &[]);
        check("event", WaitKind::Event, &[]);
        check("condition", WaitKind::Condition, &[]);
        check("semaphore", WaitKind::Semaphore, &[]);
        check("queue_get", WaitKind::QueueGet, &[]);
        check("queue_put", WaitKind::QueuePut, &[]);
        check("queue_join", WaitKind::QueueJoin, &[]);
        check("future", WaitKind::Future, &[]);
        check("in_thread", WaitKind::Thread, &[]);
        check("other_task", WaitKind::Task, &["awaited"]);
        check(
            "gather",
            WaitKind::Gather,
            &["child-0", "child-1", "child-2", "grandchild"],
        );
        check("wait", WaitKind::Any, &["waited"]);
        check("wait_for", WaitKind::Task, &["limited"]);
        check("shield", WaitKind::Shield, &["shielded"]);
        check("async_for", WaitKind::Sleep, &[]);
        check("attributed", WaitKind::Sleep, &[]);
        if python.version >= (3, 11) {
            check("group", WaitKind::TaskGroup, &["member"]);
            check("barrier", WaitKind::Barrier, &[]);
        }
        assert_eq!(target.end().status, 0);
    });
}

fn names_of_waiting(tasks: &Tasks, name: &str) -> Vec<String> {
    names(tasks, &named(tasks, name).awaited_by)
}

#[test]
fn each_task_has_the_thread_of_its_loop() {
    every_python(|python| {
        let (target, _) = started(python, 0);
        let tasks = settled(&target);
        let thread = |name: &str| named(&tasks, name).thread.clone().unwrap();
        assert_eq!(thread("sleep").0, Some(target.pid()));
        let second = thread("second");
        assert_eq!(thread("elsewhere"), second);
        assert_eq!(second.1.as_deref(), Some("second"));
        assert_ne!(second.0, Some(target.pid()));
        let here = ("Second.wait".to_owned(), line_of("tasks.py", "second"));
        let (func, line) = places(&named(&tasks, "second").frames).pop().unwrap();
        assert!(here.0.ends_with(&func) && here.1 == line, "{func} {line}");
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn ten_thousand_tasks_are_read() {
    every_python(|python| {
        let (target, truth) = started(python, 10_000);
        let tasks = settled(&target);
        check_truth(&tasks, &truth);
        let position = |name: &str| {
            tasks
                .tasks
                .iter()
                .position(|task| task.name == name)
                .unwrap()
        };
        assert_eq!(position("worker-0") + 9_999, position("worker-9999"));
    });
}

#[test]
fn a_task_that_blocks_its_loop_is_shown_with_its_real_stack() {
    every_python(|python| {
        let target = start(python, "task_runs.py");
        let line = |mark| line_of("task_runs.py", mark);
        let expected = [
            ("read", line("blocks")),
            ("inner", line("inner")),
            ("outer", line("outer")),
        ];
        wait_until("it blocks", || {
            let tasks = tasks_of(&target);
            let blocks = named(&tasks, "blocks");
            let places = places(&blocks.frames);
            let places: Vec<_> = places.iter().map(|(func, line)| (&**func, *line)).collect();
            assert_eq!(blocks.state, TaskState::Running);
            assert_eq!(blocks.thread.as_ref().unwrap().0, Some(target.pid()));
            assert_eq!(named(&tasks, "next").state, TaskState::Ready);
            assert_eq!(named(&tasks, "next").frames.len(), 1);
            assert_eq!(
                waits(&tasks, "Task-1"),
                (WaitKind::Task, vec!["blocks".to_owned()])
            );
            blocks.complete && places == expected
        });
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn tasks_that_wait_for_each_others_locks_are_a_circle() {
    every_python(|python| {
        let target = start(python, "task_deadlock.py");
        wait_until("main waits", || !waits_ready(&target));
        let tasks = tasks_of(&target);
        for (name, holder) in [("rent", "refund"), ("refund", "rent")] {
            let task = named(&tasks, name);
            let wait = task.wait.as_ref().unwrap();
            assert_eq!(wait.kind, WaitKind::Lock);
            assert_eq!(names(&tasks, &wait.held_by), [holder]);
            let (func, line) = places(&task.frames).pop().unwrap();
            assert_eq!(
                (&*func, line),
                ("transfer", line_of("task_deadlock.py", "second"))
            );
        }
        assert_eq!(tasks.circles.len(), 1);
        assert_eq!(names(&tasks, &tasks.circles[0]), ["refund", "rent"]);
    });
}

fn waits_ready(target: &Target) -> bool {
    named(&tasks_of(target), "Task-1").wait.is_none()
}

#[test]
fn tasks_in_full_flight_are_never_mixed_up() {
    every_python(|python| {
        let target = start(python, "task_storm.py");
        let mut reader = Reader::open(Pid(target.pid())).unwrap();
        let (mut whole, mut seen) = (0, 0);
        for _ in 0..40 {
            for task in reader.tasks(&Options::default()).unwrap().tasks {
                let names: Vec<&str> = task.frames.iter().rev().map(|frame| &*frame.func).collect();
                seen += 1;
                // Of a task that runs, the loop's functions may come above its coroutine.
                if task.complete && task.state != TaskState::Running {
                    whole += 1;
                    let possible: &[&[&str]] = match &*task.coroutine {
                        "main" => &[&["main"]],
                        "busy" => &[&["busy"]],
                        "short" => &[
                            &["short"],
                            &["short", "branch", "leaf", "sleep", "__sleep0"],
                        ],
                        other => panic!("{other}: {names:?}"),
                    };
                    assert!(possible.contains(&&*names), "{task:?}");
                }
            }
        }
        assert!(seen > 500 && whole > 50, "{whole} of {seen}");
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn a_program_without_tasks_has_none() {
    every_python(|python| {
        for (modules, imported) in [(vec![], false), (vec!["asyncio"], true)] {
            let mut target = Sandbox::new("none").target(python, "stacks/imports.py");
            for module in &modules {
                target = target.arg(module);
            }
            let target = target.start();
            let tasks = tasks_of(&target);
            assert_eq!((tasks.is_imported, tasks.tasks.len()), (imported, 0));
        }
    });
}
