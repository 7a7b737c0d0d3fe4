//! What a user does on another machine: the same as on this one.

use probing_testkit::{every_python, root};
use serde_json::json;

use crate::agent::Agent;
use crate::sandbox;

#[test]
fn a_process_is_listed_asked_and_shown_through_an_agent() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let pid = target.pid().to_string();
        let agent = Agent::start(&sandbox);
        let listed = agent.probing(&sandbox, ["list", "--json"]).json();
        assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
        assert_eq!(listed[0]["pid"], target.pid());
        let shown = agent.probing(&sandbox, ["list"]);
        assert!(shown.ok().contains(&pid), "{shown:?}");

        let ran = agent.probing(&sandbox, ["eval", "print('out'); 6 * 7"]);
        assert_eq!(ran.ok(), "out\n42\n");
        let raised = agent.probing(&sandbox, ["eval", "1 / 0"]);
        assert_eq!(raised.status, 1);
        assert!(
            raised
                .stderr
                .ends_with("ZeroDivisionError: division by zero\n"),
            "{raised:?}"
        );
        assert_eq!(agent.probing(&sandbox, ["eval", "1 +"]).status, 2);
        let late = agent.probing(&sandbox, ["eval", "--timeout", "0.1", "while True: pass"]);
        assert_eq!(late.status, 124, "{late:?}");

        let here = sandbox.probing(["-t", &pid, "backtrace"]);
        let there = agent.probing(&sandbox, ["backtrace"]);
        assert_eq!(there.ok(), here.ok());
        let stack = agent.probing(&sandbox, ["backtrace", "--all", "--locals", "--json"]);
        let stack = stack.json();
        assert_eq!(
            stack["targets"][0]["report"]["pid"],
            target.pid(),
            "{stack}"
        );

        let lines = Agent::audit(&sandbox);
        assert_eq!(lines[0]["code"], "print('out'); 6 * 7");
        assert_eq!(
            (&lines[0]["action"], &lines[0]["pid"]),
            (&json!("eval"), &json!(target.pid()))
        );
        assert_eq!(target.end().stderr, Vec::<String>::new());
    });
}

#[test]
fn everything_works_with_curl_too() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let agent = Agent::start(&sandbox);
        let health = agent.bare("GET /health", &[], "");
        assert_eq!(
            (health.status, health.json()["status"].clone()),
            (200, json!("ok"))
        );
        let targets = agent.get("/targets").json();
        assert_eq!(targets["role"], "control");
        assert_eq!(targets["targets"][0]["pid"], target.pid());
        let evaluated = agent
            .post("/eval", &json!({"code": "print('out')\n6 * 7"}))
            .json();
        let report = &evaluated["targets"][0]["report"];
        assert_eq!(
            (&report["value"], &report["output"]),
            (&json!("42"), &json!("out\n"))
        );
        let raised = agent
            .post("/eval", &json!({"code": "1 / 0", "pid": target.pid()}))
            .json();
        assert_eq!(
            raised["targets"][0]["report"]["exception"]["type"],
            "ZeroDivisionError"
        );
        let stacks = agent.get("/backtrace?all=true").json();
        let file = stacks["targets"][0]["report"]["threads"][0]["frames"][0]["file"].clone();
        assert_eq!(
            file,
            root().join("tests/targets/idle.py").display().to_string()
        );
        let query =
            json!({"sql": "SELECT pid, func FROM python.backtrace WHERE main AND depth = 0"});
        let rows = agent.post("/query", &query).json();
        assert_eq!(rows["columns"], json!(["pid", "func"]));
        assert_eq!(rows["rows"], json!([[target.pid(), "<module>"]]));
    });
}
