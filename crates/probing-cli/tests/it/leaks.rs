//! `probing memory` and `leak`, and what they leave in `python.memory` and `python.heap`.

use std::io::Read;
use std::process::Stdio;

use probing_testkit::{CommandResult, Python, Sandbox, Target, every_python, root, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::sandbox;

const PROGRAM: &str = "leaking.py";

fn started(sandbox: &Sandbox, python: &Python, variables: &[(&str, &str)]) -> Target {
    let mut target = sandbox.target(python, PROGRAM);
    for (name, value) in variables {
        target = target.env(name, value);
    }
    target.start()
}

/// Has the target run a line.
fn run(target: &mut Target, line: &str) {
    target.say(line);
    assert_eq!(target.line(), "done", "{line}");
}

fn ask(sandbox: &Sandbox, pid: u32, arguments: &[&str]) -> CommandResult {
    let pid = pid.to_string();
    sandbox.probing([&["-t", &pid], arguments].concat())
}

/// Rows of a query.
fn rows(sandbox: &Sandbox, pid: u32, sql: &str) -> Vec<Value> {
    let ran = ask(sandbox, pid, &["query", "--json", sql]);
    ran.json().as_array().unwrap().clone()
}

fn line_of(mark: &str) -> u64 {
    let source = std::fs::read_to_string(root().join("tests/targets").join(PROGRAM)).unwrap();
    let mut lines = source.lines();
    lines.position(|line| line.contains(mark)).unwrap() as u64 + 1
}

/// Whether the heap is sampled.
fn is_sampled(sandbox: &Sandbox, pid: u32) -> bool {
    let told = ask(sandbox, pid, &["memory", "--json"]).json();
    told["tracers"][1]["on"] == true
}

/// `probing leak` while the target does something; then Ctrl-C.
fn leak(sandbox: &Sandbox, target: &mut Target, options: &[&str], work: &str) -> CommandResult {
    let mut command = sandbox.command();
    command.args(["-t", &target.pid().to_string(), "leak", "--for", "10m"]);
    command.args(options);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let said = said_first(child.stderr.as_mut().unwrap());
    run(target, work);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = CommandResult::finished(child);
    CommandResult {
        stderr: said + &ran.stderr,
        ..ran
    }
}

/// What it says until the first look has been taken, and no more.
pub(crate) fn said_first(pipe: &mut impl Read) -> String {
    let mut said = Vec::new();
    let mut byte = [0];
    while !said.ends_with(b"(Ctrl-C ends sampling)\n") {
        let count = pipe.read(&mut byte).unwrap();
        assert_eq!(count, 1, "{}", String::from_utf8_lossy(&said));
        said.extend(byte);
    }
    String::from_utf8(said).unwrap()
}

#[test]
fn a_planted_leak_is_found_and_what_comes_and_goes_is_not() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python, &[]);
        run(&mut target, "serve(10)");
        let told = leak(&sandbox, &mut target, &["--json"], "serve(4000)").json();
        let places = |name: &str| -> Vec<(String, u64)> {
            let sites = told["sites"].as_array().unwrap().iter();
            let inner = sites.map(|site| &site["stack"][0]);
            let inner = inner.filter(|frame| frame["func"].as_str().unwrap().ends_with(name));
            let place = |frame: &Value| {
                let file = frame["file"].as_str().unwrap().rsplit('/').next().unwrap();
                (file.to_owned(), frame["lineno"].as_u64().unwrap())
            };
            inner.map(place).collect()
        };
        let planted = (PROGRAM.to_owned(), line_of("# @leak"));
        assert!(places("remember").contains(&planted), "{told:#}");
        let payload = (PROGRAM.to_owned(), line_of("# @payload"));
        assert!(places("__init__").contains(&payload), "{told:#}");
        let churned = (PROGRAM.to_owned(), line_of("# @churn"));
        assert!(!places("serve").contains(&churned), "{told:#}");
        // A block of 4129 bytes and one of 2049 each time: the estimate is within some standard deviations of it.
        let growth = told["heap_growth"].as_i64().unwrap();
        assert!((8 << 20..60 << 20).contains(&growth), "{told:#}");
        let types: Vec<&str> = told["types"]
            .as_array()
            .unwrap()
            .iter()
            .map(|kind| kind["type"].as_str().unwrap())
            .collect();
        assert!(types.contains(&"bytes"), "{types:?}");
        assert!(!is_sampled(&sandbox, target.pid()), "off again");

        // Every look is in the table, too, and stays when the process is gone.
        let pid = target.pid();
        target.signal(Signal::KILL);
        drop(target.wait());
        let sql = "SELECT func, lineno, live_bytes FROM python.heap WHERE func = 'remember' ORDER BY ts DESC LIMIT 1";
        let last = rows(&sandbox, pid, sql);
        assert_eq!(last[0]["lineno"], line_of("# @leak"), "{last:?}");
    });
}

