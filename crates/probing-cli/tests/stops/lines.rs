//! Lines are hit as often as a trace function sees them, also where 3.10 and 3.11 run instrumented code.

use std::collections::BTreeMap;

use probing_proto::message::breakpoints::{BreakpointLocation, SetBreakpoint};
use probing_proto::message::{Call, Event};
use probing_testkit::{Python, Sandbox, Target, every_python};

use crate::debugger::{Client, Debugged, arm, at, in_function, sandbox};

const PROGRAM: &str = "lines.py";

type Counts = BTreeMap<u32, u64>;

fn told<T: serde::de::DeserializeOwned>(target: &mut Target, expression: &str) -> T {
    target.say(expression);
    let line = target.line();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// What a command says that must succeed.
fn succeeded(sandbox: &Sandbox, pid: &str, arguments: &[&str]) -> String {
    let ran = sandbox.probing([&["-t", pid], arguments].concat());
    assert_eq!(ran.status, 0, "{arguments:?}: {ran:?}");
    ran.stdout
}

fn on_line(line: u32) -> SetBreakpoint {
    arm(BreakpointLocation::Line {
        file: PROGRAM.to_owned(),
        line,
    })
}

/// What a trace function counts, and what points count, while the program does this.
fn both(python: &Python, does: &str) -> (Counts, Counts) {
    let sandbox = sandbox();
    let mut target = sandbox.target(python, PROGRAM).env("PROBING", "1").start();
    let mut expected: Counts = told(&mut target, &format!("traced({does})"));
    let result: serde_json::Value = told(&mut target, &format!("{does}()"));
    let mut client = Client::new(&sandbox, &target);
    for line in expected.keys() {
        client.arm(on_line(*line));
    }
    // Twice: some would be met once and not again.
    for _ in 0..2 {
        let armed: serde_json::Value = told(&mut target, &format!("{does}()"));
        assert_eq!(armed, result);
    }
    for count in expected.values_mut() {
        *count *= 2;
    }
    let points = client.disarm_all();
    let counted = points.iter().map(|it| (it.bound[0].lineno, it.hits));
    let counted = counted.collect();
    let again: serde_json::Value = told(&mut target, &format!("{does}()"));
    assert_eq!(again, result);
    let ended = target.end();
    assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    (expected, counted)
}

#[test]
fn a_line_is_counted_as_often_as_a_trace_function_sees_it() {
    every_python(|python| {
        // Before 3.12 the first is told by calls in the code alone; in the second some of it has to be traced.
        let all = ["plain", "main"];
        for does in &all[usize::from(python.version >= (3, 12))..] {
            let (expected, counted) = both(python, does);
            assert!(expected.len() > 50, "{expected:?}");
            assert_eq!(counted, expected, "{does}");
        }
    });
}

#[test]
fn a_generator_that_waits_hits_its_breakpoint_when_it_resumes() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin("waiting = numbers(3); print(next(waiting))");
        assert_eq!(debugged.ended(), ["0"]);
        debugged.client.arm(at("twice"));
        assert_eq!(debugged.told("next(waiting)"), "2");
        assert_eq!(debugged.client.points()[0].hits, 1);
        // One that begins now, beside it.
        assert_eq!(
            debugged.told("list(numbers(2)), list(waiting)"),
            "[0, 2] [4]"
        );
        assert_eq!(debugged.client.points()[0].hits, 4);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_function_with_breakpoints_is_still_the_programs() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged
            .begin("import inspect, pickle, types; method = Trainer.fit; before = method.__code__");
        debugged.ended();
        let looks = [
            "[getattr(method.__code__, name) == getattr(before, name) for name in ('co_name', 'co_filename', \
             'co_firstlineno', 'co_varnames', 'co_names', 'co_freevars', 'co_flags')]",
            "sorted({line for *_, line in method.__code__.co_lines() if line}) == \
             sorted({line for *_, line in before.co_lines() if line})",
            "inspect.getsource(method) == inspect.getsource(before)",
            // As by those who send functions elsewhere.
            "types.FunctionType(method.__code__.replace(co_consts=pickle.loads(pickle.dumps(method.__code__.co_consts))), \
             globals())(trainer, 2)",
        ];
        let plain: Vec<String> = looks.iter().map(|look| debugged.told(look)).collect();
        debugged.client.arm(at("second"));
        debugged.client.arm(in_function("Trainer.fit"));
        let armed: Vec<String> = looks.iter().map(|look| debugged.told(look)).collect();
        assert_eq!(armed, plain);
        // A second point in it, and one taken away, leave the other.
        let third = debugged.client.arm(at("third"));
        assert_eq!(debugged.told("trainer.fit(1)"), "9");
        debugged.client.ask(probing_proto::message::Call::Disarm {
            points: vec![third.point],
        });
        assert_eq!(debugged.told("trainer.fit(1)"), "9");
        let hits: Vec<u64> = debugged
            .client
            .disarm_all()
            .iter()
            .map(|it| it.hits)
            .collect();
        // What was made of the armed code was told, too, where that is the function's own.
        let sent = u64::from(python.version >= (3, 12));
        assert_eq!(hits, [2 + sent, 2 + sent]);
        assert_eq!(debugged.told("method.__code__ is before"), "True");
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_watchpoint_misses_nothing_in_a_function_with_breakpoints() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(arm(BreakpointLocation::Local {
            function: "count".to_owned(),
            name: "step".to_owned(),
        }));
        debugged.client.arm(at("count"));
        debugged.begin("count(3)");
        debugged.ended();
        let pid = debugged.target.pid().to_string();
        let sql = "select new from python.variables order by ts";
        let rows = debugged
            .sandbox
            .probing(["-t", &pid, "query", "--csv", sql]);
        assert_eq!(rows.stdout, "new\n0\n1\n2\n3\n");
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

/// What the program does and what a trace function of its own sees stays the same.
#[test]
fn watches_of_every_variable_change_nothing() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, PROGRAM).env("PROBING", "1").start();
        let result: serde_json::Value = told(&mut target, "main()");
        let lines: Counts = told(&mut target, "traced(main)");
        let variables: Vec<(String, String)> = told(&mut target, "variables()");
        assert!(variables.len() > 30, "{variables:?}");
        let mut client = Client::new(&sandbox, &target);
        let mut refused = Vec::new();
        for (function, name) in variables {
            let variable = format!("{function}:{name}");
            match client.ask(Call::Arm(arm(BreakpointLocation::Local { function, name }))) {
                Event::Armed(_) => {}
                Event::Failed(_) => refused.push(variable),
                event => panic!("{variable}: {event:?}"),
            }
        }
        // Those of comprehensions, which are part of the function from 3.12 on.
        let inlined = ["co:x", "failing:frame", "multi:y"];
        assert_eq!(
            refused,
            inlined[..3 * usize::from(python.version >= (3, 12))]
        );
        let armed: serde_json::Value = told(&mut target, "main()");
        assert_eq!(armed, result);
        let seen: Counts = told(&mut target, "traced(main)");
        assert_eq!(seen, lines);
        let points = client.disarm_all();
        let silent = points.iter().filter(|it| it.hits == 0);
        let silent: Vec<&BreakpointLocation> = silent.map(|it| &it.request.place).collect();
        assert!(silent.is_empty(), "{silent:?}");
        let again: serde_json::Value = told(&mut target, "main()");
        assert_eq!(again, result);
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    });
}

