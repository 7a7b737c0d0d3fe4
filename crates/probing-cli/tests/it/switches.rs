//! Whatever can be switched on and off is, beside threads of the program that use it: nobody notices, and nothing grows.
//!
//! `make stress` runs the long form and prints what it measured.

use probing_testkit::{Python, Switch, Switchboard, every_python, root};
use serde_json::json;

use crate::sandbox;

const PROGRAM: &str = "switched.py";
const CYCLES: u32 = 500;
const FEW_CYCLES: u32 = 20;
/// Blocks of memory that a cycle may leave behind, on average, in millionths: none; a table of Python's grows now and then.
const MAX_BLOCKS_PPM: u64 = 250_000;

fn line_of(mark: &str) -> usize {
    let source = std::fs::read_to_string(root().join("tests/targets").join(PROGRAM)).unwrap();
    source.lines().position(|line| line.contains(mark)).unwrap() + 1
}

/// All that a program without torch can have switched.
fn switches(python: &Python) -> Vec<Switch> {
    let tracer = |name: &'static str| {
        let to = |on: bool| json!({"op": "tracer", "tracer": name, "on": on});
        Switch::new(name, to(true), to(false))
    };
    let line = json!({"on": "line", "file": PROGRAM, "line": line_of("@here")});
    let function = json!({"on": "function", "function": "inner"});
    let count = json!({"do": "count"});
    let armed = |name, place: &serde_json::Value, action: serde_json::Value| {
        Switch::armed(name, place.clone(), action)
    };
    let watch = |name, place| Switch::armed(name, place, json!({"do": "count"}));
    let value = |path: &str| json!({"on": "value", "path": path});
    let trace = |name, wanted| Switch::traced(name, wanted);
    let mut conditional = armed("a condition", &line, count.clone());
    conditional.on[0]["condition"] = json!("step == 2 and total > 10 ** 9");
    let mut stopping = armed("stops", &line, json!({"do": "stop"}));
    stopping.lets_go_on = false;
    stopping.off.push(json!({"op": "release", "stops": []}));
    let eval = json!({"op": "eval", "code": "print('seen')"});
    let mut all = vec![
        tracer("memory"),
        tracer("heap"),
        trace(
            "a trace",
            json!({"op": "trace", "of": "function", "function": "inner"}),
        ),
        trace(
            "a trace of what is called",
            json!({"op": "trace", "of": "function", "function": "calls", "depth": 2, "stats": true}),
        ),
        trace(
            "a trace of lines",
            json!({"op": "trace", "of": "function", "function": "inner", "lines": true}),
        ),
        trace(
            "a trace of a generator",
            json!({"op": "trace", "of": "function", "function": "numbers"}),
        ),
        trace(
            "a trace of a module",
            json!({"op": "trace", "of": "module", "module": "json"}),
        ),
        armed("a line", &line, count.clone()),
        armed("a function", &function, count),
        armed("a log", &line, json!({"do": "log", "text": "{total}"})),
        armed("a snapshot", &function, json!({"do": "snapshot"})),
        conditional,
        stopping,
        watch(
            "raised exceptions",
            json!({"on": "raise", "exception": "KeyError"}),
        ),
        watch("uncaught exceptions", json!({"on": "uncaught"})),
        watch(
            "a local variable",
            json!({"on": "local", "function": "inner", "name": "total"}),
        ),
        watch("a global variable", value("level")),
        watch("an attribute", value("settings.rate")),
        watch("an item", value("table['count']")),
        watch(
            "the environment",
            json!({"on": "environment", "name": "SWITCHED"}),
        ),
        Switch::new(
            "waiting for torch",
            json!({"op": "torch", "ask": "on", "trace": {"every": 1, "memory": "never"}}),
            json!({"op": "torch", "ask": "off"}),
        ),
        Switch::new("an eval", eval.clone(), eval),
    ];
    if python.version >= (3, 12) {
        let visit = json!({"op": "eval", "code": "1", "thread": "calls"});
        all.push(Switch::new("an eval on a thread", visit.clone(), visit));
    }
    all.push(Switch::all_ended_by_detach(&all));
    all
}

#[test]
fn whatever_can_be_switched_is_beside_threads_that_use_it() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut board = Switchboard::new(&sandbox, sandbox.probed(python, PROGRAM));
        for switch in switches(python) {
            board.turn(&switch, FEW_CYCLES);
        }
        // A finder of modules that is no longer needed stays, as a thread may be in it; there is one, and no more.
        assert_eq!(board.value("own_finders()"), "1");
    });
}

#[test]
#[ignore = "takes half an hour: 500 times each on every Python. Run by `make stress`"]
fn whatever_can_be_switched_is_five_hundred_times() {
    every_python(|python| {
        for switch in switches(python) {
            let sandbox = sandbox();
            let mut board = Switchboard::new(&sandbox, sandbox.probed(python, PROGRAM));
            let done = board.turn(&switch, CYCLES);
            let (major, minor) = python.version;
            eprintln!("{major}.{minor} {}: {done:?}", switch.name);
            let grown = done.blocks[1].saturating_sub(done.blocks[0]);
            let most = u64::from(CYCLES) * MAX_BLOCKS_PPM / 1_000_000;
            assert!(grown <= most, "{}: {done:?}", switch.name);
            assert!(
                done.open_files[1] <= done.open_files[0],
                "{}: {done:?}",
                switch.name
            );
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
