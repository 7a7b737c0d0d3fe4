//! The examples in docs/protocol.md are messages, exactly, and every kind of message is shown.
#![expect(clippy::unwrap_used, reason = "a test")]

mod lines;
mod protocol;

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The part on the probe's socket, and the part on lines for programs.
fn parts() -> (String, String) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (socket, lines) = text.split_once("\n# Lines for programs\n").unwrap();
    (socket.to_owned(), lines.to_owned())
}

fn examples(part: &str) -> Vec<Value> {
    part.split("```json\n")
        .skip(1)
        .map(|block| serde_json::from_str(block.split("```").next().unwrap()).unwrap())
        .collect()
}

/// Each decodes as what it is, and encodes as what it was.
fn check<Question, Answer>(part: &str)
where
    Question: Serialize + DeserializeOwned,
    Answer: Serialize + DeserializeOwned,
{
    for example in examples(part) {
        let again = if example.get("op").is_some() {
            through::<Question>(&example)
        } else {
            through::<Answer>(&example)
        };
        assert_eq!(again, example);
    }
}

fn through<T: Serialize + DeserializeOwned>(example: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(example.clone()).unwrap()).unwrap()
}

/// The kinds in these fields are exactly those.
fn check_kinds(part: &str, fields: &[&str], all: &[&str]) {
    let shown: BTreeSet<String> = examples(part)
        .iter()
        .flat_map(|example| kinds(example, fields))
        .collect();
    assert_eq!(shown, all.iter().map(|kind| (*kind).to_owned()).collect());
}

/// What stands in these fields, at any depth.
fn kinds(value: &Value, fields: &[&str]) -> Vec<String> {
    let own = fields
        .iter()
        .filter_map(|field| value.get(*field)?.as_str());
    let mut kinds: Vec<String> = own.map(str::to_owned).collect();
    let within: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Object(members) => Box::new(members.values()),
        Value::Array(elements) => Box::new(elements.iter()),
        _ => Box::new(std::iter::empty()),
    };
    kinds.extend(within.flat_map(|inner| self::kinds(inner, fields)));
    kinds
}
