//! Each request of an editor, at a thread that has stopped.

use probing_testkit::every_python;
use serde_json::{Value, json};

use crate::editor::Editor;
use crate::{line, program, sandbox};

#[test]
fn a_large_dictionary_comes_in_pages() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let breakpoints = json!([{"line": line("begin")}]);
        let (mut editor, _) = Editor::attached(&sandbox, &target, json!({}), breakpoints);
        target.say("2");
        let (_, frame) = editor.stopped("breakpoint");
        let large = "{number: str(number) for number in range(1_000_000)}";
        let body = editor.evaluate(large, &frame, "repl");
        assert_eq!(body["indexedVariables"], 1_000_000);
        let page = json!({"variablesReference": body["variablesReference"], "filter": "indexed", "start": 999_998, "count": 100});
        let variables = editor.ask("variables", page)["variables"].clone();
        let shown: Vec<(&Value, &Value)> = variables
            .as_array()
            .unwrap()
            .iter()
            .map(|it| (&it["name"], &it["value"]))
            .collect();
        let expected = [("999998", "'999998'"), ("999999", "'999999'")];
        let expected = expected.map(|(name, value)| (json!(name), json!(value)));
        let expected: Vec<(&Value, &Value)> = expected.iter().map(|(n, v)| (n, v)).collect();
        assert_eq!(shown, expected);
        editor.leave();
        assert_eq!(target.line(), "total 2");
    });
}

#[test]
fn a_value_is_expanded_and_changed_where_it_is() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let breakpoints = json!([{"line": line("begin")}]);
        let (mut editor, _) = Editor::attached(&sandbox, &target, json!({}), breakpoints);
        target.say("2");
        let (_, frame) = editor.stopped("breakpoint");
        let code = "class Config:\n    def __init__(self): self.rates = {'a': [1, 2]}\n    def __repr__(self): raise RuntimeError\nconfig = Config()";
        let body = editor.evaluate(code, &frame, "repl");
        assert_eq!(body["result"], "");
        let locals = editor.locals(&frame);
        let config = &locals["config"];
        assert_eq!(config["type"], "Config", "{locals}");
        let rates = editor.children(&config["variablesReference"])[0].clone();
        assert_eq!(rates["evaluateName"], "config.rates");
        let list = editor.children(&rates["variablesReference"])[0].clone();
        assert_eq!(list["evaluateName"], "config.rates['a']");
        let arguments = json!({"variablesReference": list["variablesReference"], "name": "[1]", "value": "count * 10"});
        editor.children(&list["variablesReference"]);
        assert_eq!(editor.ask("setVariable", arguments)["value"], "20");
        let value = editor.evaluate("config.rates['a']", &frame, "watch");
        assert_eq!(value["result"], "[1, 20]");
        let arguments =
            json!({"expression": "config.rates['a'][0]", "value": "7", "frameId": frame["id"]});
        assert_eq!(editor.ask("setExpression", arguments)["value"], "7");
        let refusal = editor.refusal(
            "evaluate",
            json!({"expression": "1 / 0", "frameId": frame["id"], "context": "repl"}),
        );
        assert_eq!(refusal, "ZeroDivisionError: division by zero");
        let targets = editor.ask(
            "completions",
            json!({"text": "config.ra", "column": 10, "frameId": frame["id"]}),
        );
        assert_eq!(targets["targets"][0]["label"], "rates", "{targets}");
        assert_eq!(targets["targets"][0]["start"], 7);
        editor.leave();
        assert_eq!(target.line(), "total 2");
    });
}

