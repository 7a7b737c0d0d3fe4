//! Whatever an editor sends, in whatever order, and whenever it, a probe or a process stops doing so.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use probing_proto::message::breakpoints::{BreakpointEvent, ResumeReason, StopId, StopReason};
use probing_proto::message::{Call, Event, Failure, Outcome};
use std::time::Duration;

use super::editor::{Editor, finished, outcome, pid, raised, reached, set, stop};
use crate::framing::Decoder;
use crate::session::Input;

/// Requests with arguments that mean something at some time.
const REQUESTS: &[&str] = &[
    r"initialize {}",
    r#"attach {"processId": 1}"#,
    r#"attach {"endpoint": "x", "exceptions": ["ValueError"]}"#,
    r"configurationDone {}",
    r#"setBreakpoints {"source": {"path": "/a.py"}, "breakpoints": [{"line": 1}, {"line": 2}]}"#,
    r#"setBreakpoints {"source": {"path": "/a.py"}, "breakpoints": [{"line": 2, "hitCondition": "x"}]}"#,
    r#"setFunctionBreakpoints {"breakpoints": [{"name": "f"}]}"#,
    r#"setExceptionBreakpoints {"filters": ["raised", "uncaught"]}"#,
    r#"setExceptionBreakpoints {"filters": ["nope"]}"#,
    r#"setDataBreakpoints {"breakpoints": [{"dataId": "value:x"}, {"dataId": "?"}]}"#,
    r#"dataBreakpointInfo {"variablesReference": 1, "name": "x"}"#,
    r"threads null",
    r#"stackTrace {"threadId": 1, "startFrame": 1, "levels": 1}"#,
    r#"stackTrace {"threadId": -9223372036854775807}"#,
    r#"scopes {"frameId": 1}"#,
    r#"variables {"variablesReference": 1, "start": -5, "count": -1}"#,
    r#"variables {"variablesReference": 2, "filter": "indexed", "start": 0, "count": 10}"#,
    r#"evaluate {"expression": "x", "frameId": 1, "context": "repl"}"#,
    r#"evaluate {"expression": "x"}"#,
    r#"setVariable {"variablesReference": 1, "name": "x", "value": "1"}"#,
    r#"setExpression {"expression": "x", "value": "1", "frameId": 1}"#,
    r#"completions {"text": "a.b", "column": 4, "frameId": 1}"#,
    r#"completions {"text": "é", "column": 99}"#,
    r#"continue {"threadId": 1}"#,
    r#"next {"threadId": 1}"#,
    r#"goto {"threadId": 1, "targetId": 1}"#,
    r#"gotoTargets {"source": {}, "line": 3}"#,
    r#"exceptionInfo {"threadId": 1}"#,
    r#"source {"sourceReference": 1}"#,
    r#"cancel {"requestId": 3}"#,
    r#"pause {"threadId": 1}"#,
    r"terminate {}",
    r"disconnect {}",
    r#"disconnect {"terminateDebuggee": true}"#,
    r#"launch {"program": "x"}"#,
    r"nonsense [1]",
];

#[derive(Debug, Clone)]
enum Happening {
    Request(usize),
    /// The probe answers one of the requests that are in flight.
    Answer(prop::sample::Index, usize),
    Reached(bool),
    Stopped(u32),
    WentOn(u32),
    Closed,
    Listed,
    Passes(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => (0..REQUESTS.len()).prop_map(Happening::Request),
        4 => (any::<prop::sample::Index>(), 0..9_usize).prop_map(|(at, kind)| Happening::Answer(at, kind)),
        2 => any::<bool>().prop_map(Happening::Reached),
        2 => (1..3_u32).prop_map(Happening::Stopped),
        1 => (1..3_u32).prop_map(Happening::WentOn),
        1 => Just(Happening::Closed),
        1 => Just(Happening::Listed),
        1 => (0..5000_u64).prop_map(Happening::Passes),
    ]
}

