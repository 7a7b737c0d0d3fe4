//! The session with an editor and probes that are made up.

mod any_order;
mod editor;

use std::time::Duration;

use probing_proto::message::breakpoints::{
    Action, BreakpointEvent, BreakpointId, BreakpointLocation, ResumeReason, SetBreakpoint, Step,
    StopId, StopReason,
};
use probing_proto::message::{Call, Event, Failure, Outcome};
use serde_json::{Value, json};

use self::editor::{Editor, finished, outcome, pid, raised, reached, set, stop};
use super::{Input, Link, ListedThread};

#[test]
fn an_attach_is_answered_when_the_editor_has_configured() {
    let mut editor = Editor::new();
    editor.ask("initialize", json!({}));
    editor.ask("attach", pid());
    assert_eq!(editor.names(), ["initialize"]);
    editor.feed(Input::Reached(vec![reached(0)]));
    assert_eq!(editor.names(), ["initialize", "initialized"]);
    let follow = editor.one_asked();
    assert_eq!(follow.3, Call::Follow { driving: true });
    editor.ask("setExceptionBreakpoints", json!({"filters": []}));
    editor.ask("configurationDone", Value::Null);
    let expected = [
        "initialize",
        "initialized",
        "setExceptionBreakpoints",
        "configurationDone",
        "attach",
        "process",
    ];
    assert_eq!(editor.names(), expected);
    let numbers: Vec<i64> = editor
        .heard
        .iter()
        .map(|message| message["seq"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_process_that_cannot_be_reached_is_said_with_what_helps_and_may_be_tried_again() {
    let mut editor = Editor::new();
    editor.ask("initialize", json!({}));
    let attach = editor.ask("attach", pid());
    let failure = Failure::new("no such process: 4242").with_hint("`probing list`");
    editor.feed(Input::NotReached(failure));
    assert_eq!(
        editor.refusal(attach),
        "no such process: 4242 (hint: `probing list`)"
    );
    let wrong = editor.ask("attach", json!({}));
    assert!(editor.refusal(wrong).contains("names no process"));
    editor.ask("attach", pid());
    editor.feed(Input::Reached(vec![reached(0)]));
    editor.event("initialized");
}

#[test]
fn an_editor_on_a_port_attaches_only_with_the_token() {
    for (token, is_let_in) in [
        (json!("secret"), true),
        (json!("wrong"), false),
        (json!(null), false),
    ] {
        let mut editor = Editor::new();
        editor.session.surroundings.token = Some("secret".to_owned());
        editor.ask("initialize", json!({}));
        let arguments = json!({"processId": 1, "adapterToken": token});
        let attach = editor.ask("attach", arguments);
        editor.feed(Input::Reached(vec![reached(0)]));
        assert_eq!(
            editor.names().contains(&"initialized".to_owned()),
            is_let_in
        );
        assert_eq!(editor.has_ended, !is_let_in);
        if !is_let_in {
            assert!(editor.refusal(attach).contains("adapterToken"));
        }
    }
}

#[test]
fn requests_that_are_not_known_or_come_too_early_are_refused() {
    let mut editor = Editor::new();
    let early = editor.ask("stackTrace", json!({"threadId": 1}));
    assert!(editor.refusal(early).contains("no process is attached"));
    let early = editor.ask("attach", pid());
    assert!(editor.refusal(early).contains("initialize comes first"));
    let mut editor = Editor::attached(pid(), 1);
    let unknown = editor.ask("disassemble", json!({}));
    assert_eq!(editor.refusal(unknown), "not supported: disassemble");
    let pause = editor.ask("pause", json!({"threadId": 1}));
    assert!(editor.refusal(pause).contains("set a breakpoint"));
    let wrong = editor.ask("scopes", json!({"frameId": "x"}));
    assert!(editor.refusal(wrong).contains("not understood"));
}

#[test]
fn breakpoints_that_stay_the_same_stay_set() {
    let mut editor = Editor::attached(pid(), 1);
    let lines = |lines: &[i64]| {
        let each = lines.iter().map(|line| json!({"line": line}));
        json!({"source": {"path": "/app/train.py"}, "breakpoints": each.collect::<Vec<_>>()})
    };
    let seq = editor.ask("setBreakpoints", lines(&[10, 20]));
    let asked = std::mem::take(&mut editor.asked);
    for ((target, link, id, call), point) in asked.into_iter().zip(1..) {
        let Call::Arm(request) = call else {
            panic!("{call:?}");
        };
        assert!(request.own);
        editor.answer(
            (target, link, id),
            Event::Armed(set(point, &request, &[10 * point])),
        );
    }
    let first = editor.body(seq);
    let seq = editor.ask("setBreakpoints", lines(&[20]));
    let (target, link, id, call) = editor.one_asked();
    let points = vec![BreakpointId(1)];
    assert_eq!(call, Call::Disarm { points });
    // Once the editor is answered, nothing stops there any more.
    assert!(!editor.heard.iter().any(|it| it["request_seq"] == seq));
    editor.answer((target, link, id), Event::Points { points: Vec::new() });
    let second = editor.body(seq);
    assert_eq!(second["breakpoints"][0], first["breakpoints"][1]);
    // None of ours is left, and those of others stay.
    editor.ask("setBreakpoints", lines(&[]));
    let points = vec![BreakpointId(2)];
    assert_eq!(editor.one_asked().3, Call::Disarm { points });
    editor.ask("setBreakpoints", lines(&[]));
    assert!(editor.asked.is_empty());
}

#[test]
fn a_breakpoint_says_where_it_is_or_why_it_is_not() {
    let mut editor = Editor::attached(pid(), 1);
    let breakpoints = json!({
        "source": {"path": "/app/train.py"},
        "breakpoints": [
            {"line": 10, "condition": "x > 1", "logMessage": "x is {x}"},
            {"line": 11},
            {"line": 12, "hitCondition": "% 2"},
            {"line": 13, "hitCondition": "== 4"},
        ],
    });
    let seq = editor.ask("setBreakpoints", breakpoints);
    let asked = std::mem::take(&mut editor.asked);
    let requests: Vec<SetBreakpoint> = asked
        .iter()
        .map(|(.., call)| match call {
            Call::Arm(request) => request.clone(),
            call => panic!("{call:?}"),
        })
        .collect();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[0].condition.as_deref(), Some("x > 1"));
    let text = "x is {x}".to_owned();
    assert_eq!(requests[0].action, Action::Log { text });
    assert_eq!((requests[2].hits, requests[2].once), (4, true));
    let of = |at: usize| (asked[at].0, asked[at].1, asked[at].2);
    editor.answer(of(0), Event::Armed(set(1, &requests[0], &[12])));
    editor.answer(of(1), Event::Armed(set(2, &requests[1], &[])));
    let failure = Failure::new("too many");
    editor.answer(of(2), Event::Failed(failure));
    let body = editor.body(seq);
    let breakpoints = body["breakpoints"].as_array().unwrap();
    let lines: Vec<&Value> = breakpoints.iter().map(|it| &it["line"]).collect();
    assert_eq!(lines, [12, 11, 12, 13]);
    let verified: Vec<&Value> = breakpoints.iter().map(|it| &it["verified"]).collect();
    assert_eq!(verified, [true, false, false, false]);
    let message = |at: usize| breakpoints[at]["message"].as_str().unwrap();
    assert!(message(1).contains("waits"));
    assert!(message(2).contains("not understood: % 2"));
    assert_eq!(message(3), "too many");
    // Its file is loaded.
    editor.pass(Duration::from_secs(3));
    let (target, link, id, call) = editor.one_asked();
    assert_eq!(call, Call::Points);
    let points = vec![set(2, &requests[1], &[11])];
    editor.answer((target, link, id), Event::Points { points });
    let event = editor.event("breakpoint");
    assert_eq!(event["breakpoint"]["id"], breakpoints[1]["id"]);
    assert_eq!(event["breakpoint"]["verified"], true);
    editor.news(
        0,
        BreakpointEvent::Disarmed {
            point: BreakpointId(2),
            reason: "its condition raised NameError".to_owned(),
        },
    );
    let event = editor.event("breakpoint");
    assert_eq!(event["breakpoint"]["verified"], false);
}

#[test]
fn exceptions_are_chosen_by_class() {
    let mut editor = Editor::attached(pid(), 1);
    let filters = json!({
        "filters": ["uncaught"],
        "filterOptions": [{"filterId": "raised", "condition": "ValueError, json.JSONDecodeError"}],
    });
    editor.ask("setExceptionBreakpoints", filters);
    let places: Vec<BreakpointLocation> = std::mem::take(&mut editor.asked)
        .into_iter()
        .map(|(.., call)| match call {
            Call::Arm(request) => request.place,
            call => panic!("{call:?}"),
        })
        .collect();
    let raise = |class: &str| BreakpointLocation::Raise {
        exception: Some(class.to_owned()),
    };
    let expected = [
        BreakpointLocation::Uncaught,
        raise("ValueError"),
        raise("json.JSONDecodeError"),
    ];
    assert_eq!(places, expected);
}

#[test]
fn ids_of_a_stop_are_over_when_its_thread_moves() {
    let mut editor = Editor::attached(pid(), 1);
    editor.stops(stop(StopReason::Step, 10));
    let stopped = editor.event("stopped");
    assert_eq!(stopped["reason"], "step");
    assert_eq!(stopped["allThreadsStopped"], false);
    let thread = stopped["threadId"].clone();
    let seq = editor.ask(
        "stackTrace",
        json!({"threadId": thread, "startFrame": 0, "levels": 1}),
    );
    let body = editor.body(seq);
    assert_eq!(body["totalFrames"], 2);
    let frames = body["stackFrames"].as_array().unwrap();
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0]["source"]["path"], "/app/train.py");
    let frame = frames[0]["id"].clone();
    let seq = editor.ask("scopes", json!({"frameId": frame}));
    let scope = editor.body(seq)["scopes"][0]["variablesReference"].clone();
    let seq = editor.ask(
        "variables",
        json!({"variablesReference": scope, "start": 0, "count": 5}),
    );
    let (target, link, id, call) = editor.one_asked();
    let Call::Eval(eval) = call else {
        panic!("{call:?}");
    };
    assert_eq!((link, eval.stop), (Link::Control, Some(StopId(1))));
    assert!(eval.code.ends_with("'all', 0, 5)"), "{}", eval.code);
    let told = r#"[{"name": "d", "step": ["a", "d"], "code": "d", "value": "{…}", "type": "dict", "named": 0, "indexed": 3}]"#;
    editor.answer((target, link, id), finished(told));
    let variables = editor.body(seq)["variables"].clone();
    assert_eq!(variables[0]["evaluateName"], "d");
    assert_eq!(variables[0]["indexedVariables"], 3);
    let below = variables[0]["variablesReference"].clone();
    let seq = editor.ask("next", json!({"threadId": thread}));
    let (target, link, id, call) = editor.one_asked();
    assert!(
        matches!(&call, Call::Step(it) if it.step == Step::Over && it.my_code),
        "{call:?}"
    );
    editor.answer((target, link, id), Event::Done);
    editor.response(seq);
    for (command, arguments) in [
        ("scopes", json!({"frameId": frame})),
        ("variables", json!({"variablesReference": scope})),
        ("variables", json!({"variablesReference": below})),
        ("evaluate", json!({"expression": "d", "frameId": frame})),
        ("stackTrace", json!({"threadId": thread})),
        ("next", json!({"threadId": thread})),
    ] {
        let seq = editor.ask(command, arguments);
        let refusal = editor.refusal(seq);
        assert!(
            refusal.contains("resumed") || refusal.contains("running"),
            "{refusal}"
        );
    }
    assert!(editor.asked.is_empty());
    editor.stops(stop(StopReason::Step, 11));
    editor.event("stopped");
    let seq = editor.ask("stackTrace", json!({"threadId": thread}));
    assert_ne!(editor.body(seq)["stackFrames"][0]["id"], frame);
}

