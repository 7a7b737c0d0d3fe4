//! Whoever hangs up takes back what it asked for.

use std::io::Write as _;

use probing_testkit::{every_python, wait_until};
use serde_json::json;

use crate::agent::Agent;
use crate::sandbox;

#[test]
fn code_ends_when_the_client_that_asked_for_it_hangs_up() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let agent = Agent::start(&sandbox);
        let code = "import time\nbegun = True\ntry:\n  while True: time.sleep(0.01)\nfinally: ended = True";
        let body = json!({"code": code, "timeout_seconds": 3600}).to_string();
        let mut client = agent.connect();
        let head = format!(
            "POST /eval HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n",
            agent.name(),
            agent.token
        );
        let length = body.len();
        write!(client, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let is_there = |name: &str| {
            let asked = sandbox.eval(&target, &format!("'{name}' in globals()"));
            asked.stdout.contains("True")
        };
        wait_until("the code runs", || is_there("begun"));
        assert!(!is_there("ended"));
        drop(client);
        wait_until("the code has ended", || is_there("ended"));
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn a_probe_that_an_agent_takes_out_has_left_when_the_command_ends() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let agent = Agent::start(&sandbox);
        assert_eq!(target.usage().threads, 2);
        let ran = agent.probing(&sandbox, ["detach"]);
        assert_eq!(ran.status, 0, "{ran:?}");
        assert_eq!(target.usage().threads, 1);
        assert_eq!(target.end().status, 0);
    });
}