#[test]
fn breakpoints_log_count_and_wait_for_their_code() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let breakpoints = json!([
            {"line": line("sum"), "logMessage": "item {item}", "hitCondition": ">= 2"},
            {"line": line("price") - 1},
            {"line": 9_999},
        ]);
        let (mut editor, set) = Editor::attached(&sandbox, &target, json!({}), breakpoints);
        assert_eq!(set[0]["verified"], true, "{set}");
        // The line of a `def` means its first line.
        assert_eq!(set[1]["line"], line("price"), "{set}");
        assert_eq!(set[2]["verified"], false, "{set}");
        assert!(set[2]["message"].is_string(), "{set}");
        editor.ask(
            "setBreakpoints",
            json!({"source": {"path": program()}, "breakpoints": [{"line": line("sum"), "logMessage": "item {item}", "hitCondition": ">= 2"}]}),
        );
        let body = editor.ask(
            "setFunctionBreakpoints",
            json!({"breakpoints": [{"name": "price_of", "condition": "item == 2"}, {"name": "no_such.function"}]}),
        );
        assert_eq!(body["breakpoints"][0]["verified"], true, "{body}");
        assert_eq!(body["breakpoints"][1]["verified"], false, "{body}");
        target.say("3");
        let mut logged = Vec::new();
        while logged.len() < 2 {
            let output = editor.event("output");
            logged.push(output["output"].as_str().unwrap().to_owned());
        }
        assert_eq!(logged, ["item 1\n", "item 2\n"]);
        let (stopped, frame) = editor.stopped("function breakpoint");
        assert_eq!(frame["name"], "price_of");
        editor.ask("continue", json!({"threadId": stopped["threadId"]}));
        assert_eq!(target.line(), "total 6");
        editor.leave();
    });
}

#[test]
fn a_watched_variable_stops_the_thread_that_changes_it() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let breakpoints = json!([{"line": line("begin")}]);
        let (mut editor, _) = Editor::attached(&sandbox, &target, json!({}), breakpoints);
        target.say("2");
        let (stopped, frame) = editor.stopped("breakpoint");
        let locals = editor.locals(&frame);
        let info = editor.ask(
            "dataBreakpointInfo",
            json!({"variablesReference": locals["reference"], "name": "found"}),
        );
        let body = editor.ask(
            "setDataBreakpoints",
            json!({"breakpoints": [{"dataId": info["dataId"]}]}),
        );
        assert_eq!(body["breakpoints"][0]["verified"], true, "{body}");
        editor.ask("continue", json!({"threadId": stopped["threadId"]}));
        let (stopped, _) = editor.stopped("data breakpoint");
        assert!(
            stopped["description"].as_str().unwrap().contains("found"),
            "{stopped}"
        );
        editor.leave();
        assert_eq!(target.line(), "total 2");
    });
}

#[test]
fn a_thread_goes_to_a_line_and_others_run() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let breakpoints = json!([{"line": line("sum"), "hitCondition": "== 2"}]);
        let (mut editor, _) = Editor::attached(&sandbox, &target, json!({}), breakpoints);
        target.say("thread");
        let (stopped, _) = editor.stopped("breakpoint");
        let threads = editor.ask("threads", json!({}))["threads"].clone();
        let mut names: Vec<&str> = threads
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].as_str().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["MainThread", "thread"]);
        let running = threads
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["id"] != stopped["threadId"]);
        let running = running.unwrap()["id"].clone();
        let refusal = editor.refusal("next", json!({"threadId": running}));
        assert!(refusal.contains("running"), "{refusal}");
        let refusal = editor.refusal("pause", json!({"threadId": running}));
        assert!(refusal.contains("breakpoint"), "{refusal}");
        let body = editor.ask(
            "gotoTargets",
            json!({"source": {"path": program()}, "line": line("begin")}),
        );
        let target_id = body["targets"][0]["id"].clone();
        let thread = stopped["threadId"].clone();
        editor.ask("goto", json!({"threadId": thread, "targetId": target_id}));
        let (_, frame) = editor.stopped("goto");
        assert_eq!(frame["line"], line("begin"));
        editor.ask("continue", json!({"threadId": thread}));
        assert_eq!(target.line(), "joined");
        editor.leave();
    });
}

#[test]
fn a_stack_comes_in_pages() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let breakpoints = json!([{"line": line("begin")}]);
        let (mut editor, _) = Editor::attached(&sandbox, &target, json!({}), breakpoints);
        target.say("2");
        let (stopped, _) = editor.stopped("breakpoint");
        let body = editor.ask(
            "stackTrace",
            json!({"threadId": stopped["threadId"], "startFrame": 1, "levels": 1}),
        );
        assert_eq!(body["stackFrames"][0]["name"], "main");
        assert_eq!(body["stackFrames"].as_array().unwrap().len(), 1);
        assert!(body["totalFrames"].as_i64().unwrap() >= 3);
        editor.leave();
        assert_eq!(target.line(), "total 2");
    });
}