#[test]
fn a_thread_that_another_client_resumes_is_told() {
    let mut editor = Editor::attached(pid(), 1);
    editor.stops(stop(StopReason::Asked, 10));
    let thread = editor.event("stopped")["threadId"].clone();
    editor.news(
        0,
        BreakpointEvent::WentOn {
            stop: StopId(1),
            because: ResumeReason::Asked,
        },
    );
    assert_eq!(editor.event("continued")["threadId"], thread);
    // One that we resume is not: the editor knows.
    editor.stops(stop(StopReason::Asked, 10));
    editor.ask("continue", json!({"threadId": thread}));
    editor.heard.clear();
    editor.news(
        0,
        BreakpointEvent::WentOn {
            stop: StopId(1),
            because: ResumeReason::Asked,
        },
    );
    assert_eq!(editor.names(), [""; 0]);
}

#[test]
fn a_thread_that_resumes_may_end_its_process_before_that_is_said() {
    let mut editor = Editor::attached(pid(), 1);
    editor.stops(stop(StopReason::Asked, 10));
    let thread = editor.event("stopped")["threadId"].clone();
    let seq = editor.ask("continue", json!({"threadId": thread}));
    let reason = "has ended".to_owned();
    editor.feed(Input::Closed { target: 0, reason });
    editor.body(seq);
    editor.event("terminated");
}

