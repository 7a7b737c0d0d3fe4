//! What `probing connect` says and hears.

use probing_proto::lines::{AskLine, TellLine};

use crate::{check, check_kinds, parts};

#[test]
fn every_example_is_a_line() {
    check::<AskLine, TellLine>(&parts().1);
}

#[test]
fn every_kind_of_line_has_an_example() {
    let all = [
        "eval",
        "cancel",
        "backtrace",
        "query",
        "arm",
        "disarm",
        "points",
        "stops",
        "release",
        "detach",
        "hello",
        "output",
        "evaluated",
        "stuck",
        "table",
        "done",
        "failed",
        "gone",
    ];
    check_kinds(&parts().1, &["op", "event"], &all);
}

#[test]
fn a_misspelt_option_is_refused() {
    let line = r#"{"id": 1, "op": "backtrace", "every": true}"#;
    let error = serde_json::from_str::<AskLine>(line).unwrap_err();
    assert!(error.to_string().contains("`every`"), "{error}");
}
