//! Values of locals in the program's own words: what these do, the program does not notice.

use std::collections::BTreeMap;

use probing_proto::message::{
    Call, Event, Failure, FrameLocals, Locals, LocalsCall, Message, Progress, Request, RequestId,
};
use probing_testkit::{Python, RawClient, Sandbox, Target, TargetBuilder, every_python};

use crate::host::{client_of, sandbox, value, wait_until_idle};

/// Far longer than any test: what is not known then is never known.
const LONG: u64 = 60_000;

/// The target, with values of these kinds whose repr does not end.
fn waiting(sandbox: &Sandbox, python: &Python, endless: &[&str]) -> Target {
    let target = sandbox.target(python, "reprs.py").env("PROBING", "1");
    endless.iter().fold(target, TargetBuilder::arg).start()
}

fn ask(client: &mut RawClient, id: u64, deadline_millis: u64) {
    let call = Call::Locals(LocalsCall {
        threads: Vec::new(),
        deadline_millis,
    });
    let id = RequestId(id);
    client.send(&Request { id, call });
}

#[track_caller]
fn answered(client: &mut RawClient, id: u64) -> Event {
    let is_last = |message: &Message| message.id == Some(RequestId(id));
    client.receive_until(is_last).pop().unwrap().event
}

#[track_caller]
fn locals(client: &mut RawClient, deadline_millis: u64) -> Locals {
    ask(client, 7, deadline_millis);
    match answered(client, 7) {
        Event::Locals(locals) => locals,
        event => panic!("{event:?}"),
    }
}

/// The variables of one function of the only thread.
#[track_caller]
fn variables(locals: &Locals, func: &str) -> BTreeMap<String, String> {
    let [thread] = &locals.threads[..] else {
        panic!("{locals:?}")
    };
    let is_it = |frame: &&FrameLocals| frame.func == func;
    let frame = thread.frames.iter().find(is_it).unwrap();
    let values = frame.locals.iter().flatten();
    values
        .map(|local| (local.name.clone(), local.value.clone()))
        .collect()
}

/// Ends the target, which must not have printed anything or had its data touched.
#[track_caller]
fn ended_untouched(target: Target) {
    let ended = target.end();
    assert_eq!(ended.status, 0, "{ended:?}");
    assert_eq!(ended.stdout, ["touched: []"]);
    assert_eq!(ended.stderr, [""; 0]);
}

#[test]
fn values_are_told_in_words_and_data_is_never_touched() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = waiting(&sandbox, python, &[]);
        let told = locals(&mut client_of(&sandbox, &target), LONG);
        let variables = variables(&told, "wait");
        let check = |name: &str, text: &str| assert_eq!(variables[name], text, "{name}");
        check("parameter", "'given'");
        check("shared", "'in a cell'");
        check("endless", "[]");
        check("number", &format!("1{}", "0".repeat(30)));
        check("nothing", "None");
        check("many", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … 90 more]");
        check("nested", "{'a': [1, (2.5, True)], b'k': {3}}");
        check("named", "Point(x=1, y=2)");
        check("itself", "[1, ...]");
        check("inside", "<function wait.<locals>.inside>");
        check("speaks", "Speaks(up)");
        check("raises", "<Raises, whose repr raised ValueError>");
        check("recurses", "<Recurses, whose repr raised RecursionError>");
        check("prints", "Prints()");
        check("exits", "<Exits, whose repr raised SystemExit>");
        let tensor = "Tensor(shape=(2, 3), dtype=float32, device=cuda:0)";
        check("tensor", tensor);
        check(
            "tensors",
            &format!("{{'w': [{tensor}, {tensor}], 'of': OrderedDict({{'b': {tensor}}})}}"),
        );
        check("plain", &format!("<Plain count=1, held={tensor}>"));
        check("settings", &format!("Settings(rate=0.1, weights={tensor})"));
        check("last", "Speaks(last)");
        assert!(variables["text"].ends_with("… (300 more)"), "{variables:?}");
        assert!(variables["long"].len() < 1100);
        ended_untouched(target);
    });
}

#[test]
fn a_module_shows_what_it_computes_and_not_what_it_defines() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = waiting(&sandbox, python, &[]);
        let told = locals(&mut client_of(&sandbox, &target), LONG);
        let names: Vec<String> = variables(&told, "<module>").into_keys().collect();
        assert_eq!(names, ["ENDLESS", "module_level", "released", "touched"]);
        ended_untouched(target);
    });
}

#[test]
fn a_repr_that_does_not_end_is_cut_and_the_others_are_told() {
    every_python(|python| {
        for kind in ["loops", "sleeps", "deaf"] {
            let sandbox = sandbox();
            let mut target = waiting(&sandbox, python, &[kind]);
            let mut client = client_of(&sandbox, &target);
            let variables = variables(&locals(&mut client, LONG), "wait");
            let endless = &variables["endless"];
            assert!(
                endless.contains("whose repr did not end within 0.2 s"),
                "{kind}: {endless}"
            );
            assert_eq!(variables["last"], "Speaks(last)", "{kind}");
            assert_eq!(value(&mut client, "module_level"), "42", "{kind}");
            target.say("release");
            assert_eq!(target.line(), "released");
            if kind != "sleeps" {
                wait_until_idle(target.pid());
            }
            ended_untouched(target);
        }
    });
}

#[test]
fn an_answer_that_takes_too_long_comes_with_what_there_is() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = waiting(&sandbox, python, &["sleeps", "loops", "deaf"]);
        let told = locals(&mut client_of(&sandbox, &target), 1);
        let variables = variables(&told, "wait");
        assert_eq!(variables["last"], "<Speaks, not shown: out of time>");
        ended_untouched(target);
    });
}

#[test]
fn looking_at_locals_waits_for_the_gil_and_is_cancelled_like_an_eval() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "holds_gil.py");
        target.say("hold");
        assert_eq!(target.line(), "holding");
        let mut client = client_of(&sandbox, &target);
        ask(&mut client, 1, LONG);
        let (id, request) = (RequestId(2), RequestId(1));
        client.send(&Request {
            id,
            call: Call::Cancel { request },
        });
        let (begun, thread) = (false, None);
        let cancelling = Event::Cancelling(Progress { begun, thread });
        assert_eq!(answered(&mut client, 2), cancelling);
        target.say("release");
        assert_eq!(target.line(), "released");
        let interrupted = Event::Failed(Failure::new("interrupted"));
        assert_eq!(answered(&mut client, 1), interrupted);
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn a_value_that_was_read_is_not_kept() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = waiting(&sandbox, python, &[]);
        let told = locals(&mut client_of(&sandbox, &target), LONG);
        let big = &variables(&told, "wait")["big"];
        assert!(big.starts_with("<Big object at 0x"), "{big}");
        wait_until_idle(target.pid());
        target.say("drop");
        assert_eq!(target.line(), "True");
        ended_untouched(target);
    });
}
