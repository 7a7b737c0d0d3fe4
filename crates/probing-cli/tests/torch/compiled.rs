//! Functions that `torch.compile` has taken the place of.

use probing_testkit::{Python, every_torch};

use crate::sandbox;

#[test]
fn a_compiled_function_says_that_it_cannot_stop_there() {
    let sandbox = sandbox();
    let mut target = sandbox.probed(&Python::with_torch(), "with_torch/compiled.py");
    let pid = target.pid().to_string();
    let line = include_str!("../../../../tests/targets/with_torch/compiled.py")
        .lines()
        .position(|line| line.ends_with("# @doubled"))
        .unwrap()
        + 1;
    let armed = |place: &str| {
        let ran = sandbox.probing(["-t", &pid, "break", place, "--action", "count"]);
        assert_eq!(ran.status, 0, "{ran:?}");
        format!("{}{}", ran.stdout, ran.stderr)
    };
    for place in ["doubled", &format!("compiled.py:{line}")] {
        let told = armed(place);
        assert!(
            told.contains("doubled is compiled by torch.compile"),
            "{told}"
        );
    }
    let told = armed("plain");
    assert!(!told.contains("torch.compile"), "{told}");
    target.say("go");
    assert_eq!(target.line(), "6.0 2");
    let points = sandbox
        .probing(["-t", &pid, "breakpoints", "--json"])
        .json();
    let hits: Vec<_> = points["points"]
        .as_array()
        .unwrap_or_else(|| panic!("{points}"))
        .iter()
        .map(|point| point["passed"].as_u64())
        .collect();
    assert_eq!(hits, [Some(0), Some(0), Some(1)], "{points}");
    assert_eq!(sandbox.probing(["-t", &pid, "delete", "all"]).status, 0);
    target.end();
}

#[test]
fn a_function_that_was_taken_into_another_one_s_graph_says_so() {
    every_torch(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "with_torch/compiled.py");
        let pid = target.pid().to_string();
        let armed = |place: &str| {
            let ran = sandbox.probing(["-t", &pid, "break", place, "--action", "count"]);
            assert_eq!(ran.status, 0, "{ran:?}");
            format!("{}{}", ran.stdout, ran.stderr)
        };
        for (function, callers) in [
            ("shifted", "outer"),
            ("scaled", "Model.forward, outer"),
            ("Base.helped", "Model.forward"),
        ] {
            let told = armed(function);
            // Before 3.11 code does not know its class.
            let callers = if python.version < (3, 11) {
                callers.replace("Model.", "")
            } else {
                callers.to_owned()
            };
            let words = format!(
                "{function} is part of what torch.compile made of {callers}: calls from there do not stop"
            );
            assert!(told.contains(&words), "{told}");
        }
        for function in ["plain", "both", "Model.__init__"] {
            let told = armed(function);
            assert!(!told.contains("torch.compile"), "{told}");
        }
        target.say("go");
        assert_eq!(target.line(), "6.0 2");
        let points = sandbox
            .probing(["-t", &pid, "breakpoints", "--json"])
            .json();
        let hits = (0..6).map(|place| points["points"][place]["passed"].as_u64());
        let hits: Vec<Option<u64>> = hits.collect();
        assert_eq!(hits, [0, 0, 0, 1, 1, 0].map(Some), "{points}");
        assert_eq!(sandbox.probing(["-t", &pid, "delete", "all"]).status, 0);
        target.end();
    });
}
