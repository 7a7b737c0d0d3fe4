//! Whatever can be switched on and off is, beside threads of the program that use it: nobody notices, and nothing grows.
//!
//! `make stress` runs the long form and prints what it measured.

use probing_testkit::{Python, Switch, Switchboard, every_python, root};
use serde_json::{Value, json};

use crate::sandbox;

const PROGRAM: &str = "switched.py";
const CYCLES: u32 = 500;
const FEW_CYCLES: u32 = 20;
const FEW_SEARCHES: u32 = 4;

fn line_of(mark: &str) -> usize {
    let source = std::fs::read_to_string(root().join("tests/targets").join(PROGRAM)).unwrap();
    source.lines().position(|line| line.contains(mark)).unwrap() + 1
}

/// A switch, and the threads of the program that use it.
type Used = (Switch, &'static [&'static str]);

/// All that a program without torch can have switched.
fn switches(python: &Python) -> Vec<Used> {
    let mut all = tracers_and_traces();
    all.extend(breakpoints());
    all.extend(watches());
    let torch =
        |ask: &str| json!({"op": "torch", "ask": ask, "trace": {"every": 1, "memory": "never"}});
    let waiting = Switch::new("waiting for torch", torch("on"), torch("off"));
    all.push((waiting, &["imports", "begins"]));
    let eval = json!({"op": "eval", "code": "print('seen')"});
    all.push((
        Switch::new("an eval", eval.clone(), eval),
        &["prints", "calls"],
    ));
    let awaited = json!({"op": "eval", "code": "await nothing()"});
    let awaited = Switch::new("an eval on a loop", awaited.clone(), awaited);
    all.push((awaited, &["awaits", "calls"]));
    all.push((spans(), &["calls", "begins"]));
    let in_detach = [
        "memory",
        "heap",
        "a trace",
        "a line",
        "raised exceptions",
        "uncaught exceptions",
        "a local variable",
        "a global variable",
        "waiting for torch",
    ];
    let switches = all.iter().map(|(switch, _)| switch);
    let detach = Switch::ended_by_detach(switches.filter(|it| in_detach.contains(&it.name)));
    all.push((detach, &["calls", "raises"]));
    if python.version >= (3, 12) {
        let visit = json!({"op": "eval", "code": "1", "thread": "calls"});
        let visit = Switch::new("an eval on a thread", visit.clone(), visit);
        all.push((visit, &["calls", "prints"]));
    }
    all
}

fn tracers_and_traces() -> Vec<Used> {
    let tracer = |name: &'static str| {
        let to = |on: bool| json!({"op": "tracer", "tracer": name, "on": on});
        Switch::new(name, to(true), to(false))
    };
    let inner = || json!({"op": "trace", "of": "function", "function": "inner"});
    let mut lines = inner();
    lines["lines"] = json!(true);
    let called =
        json!({"op": "trace", "of": "function", "function": "calls", "depth": 2, "stats": true});
    let generator = json!({"op": "trace", "of": "function", "function": "numbers"});
    let module = json!({"op": "trace", "of": "module", "module": "json"});
    vec![
        (tracer("memory"), &["allocates", "calls"]),
        (tracer("heap"), &["allocates", "begins"]),
        (Switch::traced("a trace", inner()), &["calls", "begins"]),
        (
            Switch::traced("a trace of what is called", called),
            &["calls", "begins"],
        ),
        (
            Switch::traced("a trace of lines", lines),
            &["calls", "begins"],
        ),
        (
            Switch::traced("a trace of a generator", generator),
            &["calls", "begins"],
        ),
        (
            Switch::traced("a trace of a module", module),
            &["calls", "begins"],
        ),
    ]
}

/// Blocks that the program has traced itself.
fn spans() -> Switch {
    let eval = |code: &str| json!({"op": "eval", "code": code});
    Switch::new(
        "a span",
        eval(
            "import probing; span = probing.trace('switched', depth=1, watch=['level']); span.__enter__(); calls(1)",
        ),
        eval("span.__exit__(None, None, None)"),
    )
}

