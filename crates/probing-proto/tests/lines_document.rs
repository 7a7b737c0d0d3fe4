//! The lines for programs in docs/protocol.md are what `probing connect` says and hears, and every kind is shown.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;

use probing_proto::lines::{AskLine, TellLine};
use serde_json::Value;

fn examples() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, text) = text.split_once("\n# Lines for programs\n").unwrap();
    text.split("```json\n")
        .skip(1)
        .map(|block| serde_json::from_str(block.split("```").next().unwrap()).unwrap())
        .collect()
}

/// Decodes as what it is and encodes again.
fn through_our_types(example: &Value) -> Value {
    if example.get("op").is_some() {
        serde_json::to_value(serde_json::from_value::<AskLine>(example.clone()).unwrap()).unwrap()
    } else {
        serde_json::to_value(serde_json::from_value::<TellLine>(example.clone()).unwrap()).unwrap()
    }
}

#[test]
fn every_example_is_a_line() {
    for example in examples() {
        assert_eq!(through_our_types(&example), example);
    }
}

#[test]
fn every_kind_of_line_has_an_example() {
    let shown: BTreeSet<String> = examples()
        .iter()
        .flat_map(|example| ["op", "event"].map(|tag| example.get(tag).cloned()))
        .flatten()
        .map(|tag| tag.as_str().unwrap().to_owned())
        .collect();
    let all = [
        "eval",
        "cancel",
        "backtrace",
        "query",
        "detach",
        "hello",
        "output",
        "evaluated",
        "stuck",
        "done",
        "failed",
        "gone",
    ];
    assert_eq!(shown, all.into_iter().map(str::to_owned).collect());
}

#[test]
fn a_misspelt_option_is_refused() {
    let line = r#"{"id": 1, "op": "backtrace", "every": true}"#;
    let error = serde_json::from_str::<AskLine>(line).unwrap_err();
    assert!(error.to_string().contains("`every`"), "{error}");
}