#[test]
fn a_value_that_takes_too_long_is_interrupted() {
    let mut editor = Editor::attached(pid(), 1);
    editor.stops(stop(StopReason::Step, 10));
    let seq = editor.ask("evaluate", json!({"expression": "x", "context": "watch"}));
    let (target, link, id, _) = editor.one_asked();
    editor.pass(Duration::from_secs(6));
    assert_eq!(editor.one_asked().3, Call::Cancel { request: id });
    editor.answer((target, link, id), raised("KeyboardInterrupt"));
    assert!(editor.refusal(seq).contains("too long"));
    // One that does not end is given up.
    let seq = editor.ask("evaluate", json!({"expression": "x", "context": "hover"}));
    editor.pass(Duration::from_secs(6));
    editor.pass(Duration::from_secs(3));
    assert!(editor.refusal(seq).contains("does not end"));
    // What is typed takes its time, and is cancelled by hand.
    editor.asked.clear();
    let seq = editor.ask("evaluate", json!({"expression": "x", "context": "repl"}));
    let (target, link, id, _) = editor.one_asked();
    editor.pass(Duration::from_hours(1));
    editor.ask("cancel", json!({"requestId": seq}));
    assert_eq!(editor.one_asked().3, Call::Cancel { request: id });
    editor.answer((target, link, id), raised("KeyboardInterrupt"));
    assert_eq!(editor.refusal(seq), "cancelled");
}

