//! Local variables: what is shown is what the target itself sees, whatever their types.

use std::collections::BTreeMap;

use probing_proto::process::Pid;
use probing_stacks::{Frame, LocalLimits, Options, Reader, Snapshot};
use probing_testkit::{Python, Sandbox, Target, every_python, wait_until};
use serde_json::Value;

use crate::target::{main_of, start};

pub(crate) fn with_locals(limits: LocalLimits) -> Options {
    Options {
        locals: Some(limits),
        ..Options::default()
    }
}

fn read(target: &Target, limits: LocalLimits) -> Snapshot {
    probing_stacks::read(Pid(target.pid()), &with_locals(limits)).unwrap()
}

/// Name to value and type.
fn shown(frame: &Frame) -> BTreeMap<String, Value> {
    let locals = frame.locals.as_ref().unwrap().iter();
    locals
        .map(|local| {
            let value = serde_json::json!([*local.value, local.kind.as_deref()]);
            (local.name.to_string(), value)
        })
        .collect()
}

/// Starts the target, reads it when main waits for its input, and gives what it said.
fn start_values(python: &Python) -> (Target, Value) {
    let mut target = start(python, "values.py");
    let truth: Value = serde_json::from_str(&target.line()).unwrap();
    wait_until("main waits", || {
        let snapshot = read(&target, LocalLimits::default());
        let main = main_of(&snapshot);
        main.frames.len() == 1 && matches!(main.state, probing_stacks::State::Syscall { .. })
    });
    (target, truth)
}

#[test]
fn locals_are_those_that_python_sees() {
    every_python(|python| {
        let (target, truth) = start_values(python);
        let snapshot = read(&target, LocalLimits::default());
        let frames = truth["frames"].as_object().unwrap();
        assert_eq!(snapshot.threads.len(), frames.len() + 1);
        for thread in &snapshot.threads[1..] {
            let expected = frames[&thread.ident.to_string()].as_array().unwrap();
            assert_eq!(thread.frames.len(), expected.len());
            for (frame, expected) in thread.frames.iter().zip(expected) {
                let (shown, expected) = (shown(frame), expected[1].as_object().unwrap());
                for (name, value) in expected {
                    let found = shown.get(name);
                    assert_eq!(found, Some(value), "{name} in {}", frame.func);
                }
                assert_eq!(
                    (shown.len(), frame.more_locals),
                    (expected.len(), 0),
                    "{frame:?}"
                );
            }
        }
    });
}

#[test]
fn a_module_shows_what_it_made_itself() {
    every_python(|python| {
        let (target, _) = start_values(python);
        let snapshot = read(&target, LocalLimits::default());
        let globals = shown(&main_of(&snapshot).frames[0]);
        assert_eq!(globals["answer"], serde_json::json!(["42", "int"]));
        assert_eq!(globals["_private"][0], "('module', 1)");
        for hidden in ["__name__", "__builtins__", "sys", "Model", "written"] {
            assert!(!globals.contains_key(hidden), "{hidden}");
        }
    });
}

/// The value of a variable in the innermost frame that has it.
fn value(snapshot: &Snapshot, thread: &str, name: &str) -> String {
    let mut threads = snapshot.threads.iter();
    let thread = threads.find(|found| found.name.as_deref() == Some(thread));
    let frames = &thread.unwrap().frames;
    let mut locals = frames
        .iter()
        .filter_map(|frame| frame.locals.as_ref())
        .flatten();
    locals
        .find(|local| &*local.name == name)
        .unwrap()
        .value
        .to_string()
}

