//! The examples in docs/protocol.md are messages, exactly, and every kind of message is shown.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;

use probing_proto::message::{Message, Request};
use serde_json::Value;

fn examples() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md");
    let text = std::fs::read_to_string(path).unwrap();
    // What follows has a test of its own.
    let (text, _) = text.split_once("\n# Lines for programs\n").unwrap();
    text.split("```json\n")
        .skip(1)
        .map(|block| serde_json::from_str(block.split("```").next().unwrap()).unwrap())
        .collect()
}

/// Decodes as what it is and encodes again.
fn through_our_types(example: &Value) -> Value {
    if example.get("op").is_some() {
        serde_json::to_value(serde_json::from_value::<Request>(example.clone()).unwrap()).unwrap()
    } else {
        serde_json::to_value(serde_json::from_value::<Message>(example.clone()).unwrap()).unwrap()
    }
}

#[test]
fn every_example_is_a_message() {
    for example in examples() {
        assert_eq!(through_our_types(&example), example);
    }
}

#[test]
fn every_kind_of_message_has_an_example() {
    let shown: BTreeSet<String> = examples()
        .iter()
        .flat_map(|example| {
            ["op", "event", "outcome", "stream"].map(|tag| example.get(tag).cloned())
        })
        .flatten()
        .map(|tag| tag.as_str().unwrap().to_owned())
        .collect();
    let all = [
        "eval",
        "locals",
        "complete",
        "completions",
        "describe",
        "described",
        "progress",
        "cancel",
        "detach",
        "hello",
        "output",
        "evaluated",
        "done",
        "cancelling",
        "failed",
        "finished",
        "raised",
        "syntax_error",
        "stdout",
        "stderr",
    ];
    assert_eq!(shown, all.into_iter().map(str::to_owned).collect());
}