#[test]
fn statements_are_run_as_they_were_typed() {
    let mut editor = Editor::attached(pid(), 1);
    editor.stops(stop(StopReason::Step, 10));
    let typed = "import os\nx = 1";
    let seq = editor.ask("evaluate", json!({"expression": typed, "context": "repl"}));
    let (target, link, id, _) = editor.one_asked();
    let text = "SyntaxError: invalid syntax".to_owned();
    editor.answer((target, link, id), outcome(Outcome::SyntaxError { text }));
    let (target, link, id, call) = editor.one_asked();
    assert!(
        matches!(&call, Call::Eval(eval) if eval.code == typed),
        "{call:?}"
    );
    editor.answer(
        (target, link, id),
        outcome(Outcome::Finished { value: None }),
    );
    assert_eq!(editor.body(seq)["result"], "");
}

#[test]
fn leaving_deletes_breakpoints_then_resumes_threads() {
    let mut editor = Editor::attached(pid(), 1);
    editor.ask(
        "setFunctionBreakpoints",
        json!({"breakpoints": [{"name": "step"}]}),
    );
    let (target, link, id, call) = editor.one_asked();
    let Call::Arm(request) = call else {
        panic!("{call:?}");
    };
    editor.answer((target, link, id), Event::Armed(set(5, &request, &[10])));
    let point = BreakpointId(5);
    editor.stops(stop(StopReason::Breakpoint { point }, 10));
    assert_eq!(editor.event("stopped")["reason"], "function breakpoint");
    let seq = editor.ask("disconnect", json!({}));
    let (target, link, id, call) = editor.one_asked();
    let points = vec![point];
    assert_eq!(call, Call::Disarm { points });
    editor.answer((target, link, id), Event::Points { points: Vec::new() });
    let (target, link, id, call) = editor.one_asked();
    let stops = vec![StopId(1)];
    assert_eq!(call, Call::Release { stops });
    assert!(!editor.has_ended);
    editor.answer((target, link, id), Event::Stops { stops: Vec::new() });
    editor.body(seq);
    assert!(editor.has_ended);
}