/// Nor what it raises: tracebacks have no frame of ours.
#[test]
fn traces_of_every_function_change_nothing() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, PROGRAM).env("PROBING", "1").start();
        let pid = target.pid().to_string();
        let probing = |arguments: &[&str]| succeeded(&sandbox, &pid, arguments);
        let result: serde_json::Value = told(&mut target, "main()");
        let lines: Counts = told(&mut target, "traced(main)");
        let functions: Vec<String> = told(&mut target, "going_through()");
        for function in &functions {
            let place = format!("{PROGRAM}:{function}");
            probing(&["trace", &place, "--budget", "none"]);
        }
        let traced: serde_json::Value = told(&mut target, "main()");
        assert_eq!(traced, result);
        let seen: Counts = told(&mut target, "traced(main)");
        assert_eq!(seen, lines);
        probing(&["untrace", "all"]);
        let again: serde_json::Value = told(&mut target, "main()");
        assert_eq!(again, result);
        let rows = "select func, count(*) filter (where kind = 'call') as calls, \
                    count(*) filter (where kind in ('return', 'exception')) as ends \
                    from python.trace_event group by func order by func";
        for row in probing(&["query", "--csv", rows]).lines().skip(1) {
            let parts: Vec<&str> = row.split(',').collect();
            assert_eq!(parts[1], parts[2], "{row}");
        }
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    });
}

/// Generators and coroutines included; what the program does, and what a trace function of its own sees, stays the same.
#[test]
fn lines_of_traces_are_those_that_a_trace_function_sees() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, PROGRAM).env("PROBING", "1").start();
        let pid = target.pid().to_string();
        let probing = |arguments: &[&str]| succeeded(&sandbox, &pid, arguments);
        let result: serde_json::Value = told(&mut target, "main()");
        let lines: Counts = told(&mut target, "traced(main)");
        let expected: Counts = told(&mut target, "traced_functions(main)");
        let functions: Vec<String> = told(&mut target, "[name for name, _ in functions()]");
        for function in &functions {
            let place = format!("{PROGRAM}:{function}");
            probing(&["trace", &place, "--lines", "--budget", "none"]);
        }
        let traced: serde_json::Value = told(&mut target, "main()");
        assert_eq!(traced, result);
        let counted =
            "select lineno, count(*) from python.trace_event where kind = 'line' group by lineno";
        let counted = probing(&["query", "--csv", counted]);
        let number = |row: &str| {
            let (line, count) = row.split_once(',')?;
            Some((line.parse().ok()?, count.parse().ok()?))
        };
        let counted: Counts = counted.lines().filter_map(number).collect();
        assert!(expected.len() > 50, "{expected:?}");
        assert_eq!(counted, expected);
        let mut seen: Counts = told(&mut target, "traced(main)");
        // Before 3.12, code around a generator has the line of its name.
        seen.retain(|line, _| lines.contains_key(line));
        assert_eq!(seen, lines);
        probing(&["untrace", "all"]);
        let again: serde_json::Value = told(&mut target, "main()");
        assert_eq!(again, result);
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    });
}

/// Where a copy of the code stands in its place: what cannot be the same, and that it ends.
#[test]
fn code_with_breakpoints_can_be_marshalled_where_it_is_the_functions_own() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let dumped = "def dumped():\n    try:\n        return marshal.loads(marshal.dumps(method.__code__)) == before\n    \
                      except ValueError as error:\n        return str(error)\n";
        debugged.begin(&format!("import marshal; method = Trainer.fit; before = method.__code__; exec({dumped:?}, globals())"));
        debugged.ended();
        let looks = "method.__code__ == before, dumped()";
        assert_eq!(debugged.told(looks), "True True");
        debugged.client.arm(at("second"));
        let same = if python.version >= (3, 12) {
            "True True"
        } else {
            "False unmarshallable object"
        };
        assert_eq!(debugged.told(looks), same);
        debugged.client.disarm_all();
        assert_eq!(debugged.told(looks), "True True");
        debugged.leaves_no_trace();
    });
}
