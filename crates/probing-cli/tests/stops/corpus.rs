//! Programs do the same with breakpoints, watches and traces all over them as without: tests of CPython's own, run both ways.
#![expect(clippy::print_stderr, reason = "says what was left out")]

use std::collections::BTreeMap;

use probing_proto::message::breakpoints::{Action, BreakpointLocation, SetBreakpoint};
use probing_proto::message::trace::{Scope, Trace};
use probing_proto::message::{Call, Event};
use probing_testkit::{Python, Sandbox, TargetBuilder, every_python};

use crate::debugger::{Client, arm, log, sandbox, when};

/// A test module of CPython, and modules that it tests.
type Module = &'static [&'static str];

/// What is in one program.
#[derive(Clone, Copy)]
struct Armed {
    points: usize,
    watches: usize,
    traces: usize,
}

const NONE: Armed = Armed {
    points: 0,
    watches: 0,
    traces: 0,
};
const FEW: Armed = Armed {
    points: 40,
    watches: 6,
    traces: 10,
};
const MANY: Armed = Armed {
    points: 300,
    watches: 30,
    traces: 80,
};

/// Counts all objects that there are, twice, with ten comparisons between. A snapshot in there tells objects by their
/// attributes: to ask for those has Python make the dictionary that holds them (from 3.12 on; for objects without any on
/// every Python), and keep it with the object. So each of these has one more: the test, its outcome, its suite, the result
/// they report to, and the object that is compared, which a watch of the variable that holds it tells as well. The first
/// snapshot of a process also loads the code that tells: some hundred functions and tuples. To count and to log leaves none.
const COUNTS_OBJECTS: &str = "test_slots (test.test_descr.ClassPropertiesAndMethods";

/// Counts the references to a constant of its own code. Before 3.12 a point in it that is met once goes away meanwhile, and it
/// gets another twin, for its trace alone: one more code object with that constant.
const COUNTS_REFERENCES: &str = "test_for_2 (test.test_coroutines.CoroutineTest";

/// What became of each test.
type Outcomes = BTreeMap<String, Vec<String>>;

/// What a program has to say of itself before it begins.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum First {
    Found {
        places: Vec<(String, u32)>,
        /// With the functions that they are of; of modules, with their own names.
        variables: Vec<(Option<String>, String)>,
        functions: Vec<String>,
    },
    Missing {},
}

/// Runs a module; `None` where the installation does not have it.
fn outcomes(sandbox: &Sandbox, python: &Python, module: Module, armed: Armed) -> Option<Outcomes> {
    let started = sandbox.target(python, "corpus.py").env("PROBING", "1");
    let started = module.iter().fold(started, TargetBuilder::arg);
    let mut target = started.start();
    let First::Found {
        places,
        variables,
        functions,
    } = serde_json::from_str(&target.line()).unwrap()
    else {
        return None;
    };
    let mut client = Client::new(sandbox, &target);
    if armed.points > 0 {
        for (index, place) in some(&places, armed.points).enumerate() {
            client.arm(point(index, place));
        }
        for variable in some(&variables, armed.watches) {
            client.arm(watch(variable));
        }
        client.arm(arm(BreakpointLocation::Raise {
            exception: Some("ValueError".to_owned()),
        }));
        client.arm(arm(BreakpointLocation::Uncaught));
    }
    let traced = some(&functions, armed.traces.max(1)).take(armed.traces);
    for (index, function) in traced.enumerate() {
        let begun = client.ask(Call::Trace(trace(index, function)));
        assert!(matches!(begun, Event::Traced(_)), "{begun:?}");
    }
    target.say("go");
    let outcomes = serde_json::from_str(&target.line()).unwrap();
    if armed.points > 0 {
        let fired: u64 = client.points().iter().map(|point| point.fired).sum();
        assert!(fired > 0, "nothing was met in {module:?}");
        let Event::Traces { traces } = client.ask(Call::Traces) else {
            panic!("no traces of {module:?}");
        };
        let events: u64 = traces.iter().map(|trace| trace.events).sum();
        // What has documents alone for tests calls hardly any function of its own.
        assert!(
            events > 0 || traces.len() < 5,
            "nothing was traced in {module:?}"
        );
    }
    target.end();
    Some(outcomes)
}