#[test]
fn values_are_cut_to_the_limits() {
    every_python(|python| {
        let (target, _) = start_values(python);
        let limits = LocalLimits {
            values: 12,
            items: 2,
            depth: 1,
            text: 5,
            ..LocalLimits::default()
        };
        let snapshot = read(&target, limits);
        let check = |thread: &str, name: &str, expected: &str| {
            assert_eq!(value(&snapshot, thread, name), expected, "{name}");
        };
        check("texts", "ascii", "'plain'");
        check("texts", "derived", "'dériv…' (1 more)");
        check("numbers", "digits", "10737… (5 more)");
        check("containers", "nothing", "[[], (), … 3 more]");
        check("containers", "triple", "(1, 'two', … 1 more)");
        check("containers", "mixed", "{'a': 1, 2: [… 1 more], … 2 more}");
        check(
            "containers",
            "members",
            "[{… 1 more}, frozenset({… 1 more}), … 1 more]",
        );
        check(
            "objects",
            "settings",
            "Settings(rate=0.5, name='adam', … 1 more)",
        );
        check("recursive", "loop", "[1, [...]]");
        let many = snapshot.threads.iter().flat_map(|thread| &thread.frames);
        let wide = many.clone().find(|frame| &*frame.func == "wide").unwrap();
        assert_eq!(
            (wide.locals.as_ref().unwrap().len(), wide.more_locals),
            (12, 87)
        );
        // Nothing may be read: then every value is left out, and none is made up.
        let none = LocalLimits {
            total_bytes: 1,
            ..LocalLimits::default()
        };
        let snapshot = read(&target, none);
        let frames = snapshot.threads.iter().flat_map(|thread| &thread.frames);
        assert!(frames.clone().count() > 50);
        assert!(frames.flat_map(|frame| &frame.locals).all(Vec::is_empty));
    });
}

/// A number that is even and at least where the target began.
fn even(text: &str) -> Option<u128> {
    let number: u128 = text.parse().ok()?;
    (number.is_multiple_of(2) && number > 2_000_000).then_some(number)
}

/// Whether a variable of `changing.py` can ever have been so.
fn can_be(name: &str, value: &str) -> bool {
    let inside = |start: &str, end: &str| value.strip_prefix(start)?.strip_suffix(end);
    let list = |text: &str| -> Option<Vec<u128>> {
        let items = text
            .split(", ")
            .filter(|item| !item.is_empty() && !item.starts_with('…'));
        items.map(even).collect()
    };
    let possible = match name {
        "number" => even(value).or((value == "2000000").then_some(0)).is_some(),
        "text" => inside("'<", ">'").and_then(even).is_some(),
        "wide" => inside("'名", "'").and_then(even).is_some(),
        "half" => value
            .strip_suffix(".5")
            .or(value.strip_suffix(".0"))
            .is_some(),
        "huge" => value
            .parse()
            .is_ok_and(|huge: u128| huge.trailing_zeros() >= 101),
        "pair" => inside("[", "]")
            .and_then(|text| text.split_once(", -"))
            .is_some_and(|(one, other)| even(one).is_some() && one == other),
        "record" => inside("('<", "})")
            .and_then(|text| text.split_once(">', {'n': "))
            .is_some_and(|(one, other)| even(one).is_some() && one == other),
        "growing" => inside("[", "]").and_then(list).is_some_and(|all| {
            all.len() <= 10 && all.windows(2).all(|pair| pair[0] + 2 == pair[1])
        }),
        "table" => inside("{", "}").is_some_and(|text| {
            let pairs = text
                .split(", ")
                .filter(|pair| !pair.is_empty() && !pair.starts_with('…'));
            let mut pairs = pairs.map(|pair| pair.split_once(": "));
            pairs.all(|pair| {
                pair.is_some_and(|(key, text)| even(key).is_some() && text == format!("'<{key}>'"))
            })
        }),
        _ => false,
    };
    possible || value == "<changing>"
}

/// Reads it so often; how many values were seen.
fn read_changing(python: &Python, pause: &str, readings: usize) -> usize {
    let target = Sandbox::new("none")
        .target(python, "stacks/changing.py")
        .arg(pause)
        .start();
    let mut reader = Reader::open(Pid(target.pid())).unwrap();
    let options = with_locals(LocalLimits::default());
    let mut known = 0;
    for _ in 0..readings {
        let snapshot = reader.read(&options).unwrap();
        let frames = main_of(&snapshot).frames.iter();
        for frame in frames.filter(|frame| &*frame.func == "spin") {
            for local in frame.locals.iter().flatten() {
                assert!(can_be(&local.name, &local.value), "{local:?}");
                known += usize::from(&*local.value != "<changing>");
            }
        }
    }
    known
}

#[test]
fn what_changes_all_the_time_is_never_shown_as_what_it_never_was() {
    every_python(|python| {
        read_changing(python, "0", 300);
        assert!(read_changing(python, "0.001", 200) > 200);
    });
}