#[test]
fn what_grows_is_a_table_for_people() {
    let (sandbox, python) = (sandbox(), Python::all().remove(0));
    let mut target = started(&sandbox, &python, &[]);
    let ran = leak(&sandbox, &mut target, &["--top", "1"], "serve(4000)");
    let shown: Vec<String> = ran.stdout.lines().map(crate::scrubbed).collect();
    assert_eq!(shown[0], "in N.N s: Python's heap +N.N MB, rss +N.N MB");
    assert_eq!(
        shown[1].trim(),
        "GROWTH PER SECOND BLOCKS ROSE ALLOCATED IN"
    );
    assert!(
        shown[2].contains("< remember (leaking.py:N)")
            || shown[2].contains("__init__ (leaking.py:N) <"),
        "{shown:?}"
    );
    assert_eq!(shown[4].trim(), "GROWTH PER SECOND BLOCKS ROSE TYPE");
    assert!(
        ran.stderr
            .contains("sampling allocations for 600.0 s (Ctrl-C ends sampling)"),
        "{ran:?}"
    );
    // Nothing grows while nothing happens.
    let idle = ask(&sandbox, target.pid(), &["leak", "--for", "100ms"]);
    assert!(
        idle.stderr.contains("nothing that Python allocated grows"),
        "{idle:?}"
    );
    assert!(!idle.stderr.contains("rss grows"), "{idle:?}");
    // Memory that no allocator of Python's gave out, as that of tensors.
    let mapped = "import mmap; kept = mmap.mmap(-1, 64 << 20); [kept.__setitem__(at, 1) for at in range(0, 64 << 20, 4096)]";
    let ran = leak(&sandbox, &mut target, &[], mapped);
    assert!(
        ran.stderr
            .contains("rss grows by more than Python's heap: memory of tensors"),
        "{ran:?}"
    );
    assert!(
        ran.stderr
            .contains("hint: count live tensors by shape: `probing -t PID eval "),
        "{ran:?}"
    );
}

#[test]
fn memory_is_recorded_every_second_and_at_every_step() {
    let sandbox = sandbox();
    let variables = [("PROBING", "1"), ("PROBING_MEMORY", "1")];
    let all = Python::all();
    let mut targets: Vec<Target> = all
        .iter()
        .map(|python| started(&sandbox, python, &variables))
        .collect();
    for (python, target) in all.iter().zip(&mut targets) {
        let pid = target.pid();
        let told = ask(&sandbox, pid, &["memory"]);
        let on = "memory is on; python.memory: every second, and at every step\n\
                  heap is on; python.heap: every ten seconds, by samples of allocations\n";
        assert_eq!(told.ok(), on, "{python:?}");
        run(target, "import probing; serve(1000); probing.step(7)");
        let step = "SELECT rss, python_heap, python_blocks, gc_0, gc_2, torch_allocated FROM python.memory WHERE kind = 'step' AND step = 7";
        let [row] = rows(&sandbox, pid, step).try_into().unwrap();
        assert!(row["rss"].as_i64() > Some(1 << 20), "{python:?} {row}");
        assert!(
            row["python_heap"].as_i64() > Some(1 << 20),
            "{python:?} {row}"
        );
        assert!(
            row["python_blocks"].as_i64() > Some(1000),
            "{python:?} {row}"
        );
        assert!(
            row["gc_0"].is_i64() && row["gc_2"].is_i64(),
            "{python:?} {row}"
        );
        assert_eq!(row["torch_allocated"], Value::Null);
    }
    let count = |target: &Target, kind: &str| {
        let sql = format!(
            "SELECT count(*) AS n, count(rss) AS rss FROM python.memory WHERE kind = '{kind}'"
        );
        let [row] = rows(&sandbox, target.pid(), &sql).try_into().unwrap();
        assert_eq!(row["n"], row["rss"]);
        row["n"].as_u64().unwrap()
    };
    for target in &mut targets {
        // It waits for a line: nobody but the probe's thread can write a row.
        wait_until("a second in which no Python ran", || {
            count(target, "stuck") > 0
        });
        // It has come by meanwhile, or comes by now.
        run(
            target,
            "while not stop: pass".replace("not stop", "False").as_str(),
        );
        wait_until("a second that the main thread saw", || {
            count(target, "second") > 1
        });
        let off = ask(&sandbox, target.pid(), &["memory", "off"]);
        assert_eq!(off.ok(), "memory is off now\nheap is off now\n");
    }
    for target in targets {
        assert_eq!(target.end().stderr, [""; 0]);
    }
}

#[test]
fn a_block_of_the_program_is_traced_while_it_lasts() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python, &[]);
        let pid = target.pid();
        let work = "import probing\\nwith probing.trace('memory_usage'): serve(2000)";
        run(&mut target, work);
        let told = ask(&sandbox, pid, &["memory"]);
        assert_eq!(told.ok(), "memory is off\nheap is off\n");
        let sql = "SELECT count(*) AS n FROM python.memory WHERE kind = 'second'";
        assert_eq!(rows(&sandbox, pid, sql)[0]["n"], 2);
        let sql = "SELECT count(*) AS n FROM python.heap WHERE func = 'remember'";
        assert_ne!(rows(&sandbox, pid, sql)[0]["n"], 0);
        assert_eq!(target.end().stderr, [""; 0]);
    });
}

