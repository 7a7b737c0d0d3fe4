//! What documents say of an agent is true: the description for machines, and the examples for people.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use probing_proto::env::PROBING_TEST_SCHEMATHESIS;
use probing_testkit::{CommandResult, Python, root};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::sandbox;

/// Whether a value is as a schema says, as far as ours say anything.
fn check(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        let named = &document["components"]["schemas"][name];
        assert!(named.is_object(), "no schema is called {name}");
        return check(document, named, value, at);
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().map(|kind| kind.as_str().unwrap()).collect(),
        _ => Vec::new(),
    };
    let is = |kind: &&str| match *kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    };
    assert!(
        kinds.is_empty() || kinds.iter().any(is),
        "{at} is no {kinds:?}: {value}"
    );
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(
            value.get(name.as_str().unwrap()).is_some(),
            "{at} lacks {name}: {value}"
        );
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(name) {
            check(document, schema, value, &format!("{at}.{name}"));
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        assert!(values.contains(value), "{at}: {value}");
    }
    for value in value.as_array().into_iter().flatten() {
        check(document, &schema["items"], value, &format!("{at}[]"));
    }
}

#[test]
fn the_description_is_true() {
    let sandbox = sandbox();
    let python = Python::all().into_iter().next_back().unwrap();
    let target = sandbox.probed(&python, "idle.py");
    let agent = Agent::start(&sandbox);
    let document = agent.get("/openapi.json").json();
    let pid = target.pid();
    let mut seen = BTreeSet::new();
    let mut ask = |line: &str, body: Option<Value>| {
        let (method, path) = line.split_once(' ').unwrap();
        let answer = match &body {
            Some(body) => agent.post(path, body),
            None => agent.request(line, &[], ""),
        };
        let path = path.split('?').next().unwrap();
        let operation = &document["paths"][path][method.to_lowercase()];
        let response = &operation["responses"][answer.status.to_string()];
        assert!(
            response.is_object(),
            "{line}: status {} is not described",
            answer.status
        );
        let schema = &response["content"]["application/json"]["schema"];
        check(&document, schema, &answer.json(), line);
        if let Some(body) = &body {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            if answer.status == 200 {
                check(&document, schema, body, line);
            }
        }
        seen.insert((method.to_lowercase(), path.to_owned()));
        answer.status
    };
    assert_eq!(ask("GET /health", None), 200);
    assert_eq!(ask("GET /targets", None), 200);
    assert_eq!(ask("GET /openapi.json", None), 200);
    assert_eq!(
        ask(
            &format!("GET /backtrace?pid={pid}&all=true&locals=true"),
            None
        ),
        200
    );
    assert_eq!(ask("GET /backtrace?tasks=true", None), 200);
    assert_eq!(ask("GET /backtrace?pid=1", None), 404);
    assert_eq!(ask("GET /backtrace?rank=x", None), 400);
    assert_eq!(
        ask(
            &format!("GET /samples?pid={pid}&seconds=0.1&rate=50&idle=true"),
            None
        ),
        200
    );
    assert_eq!(ask("GET /samples?pid=1&seconds=1000&rate=1", None), 400);
    assert_eq!(
        ask(
            "POST /eval",
            Some(json!({"code": "1", "pid": pid, "timeout_seconds": 5}))
        ),
        200
    );
    assert_eq!(
        ask("POST /eval", Some(json!({"code": "1", "rank": 77}))),
        404
    );
    assert_eq!(
        ask("POST /query", Some(json!({"sql": "SELECT 1 AS one"}))),
        200
    );
    assert_eq!(ask("POST /query", Some(json!({"sql": "SELECT FROM"}))), 400);
    assert_eq!(
        ask("POST /query", Some(json!({"sql": "DROP TABLE x"}))),
        400
    );
    assert_eq!(ask(&format!("GET /ws?pid={pid}"), None), 400);
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(|method| (method.clone(), path.clone()))
        })
        .collect();
    assert_eq!(described, seen);
    // Everything but one thing says that it needs the token.
    for (path, methods) in document["paths"].as_object().unwrap() {
        for operation in methods.as_object().unwrap().values() {
            let is_open = operation
                .get("security")
                .is_some_and(|security| *security == json!([]));
            assert_eq!(is_open, path == "/health", "{path}");
        }
    }
}

/// Requests of all kinds that the description allows, and of some that it does not: none is answered in another way than it
/// says. Its token is always the right one: what wrong ones do is tried elsewhere, and would end this.
#[test]
fn schemathesis_finds_nothing_that_is_not_described() {
    let schemathesis = PROBING_TEST_SCHEMATHESIS.value().expect(
        "PROBING_TEST_SCHEMATHESIS is not set: run `scripts/schemathesis-environment`, or leave this test out",
    );
    let sandbox = sandbox();
    let python = Python::all().into_iter().next_back().unwrap();
    let target = sandbox.probed(&python, "idle.py");
    let agent = Agent::start(&sandbox);
    let mut command = Command::new(schemathesis);
    command
        .args(["run", &format!("http://{}/openapi.json", agent.name())])
        .args(["-H", &format!("Authorization: Bearer {}", agent.token)])
        .args([
            "--checks",
            "all",
            "--exclude-checks",
            "ignored_auth,positive_data_acceptance",
        ])
        .args(["--phases", "coverage,fuzzing", "--max-examples", "25"])
        .args([
            "--seed",
            "1",
            "--no-color",
            "--suppress-health-check",
            "all",
        ])
        .current_dir(sandbox.path());
    let ran = CommandResult::to_the_end(command);
    assert_eq!(ran.status, 0, "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(sandbox.eval(&target, "6 * 7").ok(), "42\n");
    let ended = target.end();
    assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
}

#[test]
fn the_examples_for_curl_work() {
    let sandbox = sandbox();
    let python = Python::all().into_iter().next_back().unwrap();
    let target = sandbox.probed(&python, "idle.py");
    let agent = Agent::start(&sandbox);
    let text = fs::read_to_string(root().join("docs/remote.md")).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("curl "))
        .collect();
    assert!(lines.len() >= 5, "{lines:?}");
    for line in lines {
        let line = line.replace("127.0.0.1:8080", &agent.name());
        let ran = Command::new("sh")
            .args(["-c", &line.replace("curl -s", "curl -s --fail-with-body")])
            .env("PROBING_TOKEN", &agent.token)
            .output()
            .unwrap();
        assert!(
            ran.status.success() && !ran.stdout.is_empty(),
            "{line}: {ran:?}"
        );
        if !line.contains("arrow") {
            let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
            assert!(answer.get("error").is_none(), "{line}: {answer}");
        }
    }
    drop(target);
}
