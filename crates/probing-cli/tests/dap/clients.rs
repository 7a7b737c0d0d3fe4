//! An editor that vanishes, and an editor beside other clients.

use probing_testkit::{Sandbox, Target, every_python, wait_until};
use serde_json::{Value, json};

use crate::editor::{Editor, Listener};
use crate::{line, sandbox};

fn at_begin(sandbox: &Sandbox, target: &mut Target, configuration: Value) -> Editor {
    let breakpoints = json!([{"line": line("begin")}]);
    let (mut editor, _) = Editor::attached(sandbox, target, configuration, breakpoints);
    target.say("2");
    editor.stopped("breakpoint");
    editor
}

#[test]
fn an_editor_that_vanishes_leaves_nothing_stopped() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        at_begin(&sandbox, &mut target, json!({})).kill();
        assert_eq!(target.line(), "total 2");
        target.say("3");
        assert_eq!(target.line(), "total 6");
    });
}

#[test]
fn a_thread_stays_stopped_for_the_next_client_if_the_configuration_says_so() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        at_begin(&sandbox, &mut target, json!({"onDisconnect": "keep"})).kill();
        let (mut editor, _) = Editor::attached(&sandbox, &target, json!({}), json!([]));
        let (stopped, frame) = editor.stopped("breakpoint");
        assert_eq!(frame["line"], line("begin"));
        assert_eq!(editor.locals(&frame)["count"]["value"], "2");
        editor.ask("continue", json!({"threadId": stopped["threadId"]}));
        assert_eq!(target.line(), "total 2");
    });
}

#[test]
fn a_stop_ends_when_its_time_is_over() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let mut editor = at_begin(&sandbox, &mut target, json!({"stopTimeout": 0.2}));
        editor.event("continued");
        assert_eq!(target.line(), "total 2");
    });
}

#[test]
fn a_terminal_sees_and_resumes_what_an_editor_controls() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let mut editor = at_begin(&sandbox, &mut target, json!({}));
        let pid = target.pid().to_string();
        let stops = sandbox.probing(["-t", &pid, "stops"]);
        assert!(stops.stdout.contains("MainThread"), "{stops:?}");
        // A second editor sees the thread, and values, and does not control it.
        let (mut second, _) = Editor::attached(&sandbox, &target, json!({}), json!([]));
        let (stopped, frame) = second.stopped("breakpoint");
        assert!(
            stopped["description"]
                .as_str()
                .unwrap()
                .contains("another client"),
            "{stopped}"
        );
        assert_eq!(second.locals(&frame)["count"]["value"], "2");
        let refusal = second.refusal("next", json!({"threadId": stopped["threadId"]}));
        assert!(refusal.contains("another client"), "{refusal}");
        second.leave();
        let released = sandbox.probing(["-t", &pid, "release", "all"]);
        assert_eq!(released.status, 0, "{released:?}");
        editor.event("continued");
        assert_eq!(target.line(), "total 2");
        editor.leave();
    });
}

#[test]
fn an_editor_that_is_killed_while_code_runs_leaves_the_program_as_it_was() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let mut editor = at_begin(&sandbox, &mut target, json!({}));
        let endless = "began = True\nwhile True: pass";
        editor.send(
            "evaluate",
            json!({"expression": endless, "context": "repl"}),
        );
        let pid = target.pid().to_string();
        wait_until("the code runs", || {
            let began = sandbox.probing(["-t", &pid, "eval", "began"]);
            began.stdout == "True\n"
        });
        editor.kill();
        assert_eq!(target.line(), "total 2");
    });
}

#[test]
fn an_editor_that_connects_to_a_port_needs_the_token() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let listener = Listener::start(&sandbox);
        let configuration = json!({"processId": target.pid()});
        let mut stranger = Editor::connected(&listener.address);
        stranger.ask("initialize", json!({}));
        let refusal = stranger.refusal("attach", configuration.clone());
        assert!(refusal.contains("adapterToken"), "{refusal}");
        let mut editor = Editor::connected(&listener.address);
        let mut configuration = configuration;
        configuration["adapterToken"] = json!(listener.token);
        let breakpoints = json!([{"line": line("begin")}]);
        editor.attach(configuration, breakpoints);
        target.say("2");
        editor.stopped("breakpoint");
        editor.leave();
        assert_eq!(target.line(), "total 2");
    });
}

#[test]
fn ranks_are_debugged_in_one_session_and_stop_one_by_one() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut ranks = ["0", "1"].map(|rank| {
            let target = sandbox.target(python, "steps.py");
            target.env("PROBING", "1").env("RANK", rank).start()
        });
        let pids = ranks.each_ref().map(|rank| rank.pid().to_string());
        let mut editor = Editor::start(&sandbox);
        let configuration = json!({"endpoint": pids.join(","), "ranks": "0-1"});
        let breakpoints = json!([{"line": line("begin"), "condition": "count == 2"}]);
        let set = editor.attach(configuration, breakpoints);
        assert_eq!(set[0]["verified"], true, "{set}");
        ranks[1].say("2");
        let (stopped, frame) = editor.stopped("breakpoint");
        assert_eq!(editor.locals(&frame)["count"]["value"], "2");
        let threads = editor.ask("threads", json!({}))["threads"].clone();
        let names: Vec<&Value> = (0..2).map(|at| &threads[at]["name"]).collect();
        assert_eq!(names, ["rank 0 · MainThread", "rank 1 · MainThread"]);
        assert_eq!(threads[1]["id"], stopped["threadId"]);
        // The other goes on meanwhile.
        ranks[0].say("3");
        assert_eq!(ranks[0].line(), "total 6");
        editor.ask("continue", json!({"threadId": stopped["threadId"]}));
        assert_eq!(ranks[1].line(), "total 2");
        editor.leave();
    });
}