#[test]
fn other_hooks_of_the_allocators_stay_as_they_are() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python, &[]);
        let pid = target.pid();
        let switch = |what: &str| ask(&sandbox, pid, &["memory", what]);
        let trace = "import tracemalloc; tracemalloc.start(); kept.append(bytes(1 << 20)); traced = tracemalloc.get_traced_memory()[0]; assert traced >= 1 << 20";
        // Somebody comes after us, and we leave first: what they wrapped stays, and passes on.
        assert_eq!(switch("on").status, 0);
        run(&mut target, trace);
        assert_eq!(switch("off").status, 0);
        run(
            &mut target,
            "kept.append(bytes(1 << 20)); assert tracemalloc.get_traced_memory()[0] >= 2 << 20",
        );
        let again = switch("on");
        assert!(again.stdout.contains("heap is on now"), "{again:?}");
        run(&mut target, "serve(1000)");
        assert_ne!(sites_found(&sandbox, &mut target), 0);
        run(&mut target, "tracemalloc.stop(); serve(100)");
        assert_eq!(switch("off").status, 0);
        // They were there before us, and leave first: they put back what they had found.
        run(&mut target, trace);
        assert_eq!(switch("on").status, 0);
        run(
            &mut target,
            "assert tracemalloc.get_traced_memory()[0] >= 1 << 20; serve(10); tracemalloc.stop()",
        );
        let status = switch("status");
        assert!(
            status
                .stderr
                .contains("another tool has restored the allocators"),
            "{status:?}"
        );
        assert_eq!(switch("off").status, 0);
        assert_eq!(switch("on").status, 0);
        run(&mut target, "serve(1000)");
        assert_ne!(sites_found(&sandbox, &mut target), 0);
        // A child is a process of its own, and its blocks are its own business.
        run(
            &mut target,
            "import os; child = os.fork()\\nif child == 0: kept.clear(); serve(1000); os._exit(7)\\nassert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7",
        );
        ask(&sandbox, pid, &["detach"]);
        run(&mut target, "kept.clear(); serve(1000); kept.clear()");
        assert_eq!(target.end().stderr, [""; 0]);
    });
}

/// Sites that a look finds now.
fn sites_found(sandbox: &Sandbox, target: &mut Target) -> usize {
    let told = leak(sandbox, target, &["--json"], "serve(1500)").json();
    told["sites"].as_array().unwrap().len()
}

/// Nobody waits for the sampler for ever: not who asks for memory without the GIL, not who holds a lock of its own then, not
/// a child of a fork, not who ends; whoever switches it meanwhile.
#[test]
fn programs_that_allocate_in_every_way_continue_while_they_are_sampled() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "allocating.py");
        let target = target.env("PROBING", "1").env("PROBING_MEMORY", "1");
        let mut target = target.start();
        let pid = target.pid();
        let ask = |arguments: &[&str]| {
            let ran = ask(&sandbox, pid, arguments);
            assert_eq!(ran.status, 0, "{ran:?}");
        };
        run(&mut target, "traced");
        run(&mut target, "begin");
        for _ in 0..3 {
            ask(&["memory", "status"]);
            ask(&["memory", "off"]);
            ask(&["memory", "on"]);
            ask(&["leak", "--for", "100ms"]);
            ask(&["detach"]);
            ask(&["memory", "on"]);
        }
        run(&mut target, "end");
        assert!(is_sampled(&sandbox, pid));
        let sql = "SELECT count(DISTINCT func) AS n FROM python.heap";
        assert_ne!(rows(&sandbox, pid, sql)[0]["n"], 0);
        ask(&["detach"]);
        run(&mut target, "traced");
        assert_eq!(target.end().stderr, [""; 0]);
    });
}

#[test]
fn leaks_are_found_with_every_kind_of_allocator() {
    let sandbox = sandbox();
    for python in Python::all() {
        for kind in ["malloc", "debug", "malloc_debug"] {
            let mut target = started(&sandbox, &python, &[("PYTHONMALLOC", kind)]);
            let found = sites_found(&sandbox, &mut target);
            assert_ne!(found, 0, "{kind} {python:?}");
            assert_eq!(target.end().stderr, [""; 0], "{kind} {python:?}");
        }
    }
}

#[test]
fn the_example_of_a_leak_is_found() {
    let (sandbox, python) = (sandbox(), Python::all().pop().unwrap());
    let mut command = python.run([root().join("examples/leak.py")]);
    command.env("PROBING", "1");
    let mut target = sandbox.target_command(command).start_without_waiting();
    assert_eq!(target.line(), "serving");
    wait_until("it is found", || {
        let ran = ask(&sandbox, target.pid(), &["leak", "--for", "1s"]);
        ran.stdout.contains("answer (leak.py:") && ran.stdout.contains("bytes")
    });
}
