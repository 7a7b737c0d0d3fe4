//! A whole session: attach, stop, look, step, change, resume, leave.

use probing_testkit::{every_python, wait_until};
use serde_json::json;

use crate::editor::Editor;
use crate::{line, program, sandbox};

#[test]
fn an_editor_debugs_a_process_that_nobody_prepared() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, "steps.py").start();
        let (sum, price) = (line("sum"), line("price"));
        let breakpoints = json!([{"line": sum, "condition": "item == 1"}]);
        let (mut editor, set) = Editor::attached(&sandbox, &target, json!({}), breakpoints);
        assert_eq!(set[0]["verified"], true, "{set}");
        assert_eq!(set[0]["line"], sum);
        target.say("3");
        let (stopped, frame) = editor.stopped("breakpoint");
        let thread = stopped["threadId"].clone();
        assert_eq!(stopped["hitBreakpointIds"], json!([set[0]["id"]]));
        assert_eq!(frame["name"], "add_up");
        assert_eq!(frame["line"], sum);
        assert_eq!(frame["source"]["path"], program());
        let locals = editor.locals(&frame);
        assert_eq!(locals["item"]["value"], "1");
        assert_eq!(locals["count"]["value"], "3");
        assert_eq!(locals["more"]["type"], "tuple");
        assert_eq!(
            editor.evaluate("item + count", &frame, "watch")["result"],
            "4"
        );
        editor.ask("stepIn", json!({"threadId": thread}));
        let (_, inner) = editor.stopped("step");
        assert_eq!(
            (&inner["name"], &inner["line"]),
            (&json!("price_of"), &json!(price))
        );
        // Ids are valid while the thread stands there.
        let gone = editor.refusal("scopes", json!({"frameId": frame["id"]}));
        assert!(gone.contains("resumed"), "{gone}");
        editor.ask("stepOut", json!({"threadId": thread}));
        let (_, mut outer) = editor.stopped("step");
        assert_eq!(outer["name"], "add_up");
        if outer["line"] == sum {
            // Its line is not over: what was returned is still to be added.
            editor.ask("next", json!({"threadId": thread}));
            outer = editor.stopped("step").1;
        }
        let locals = editor.locals(&outer);
        let arguments =
            json!({"variablesReference": locals["reference"], "name": "found", "value": "100"});
        assert_eq!(editor.ask("setVariable", arguments)["value"], "100");
        assert_eq!(editor.evaluate("found", &outer, "hover")["result"], "100");
        let body = editor.ask("continue", json!({"threadId": thread}));
        assert_eq!(body["allThreadsContinued"], false);
        assert_eq!(target.line(), "total 104");
        editor.leave();
        // Nothing is left of it.
        target.say("3");
        assert_eq!(target.line(), "total 6");
        let left = sandbox.probing(["-t", &target.pid().to_string(), "breakpoints", "--json"]);
        assert!(!left.stdout.contains("\"point\""), "{left:?}");
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn a_process_that_ends_ends_the_session() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "steps.py");
        let (mut editor, _) = Editor::attached(&sandbox, &target, json!({}), json!([]));
        target.end();
        editor.event("terminated");
        editor.leave();
    });
}

#[test]
fn a_process_that_is_not_there_is_refused_with_a_hint() {
    let sandbox = sandbox();
    let mut editor = Editor::start(&sandbox);
    editor.ask("initialize", json!({}));
    let refusal = editor.refusal("attach", json!({"endpoint": "nobody-is-called-so.py"}));
    assert!(refusal.contains("nobody-is-called-so.py"), "{refusal}");
    assert!(refusal.contains("hint:"), "{refusal}");
}

#[test]
fn an_exception_stops_where_it_is_raised_and_where_nobody_catches_it() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let (mut editor, _) = Editor::attached(&sandbox, &target, json!({}), json!([]));
        let options = json!([{"filterId": "raised", "condition": "ValueError"}]);
        let filters = json!({"filters": [], "filterOptions": options});
        editor.ask("setExceptionBreakpoints", filters);
        target.say("raise");
        let (stopped, frame) = editor.stopped("exception");
        assert_eq!(stopped["text"], "ValueError: raiseraise");
        assert_eq!(frame["line"], line("raise"));
        let thread = &stopped["threadId"];
        let info = editor.ask("exceptionInfo", json!({"threadId": thread}));
        assert_eq!(info["exceptionId"], "ValueError");
        assert_eq!(info["breakMode"], "always");
        editor.ask("continue", json!({"threadId": thread}));
        assert_eq!(target.line(), "caught raiseraise");
        let filters = json!({"filters": ["uncaught"], "filterOptions": []});
        editor.ask("setExceptionBreakpoints", filters);
        target.say("end");
        let (stopped, _) = editor.stopped("exception");
        let thread = &stopped["threadId"];
        let info = editor.ask("exceptionInfo", json!({"threadId": thread}));
        assert_eq!(info["breakMode"], "unhandled");
        editor.ask("continue", json!({"threadId": thread}));
        editor.event("terminated");
        assert_eq!(target.wait().status, 1);
    });
}

#[test]
fn values_leave_the_process_with_the_editor() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let breakpoints = json!([{"line": line("begin")}]);
        let (mut editor, _) = Editor::attached(&sandbox, &target, json!({}), breakpoints);
        target.say("2");
        let (_, frame) = editor.stopped("breakpoint");
        assert_eq!(editor.evaluate("[count]", &frame, "repl")["result"], "[2]");
        let pid = target.pid().to_string();
        let left = || {
            let code = "[name for name in __import__('sys').__dict__ if 'probing_dap' in name]";
            sandbox.probing(["-t", &pid, "eval", code]).stdout
        };
        assert_ne!(left(), "[]\n");
        editor.kill();
        assert_eq!(target.line(), "total 2");
        wait_until("values have left", || left() == "[]\n");
    });
}

#[test]
fn a_process_is_terminated_when_the_editor_asks_for_it() {
    every_python(|python| {
        for at_stop in [false, true] {
            let sandbox = sandbox();
            let mut target = sandbox.probed(python, "steps.py");
            let breakpoints = json!([{"line": line("begin")}]);
            let (mut editor, _) = Editor::attached(&sandbox, &target, json!({}), breakpoints);
            if at_stop {
                target.say("2");
                editor.stopped("breakpoint");
            }
            editor.ask("terminate", json!({}));
            editor.event("terminated");
            editor.leave();
            // As SIGTERM ends it.
            assert_eq!(target.wait().status, 128 + 15);
        }
    });
}