fn any_answer(call: &Call, kind: usize) -> Event {
    match kind {
        0 => Event::Failed(Failure::new("no")),
        1 => Event::Done,
        2 => finished("nonsense"),
        3 => finished(r#"{"value": "1", "type": "int", "named": 1, "indexed": 0, "held": 3}"#),
        4 => outcome(Outcome::SyntaxError {
            text: String::new(),
        }),
        5 => raised("ValueError"),
        _ => match call {
            Call::Arm(request) => Event::Armed(set(kind as u32, request, &[1])),
            Call::Disarm { .. } | Call::Points => Event::Points { points: Vec::new() },
            Call::Eval(_) => finished(
                r#"[{"name": "x", "step": ["a", "x"], "code": "x", "value": "1", "type": "int", "named": 0, "indexed": 1}]"#,
            ),
            Call::Follow { .. } | Call::Release { .. } => Event::Stops { stops: Vec::new() },
            Call::Complete(_) => Event::Completions {
                completions: Vec::new(),
            },
            _ => Event::Done,
        },
    }
}

fn happen(editor: &mut Editor, happening: Happening) {
    match happening {
        Happening::Request(at) => {
            let (command, arguments) = REQUESTS[at].split_once(' ').unwrap();
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            editor.ask(command, arguments);
        }
        Happening::Answer(at, kind) => {
            if !editor.asked.is_empty() {
                let at = at.index(editor.asked.len());
                let (target, link, id, call) = editor.asked.remove(at);
                let event = any_answer(&call, kind);
                editor.answer((target, link, id), event);
            }
        }
        Happening::Reached(true) => editor.feed(Input::Reached(vec![reached(0)])),
        Happening::Reached(false) => editor.feed(Input::NotReached(Failure::new("no"))),
        Happening::Stopped(number) => {
            let mut stop = stop(StopReason::Asked, number);
            stop.stop = StopId(number);
            editor.news(0, BreakpointEvent::Stopped { stop });
        }
        Happening::WentOn(number) => editor.news(
            0,
            BreakpointEvent::WentOn {
                stop: StopId(number),
                because: ResumeReason::Deadline,
            },
        ),
        Happening::Closed => {
            let reason = "ended".to_owned();
            editor.feed(Input::Closed { target: 0, reason });
        }
        Happening::Listed => {
            let threads = Vec::new();
            editor.feed(Input::Threads { target: 0, threads });
        }
        Happening::Passes(millis) => editor.pass(Duration::from_millis(millis)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_request_is_answered_once(happenings in vec(happening(), 0..40), is_ready in any::<bool>()) {
        let mut editor = if is_ready { Editor::attached(pid(), 1) } else { Editor::new() };
        let first = editor.seq + 1;
        for happening in happenings {
            if editor.has_ended {
                break;
            }
            happen(&mut editor, happening);
        }
        if !editor.has_ended {
            editor.feed(Input::NotReached(Failure::new("no")));
            editor.feed(Input::Closed { target: 0, reason: "ended".to_owned() });
            for _ in 0..3 {
                editor.pass(Duration::from_secs(10));
            }
        }
        if !editor.has_ended {
            for seq in first..=editor.seq {
                let answers = editor.heard.iter().filter(|it| it["request_seq"] == seq).count();
                // An attach is answered when the editor has configured, which it may never do.
                let is_attach = editor.session.attach.as_ref().is_some_and(|it| it.seq == seq);
                prop_assert_eq!(answers, usize::from(!is_attach), "{} of {:?}", seq, &editor.heard);
            }
        }
        let mut seqs: Vec<i64> = editor.heard.iter().filter_map(|it| it["request_seq"].as_i64()).collect();
        seqs.sort_unstable();
        let count = seqs.len();
        seqs.dedup();
        prop_assert_eq!(seqs.len(), count);
    }

    #[test]
    fn an_editor_may_vanish_at_any_byte(cut in any::<prop::sample::Index>(), pieces in 1..50_usize) {
        let mut editor = Editor::new();
        let mut bytes = Vec::new();
        for request in REQUESTS {
            let (command, arguments) = request.split_once(' ').unwrap();
            let (request, _) = editor.request(command, serde_json::from_str(arguments).unwrap());
            bytes.extend(request);
        }
        let bytes = &bytes[..cut.index(bytes.len() + 1)];
        for piece in bytes.chunks(pieces) {
            editor.feed(Input::Bytes(piece));
        }
        let whole = { let mut decoder = Decoder::default(); decoder.push(bytes); let mut count = 0; while let Ok(Some(_)) = decoder.next_message() { count += 1; } count };
        let answered = editor.heard.iter().filter(|it| it["type"] == "response").count();
        prop_assert!(answered <= whole);
    }

    #[test]
    fn bytes_that_are_no_messages_end_the_session_in_words(bytes in vec(any::<u8>(), 0..300)) {
        let mut editor = Editor::new();
        editor.feed(Input::Bytes(&bytes));
        editor.feed(Input::Bytes(b"\r\n\r\n"));
        let words = json!("output");
        prop_assert!(!editor.has_ended || editor.heard.iter().any(|it| it["event"] == words));
    }
}
