//! What `probing connect` says and hears.

use probing_proto::wire::json_lines::{LineMessage, LineRequest};

use crate::{check, check_kinds, parts};

#[test]
fn every_example_is_a_line() {
    check::<LineRequest, LineMessage>(&parts().1);
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
    let error = serde_json::from_str::<LineRequest>(line).unwrap_err();
    assert!(error.to_string().contains("`every`"), "{error}");
}
