//! The audit log: every request that runs something in a target, or discloses something of one, leaves a line.

use std::io::Write as _;
use std::process::{Command, Stdio};

use probing_testkit::{Python, every_python};
use serde_json::{Value, json};

use crate::agent::{Agent, Answer};
use crate::sandbox;
use crate::sockets::Socket;

fn latest() -> Python {
    Python::all().into_iter().next_back().unwrap()
}

/// The lines that `work` leaves.
fn left_by(sandbox: &probing_testkit::Sandbox, work: impl FnOnce()) -> Vec<Value> {
    let before = Agent::whole_audit(sandbox).len();
    work();
    Agent::whole_audit(sandbox).split_off(before)
}

#[test]
fn every_answer_about_a_process_leaves_a_line() {
    let sandbox = sandbox();
    let target = sandbox.probed(&latest(), "idle.py");
    let agent = Agent::start(&sandbox);
    let pid = target.pid();
    let observe = format!("Authorization: Bearer {}", agent.observe);
    let ask = |path: &str| -> Option<Answer> {
        Some(match path {
            "/health" | "/openapi.json" => return None,
            "/targets" => agent.bare("GET /targets", &[&observe], ""),
            "/backtrace" => agent.bare("GET /backtrace?all=true", &[&observe], ""),
            "/samples" => agent.get(&format!("/samples?pid={pid}&seconds=0.1&rate=10")),
            "/query" => agent.post("/query", &json!({"sql": "SELECT pid FROM process.info"})),
            "/eval" => agent.post("/eval", &json!({"code": "step", "pid": pid})),
            "/ws" => {
                drop(Socket::open(&agent, &target));
                return None;
            }
            new => panic!("a path that this test does not know: {new}"),
        })
    };
    let described = agent.get("/openapi.json").json();
    let paths: Vec<String> = described["paths"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert!(paths.len() >= 8, "{paths:?}");
    for path in paths {
        let lines = left_by(&sandbox, || {
            if let Some(answer) = ask(&path) {
                assert_eq!(answer.status, 200, "{path}: {answer:?}");
            }
        });
        let of_line = |name: &str| lines[0][name].as_str().unwrap().to_owned();
        match path.as_str() {
            "/health" | "/openapi.json" => assert_eq!(lines, Vec::<Value>::new(), "{path}"),
            "/ws" => assert_eq!(of_line("action"), "connect"),
            _ => {
                assert_eq!(format!("/{}", of_line("action")), path);
                assert!(of_line("from").starts_with("127.0.0.1:"), "{lines:?}");
            }
        }
        match path.as_str() {
            "/targets" | "/backtrace" => assert!(of_line("token").starts_with("observe ")),
            "/query" => assert_eq!(of_line("code"), "SELECT pid FROM process.info"),
            "/eval" | "/samples" | "/ws" => assert_eq!(lines[0]["pid"], pid),
            _ => {}
        }
    }
    // What is refused discloses nothing.
    let left = left_by(&sandbox, || drop(agent.bare("GET /targets", &[], "")));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn every_message_that_discloses_something_leaves_a_line() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let agent = Agent::start(&sandbox);
        let mut socket = Socket::open(&agent, &target);
        let program = probing_testkit::root().join("tests/targets/idle.py");
        for (number, message) in [
            json!({"op": "source", "file": program, "first": 1, "count": 2}),
            json!({"op": "memory", "ranges": [[4096, 8]]}),
            json!({"op": "file", "file": "status", "len": 100}),
            json!({"op": "describe", "steps": [{"name": "loss"}]}),
            json!({"op": "complete", "steps": [], "look": "names", "prefix": "lo"}),
            json!({"op": "locals", "threads": [], "deadline_millis": 1000}),
            json!({"op": "heap"}),
            json!({"op": "points"}),
            json!({"op": "traces"}),
            json!({"op": "stops"}),
            json!({"op": "torch", "ask": "status"}),
            json!({"op": "tracer", "tracer": "heap"}),
            json!({"op": "follow", "driving": false}),
        ]
        .into_iter()
        .enumerate()
        {
            let mut message = message;
            message["id"] = json!(number + 1);
            let lines = left_by(&sandbox, || {
                socket.say(&message);
                // Whatever it is, and also when it cannot be had.
                let answer = socket.hear();
                if message["op"] != "memory" && message["op"] != "file" {
                    assert_eq!(answer.unwrap()["id"], number + 1, "{message}");
                }
            });
            assert_eq!(lines.len(), 1, "{message}: {lines:?}");
            assert_eq!(
                (&lines[0]["action"], &lines[0]["pid"]),
                (&message["op"], &json!(target.pid()))
            );
        }
        let line = Agent::whole_audit(&sandbox);
        let source = line.iter().find(|line| line["action"] == "source").unwrap();
        assert!(
            source["code"].as_str().unwrap().contains("idle.py"),
            "{source}"
        );
        assert_eq!(target.end().stderr, Vec::<String>::new());
    });
}

#[test]
fn code_that_is_too_long_for_the_log_leaves_its_hash_and_length() {
    let sandbox = sandbox();
    let target = sandbox.probed(&latest(), "idle.py");
    let agent = Agent::start(&sandbox);
    // What matters stands where the log does not show it.
    let code = format!("# {}\n{}", "x".repeat(17 << 10), "loss = 0.5");
    let answer = agent.post("/eval", &json!({"code": code}));
    assert_eq!(answer.status, 200, "{answer:?}");
    let line = &Agent::audit(&sandbox)[0];
    assert_eq!(line["code"].as_str().unwrap(), &code[..16 << 10]);
    assert_eq!(line["code_bytes"], code.len());
    let mut hash = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    hash.stdin
        .take()
        .unwrap()
        .write_all(code.as_bytes())
        .unwrap();
    let hash = hash.wait_with_output().unwrap().stdout;
    let hash = String::from_utf8(hash).unwrap();
    assert_eq!(line["code_sha256"], hash.split(' ').next().unwrap());
    let short = agent.post("/eval", &json!({"code": "loss"}));
    assert_eq!(short.status, 200);
    assert_eq!(Agent::audit(&sandbox)[1].get("code_bytes"), None);
    drop(target);
}