fn breakpoints() -> Vec<Used> {
    let line = json!({"on": "line", "file": PROGRAM, "line": line_of("@here")});
    let function = json!({"on": "function", "function": "inner"});
    let count = || json!({"do": "count"});
    let armed = |name, place: &Value, action| Switch::armed(name, place.clone(), action);
    let mut conditional = armed("a condition", &line, count());
    conditional.on[0]["condition"] = json!("step == 2 and total > 10 ** 9");
    let mut stopping = armed("stops", &line, json!({"do": "stop"}));
    stopping.lets_go_on = false;
    stopping.off.push(json!({"op": "release", "stops": []}));
    let log = armed("a log", &line, json!({"do": "log", "text": "{total}"}));
    let snapshot = armed("a snapshot", &function, json!({"do": "snapshot"}));
    let raised = json!({"on": "raise", "exception": "KeyError"});
    let uncaught = json!({"on": "uncaught"});
    vec![
        (armed("a line", &line, count()), &["calls", "begins"]),
        (
            armed("a function", &function, count()).searching(),
            &["calls", "begins"],
        ),
        (log, &["calls", "begins"]),
        (snapshot.searching(), &["calls", "begins"]),
        (conditional, &["calls", "begins"]),
        (stopping, &["calls", "begins"]),
        (
            armed("raised exceptions", &raised, count()),
            &["raises", "begins"],
        ),
        (
            armed("uncaught exceptions", &uncaught, count()),
            &["raises", "begins"],
        ),
    ]
}

fn watches() -> Vec<Used> {
    let watch = |name, place| Switch::armed(name, place, json!({"do": "count"}));
    let value = |path: &str| json!({"on": "value", "path": path});
    let local = json!({"on": "local", "function": "inner", "name": "total"});
    let variable = json!({"on": "environment", "name": "SWITCHED"});
    vec![
        (
            watch("a local variable", local).searching(),
            &["calls", "begins"],
        ),
        (
            watch("a global variable", value("level")),
            &["changes", "calls"],
        ),
        (
            watch("an attribute", value("settings.rate")),
            &["changes", "calls"],
        ),
        (
            watch("an item", value("table['count']")),
            &["changes", "calls"],
        ),
        // In no dictionary: compared at each line.
        (
            watch("an item of a list", value("layers[-2]")),
            &["changes", "calls"],
        ),
        (watch("the environment", variable), &["changes", "calls"]),
    ]
}

#[test]
fn whatever_can_be_switched_is_beside_threads_that_use_it() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut board = Switchboard::new(&sandbox, sandbox.probed(python, PROGRAM));
        for (switch, _) in switches(python) {
            let cycles = if switch.searches {
                FEW_SEARCHES
            } else {
                FEW_CYCLES
            };
            board.turn(&switch, cycles);
        }
        // A finder of modules that is no longer needed stays, as a thread may be in it; there is one, and no more.
        assert_eq!(board.value("own_finders()"), "1");
    });
}

/// By the command, which gets in from outside, and not by the program itself.
#[test]
fn a_command_attaches_and_detaches_beside_threads_that_are_recorded() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, PROGRAM).start();
        let pid = target.pid().to_string();
        let probing = |arguments: &[&str]| {
            let ran = sandbox.probing([&["-t", &pid], arguments].concat());
            assert_eq!(ran.status, 0, "{ran:?}");
            ran.stdout
        };
        for _ in 0..FEW_SEARCHES {
            probing(&["attach"]);
            probing(&["memory", "on"]);
            probing(&["watch", "level"]);
            probing(&["break", "inner", "--action", "count"]);
            assert_eq!(probing(&["eval", "lap()"]), "[]\n");
            probing(&["detach"]);
        }
        assert_eq!(probing(&["eval", "lap()"]), "[]\n");
    });
}

#[test]
#[ignore = "takes half an hour: 500 times each on every Python. Run by `make stress`"]
#[expect(clippy::print_stderr, reason = "figures of a long run")]
fn whatever_can_be_switched_is_five_hundred_times() {
    every_python(|python| {
        for (switch, threads) in switches(python) {
            let sandbox = sandbox();
            let target = sandbox.target(python, PROGRAM).env("PROBING", "1");
            let target = target.with(|command| {
                command.args(threads);
            });
            let mut board = Switchboard::new(&sandbox, target.start());
            board.warm_up();
            let done = board.turn(&switch, CYCLES);
            let (major, minor) = python.version;
            eprintln!("{major}.{minor} {}: {done:?}", switch.name);
            done.assert_flat();
        }
    });
}

/// Python goes through its list of finders by their places: one that is taken out while a thread is asking another makes it
/// pass over the next.
#[test]
fn a_thread_that_looks_for_a_module_passes_over_no_finder() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut board = Switchboard::new(&sandbox, sandbox.probed(python, PROGRAM));
        let torch = |ask: &str| json!({"op": "torch", "ask": ask});
        board.value("hold(), 1");
        board.ask(&torch("on"));
        board.value("look_up_and_be_held(), 1");
        board.ask(&torch("off"));
        assert_eq!(board.value("let_go()"), "[True]");
    });
}
