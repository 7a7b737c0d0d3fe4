//! Programs do the same with breakpoints all over them as without: tests of CPython's own, run both ways.
#![expect(clippy::print_stderr, reason = "says what was left out")]

use std::collections::BTreeMap;

use probing_proto::stops::{Action, Arm, Place};
use probing_testkit::{Python, Sandbox, TargetBuilder, every_python};

use crate::debugger::{Client, arm, log, sandbox, when};

/// A test module of CPython, and modules that it tests.
type Module = &'static [&'static str];

/// Those that are quick.
const FEW: [Module; 1] = [&["test_contextlib", "contextlib"]];
const MANY: [Module; 13] = [
    &["test_generators"],
    &["test_coroutines", "types"],
    &["test_exceptions"],
    &["test_asyncgen", "asyncio.base_events"],
    &["test_contextlib_async", "contextlib"],
    &["test_sys_settrace"],
    &["test_sys_setprofile"],
    &["test_with"],
    &["test_genexps"],
    &["test_functools", "functools"],
    &["test_dataclasses", "dataclasses"],
    &["test_descr"],
    &["test_traceback", "traceback"],
];
/// Points in one program.
const FEW_POINTS: usize = 40;
/// A process takes 1000.
const MANY_POINTS: usize = 990;

/// What became of each test.
type Outcomes = BTreeMap<String, Vec<String>>;

/// Runs a module; `None` where the installation does not have it.
fn outcomes(sandbox: &Sandbox, python: &Python, module: Module, points: usize) -> Option<Outcomes> {
    let started = sandbox.target(python, "corpus.py").env("PROBING", "1");
    let started = module.iter().fold(started, TargetBuilder::arg);
    let mut target = started.start();
    let first: serde_json::Value = serde_json::from_str(&target.line()).unwrap();
    let places = first.as_array()?;
    let mut client = Client::new(sandbox, &target);
    if points > 0 {
        let chosen = places.iter().step_by(places.len().div_ceil(points));
        for (index, place) in chosen.enumerate() {
            client.arm(point(index, place));
        }
        client.arm(arm(Place::Raise {
            exception: Some("ValueError".to_owned()),
        }));
        client.arm(arm(Place::Uncaught));
    }
    target.say("go");
    let outcomes = serde_json::from_str(&target.line()).unwrap();
    if points > 0 {
        let fired: u64 = client.points().iter().map(|point| point.fired).sum();
        assert!(fired > 0, "nothing was met in {module:?}");
    }
    target.end();
    Some(outcomes)
}

/// Points of all kinds, in turn.
fn point(index: usize, place: &serde_json::Value) -> Arm {
    let place = arm(Place::Line {
        file: place[0].as_str().unwrap().to_owned(),
        line: place[1].as_u64().unwrap() as u32,
    });
    match index % 6 {
        0 => place,
        1 => log(place, "{1 + 1}"),
        2 => Arm {
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
fn same_results(modules: &[Module], points: usize) {
    every_python(|python| {
        let sandbox = sandbox();
        for module in modules {
            let Some(unarmed) = outcomes(&sandbox, python, module, 0) else {
                eprintln!("{python:?} has no {module:?}: left out");
                continue;
            };
            assert!(!unarmed.is_empty(), "{module:?} has no tests");
            let armed = outcomes(&sandbox, python, module, points).unwrap();
            let differ = unarmed
                .iter()
                .filter(|(test, outcome)| armed.get(*test) != Some(*outcome));
            let differ: Vec<_> = differ
                .map(|(test, was)| (test, was, armed.get(test)))
                .collect();
            assert!(differ.is_empty(), "{python:?} {module:?}: {differ:#?}");
            assert_eq!(unarmed.len(), armed.len(), "{python:?} {module:?}");
        }
    });
}

#[test]
fn a_program_does_the_same_with_breakpoints_all_over_it() {
    same_results(&FEW, FEW_POINTS);
}

#[test]
#[ignore = "some minutes: `make stress`"]
fn many_programs_do_the_same_with_breakpoints_all_over_them() {
    same_results(&MANY, MANY_POINTS);
}