#[test]
fn leaving_does_not_wait_for_a_process_that_does_not_answer() {
    let mut editor = Editor::attached(pid(), 1);
    editor.stops(stop(StopReason::Asked, 10));
    let seq = editor.ask("disconnect", json!({}));
    assert!(!editor.has_ended);
    editor.pass(Duration::from_secs(4));
    editor.body(seq);
    assert!(editor.has_ended);
}

#[test]
fn a_thread_may_stay_stopped_for_the_next_client() {
    for (configuration, arguments) in [
        (json!({"processId": 1, "onDisconnect": "keep"}), json!({})),
        (json!({"processId": 1}), json!({"suspendDebuggee": true})),
    ] {
        let mut editor = Editor::attached(configuration, 1);
        editor.stops(stop(StopReason::Asked, 10));
        editor.ask("disconnect", arguments);
        assert!(editor.asked.is_empty(), "{:?}", editor.asked);
        assert!(editor.has_ended);
    }
}

#[test]
fn ranks_have_threads_of_their_own() {
    let mut editor = Editor::attached(json!({"ranks": "0-1"}), 2);
    let seq = editor.ask("threads", json!({}));
    for target in [1, 0] {
        let threads = vec![ListedThread {
            ident: 77,
            name: "MainThread".to_owned(),
        }];
        editor.feed(Input::Threads { target, threads });
    }
    let threads = editor.body(seq)["threads"].clone();
    let names: Vec<&str> = (0..2)
        .map(|at| threads[at]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["rank 0 · MainThread", "rank 1 · MainThread"]);
    let stop = stop(StopReason::Asked, 10);
    editor.news(1, BreakpointEvent::Stopped { stop });
    assert_eq!(editor.event("stopped")["threadId"], threads[1]["id"]);
    let reason = "has ended".to_owned();
    editor.feed(Input::Closed { target: 0, reason });
    assert!(!editor.names().contains(&"terminated".to_owned()));
    let reason = "has ended".to_owned();
    editor.feed(Input::Closed { target: 1, reason });
    editor.event("terminated");
}

#[test]
fn text_of_code_that_is_in_no_file_comes_from_the_target() {
    let mut editor = Editor::attached(pid(), 1);
    let mut stop = stop(StopReason::Asked, 1);
    stop.frames[0].file = "<string>".to_owned();
    stop.frames[1].file = "/app/missing.py".to_owned();
    editor.stops(stop);
    let thread = editor.event("stopped")["threadId"].clone();
    let seq = editor.ask("stackTrace", json!({"threadId": thread}));
    let frames = editor.body(seq)["stackFrames"].clone();
    for (at, file) in ["<string>", "/app/missing.py"].into_iter().enumerate() {
        let source = &frames[at]["source"];
        let seq = editor.ask(
            "source",
            json!({"sourceReference": source["sourceReference"]}),
        );
        let (target, link, id, call) = editor.one_asked();
        assert!(
            matches!(&call, Call::Source { file: it, .. } if it == file),
            "{call:?}"
        );
        let lines = vec!["x = 1".to_owned()];
        let text = probing_proto::message::breakpoints::Source {
            first: 1,
            lines,
            of: 1,
        };
        editor.answer((target, link, id), Event::Source(text));
        assert_eq!(editor.body(seq)["content"], "x = 1\n");
    }
}