/// So many of all, from everywhere.
fn some<T>(all: &[T], count: usize) -> impl Iterator<Item = &T> {
    all.iter().step_by(all.len().div_ceil(count).max(1))
}

/// Every other one with its lines.
fn trace(index: usize, function: &str) -> Trace {
    Trace {
        scope: Scope::Function {
            function: function.to_owned(),
            file: None,
        },
        depth: 0,
        watch: Vec::new(),
        stats: false,
        lines: index % 2 == 1,
        for_millis: None,
        steps: None,
        budget_ppm: None,
    }
}

fn watch((function, name): &(Option<String>, String)) -> SetBreakpoint {
    arm(match function {
        Some(function) => BreakpointLocation::Local {
            function: function.clone(),
            name: name.clone(),
        },
        None => BreakpointLocation::Value { path: name.clone() },
    })
}

/// Points of all kinds, in turn.
fn point(index: usize, (file, line): &(String, u32)) -> SetBreakpoint {
    let place = arm(BreakpointLocation::Line {
        file: file.clone(),
        line: *line,
    });
    match index % 6 {
        0 => place,
        1 => log(place, "{1 + 1}"),
        2 => SetBreakpoint {
            action: Action::Snapshot,
            once: true,
            ..place
        },
        3 => when("__name__ == 'nobody'", place),
        4 => when("[each for each in locals()] == 1", place),
        _ => log(
            when("len(__name__) > 3 and __name__ != 'x'", place),
            "{__name__}",
        ),
    }
}

#[track_caller]
fn same_results(module: Module, points: Armed) {
    every_python(|python| {
        let sandbox = sandbox();
        // What has documents alone for tests has none that are found, in 3.10.
        let unarmed = outcomes(&sandbox, python, module, NONE).filter(|all| !all.is_empty());
        let Some(unarmed) = unarmed else {
            eprintln!("{python:?} has no tests {module:?}: left out");
            return;
        };
        let armed = outcomes(&sandbox, python, module, points).unwrap();
        let differ = unarmed.iter().filter(|(test, outcome)| {
            let counts = [COUNTS_OBJECTS, COUNTS_REFERENCES];
            armed.get(*test) != Some(*outcome) && !counts.iter().any(|it| test.starts_with(it))
        });
        let differ: Vec<_> = differ
            .map(|(test, was)| (test, was, armed.get(test)))
            .collect();
        assert!(differ.is_empty(), "{python:?} {module:?}: {differ:#?}");
        assert_eq!(unarmed.len(), armed.len(), "{python:?} {module:?}");
    });
}

#[test]
fn a_program_does_the_same_with_breakpoints_all_over_it() {
    same_results(&["test_contextlib", "contextlib"], FEW);
}

macro_rules! do_the_same_with_breakpoints_all_over {
    ($($name:ident: $module:expr,)*) => {
        $(
            #[test]
            #[ignore = "some minutes: `make stress`"]
            fn $name() {
                same_results(&$module, MANY);
            }
        )*
    };
}

do_the_same_with_breakpoints_all_over! {
    generators_do_the_same: ["test_generators"],
    coroutines_do_the_same: ["test_coroutines", "types"],
    exceptions_do_the_same: ["test_exceptions"],
    asynchronous_generators_do_the_same: ["test_asyncgen", "asyncio.base_events"],
    contexts_do_the_same: ["test_contextlib", "contextlib"],
    asynchronous_contexts_do_the_same: ["test_contextlib_async", "contextlib"],
    tracers_do_the_same: ["test_sys_settrace"],
    profilers_do_the_same: ["test_sys_setprofile"],
    with_statements_do_the_same: ["test_with"],
    generator_expressions_do_the_same: ["test_genexps"],
    functions_of_functions_do_the_same: ["test_functools", "functools"],
    data_classes_do_the_same: ["test_dataclasses", "dataclasses"],
    descriptors_do_the_same: ["test_descr"],
    tracebacks_do_the_same: ["test_traceback", "traceback"],
}
