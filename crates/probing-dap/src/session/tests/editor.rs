//! An editor, what its session has asked for, and what probes may answer.

use std::time::{Duration, Instant};

use probing_proto::message::breakpoints::{
    Breakpoint, BreakpointEvent, BreakpointId, Controller, SetBreakpoint, SourceLocation, Stop,
    StopId, StopReason,
};
use probing_proto::message::{Call, Evaluated, Event, Message, Outcome, Raised, RequestId};
use serde_json::{Value, json};

use super::super::{Effect, Input, Link, ReachedTarget, Session, Surroundings};
use crate::framing::{self, Decoder};

/// An editor, and what its session has asked for.
pub(super) struct Editor {
    pub(super) session: Session,
    now: Instant,
    pub(super) seq: i64,
    decoder: Decoder,
    pub(super) heard: Vec<Value>,
    pub(super) asked: Vec<(usize, Link, RequestId, Call)>,
    pub(super) has_ended: bool,
}

impl Editor {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let surroundings = Surroundings {
            nonce: "1".to_owned(),
            token: None,
            is_readable: |path| !path.contains("missing"),
        };
        Self {
            session: Session::new(surroundings, now),
            now,
            seq: 0,
            decoder: Decoder::default(),
            heard: Vec::new(),
            asked: Vec::new(),
            has_ended: false,
        }
    }

    /// One that has attached to so many processes.
    pub(super) fn attached(configuration: Value, targets: usize) -> Self {
        let mut editor = Self::new();
        editor.ask("initialize", json!({"clientName": "test"}));
        editor.ask("attach", configuration);
        editor.feed(Input::Reached((0..targets).map(reached).collect()));
        editor.ask("configurationDone", json!({}));
        editor.heard.clear();
        editor.asked.clear();
        editor
    }

    pub(super) fn feed(&mut self, input: Input<'_>) {
        for effect in self.session.handle(self.now, input) {
            match effect {
                Effect::Write(bytes) => {
                    self.decoder.push(&bytes);
                    let message = self.decoder.next_message().unwrap().unwrap();
                    self.heard.push(serde_json::from_slice(&message).unwrap());
                    // One write is one message.
                    assert_eq!(self.decoder.next_message(), Ok(None));
                }
                Effect::Send {
                    target,
                    link,
                    request,
                } => self.asked.push((target, link, request.id, request.call)),
                Effect::Reach(_) | Effect::ListThreads { .. } => {}
                Effect::End => self.has_ended = true,
            }
        }
    }

    pub(super) fn ask(&mut self, command: &str, arguments: Value) -> i64 {
        let (bytes, seq) = self.request(command, arguments);
        self.feed(Input::Bytes(&bytes));
        seq
    }

    pub(super) fn request(&mut self, command: &str, arguments: Value) -> (Vec<u8>, i64) {
        self.seq += 1;
        let seq = self.seq;
        let message =
            json!({"seq": seq, "type": "request", "command": command, "arguments": arguments});
        (framing::encode(message.to_string().as_bytes()), seq)
    }

    /// What was asked of a probe since the last time, which must be one thing.
    #[track_caller]
    pub(super) fn one_asked(&mut self) -> (usize, Link, RequestId, Call) {
        assert_eq!(self.asked.len(), 1, "{:?}", self.asked);
        self.asked.remove(0)
    }

    pub(super) fn answer(&mut self, (target, link, id): (usize, Link, RequestId), event: Event) {
        let message = Box::new(Message {
            id: Some(id),
            event,
        });
        self.feed(Input::FromProbe {
            target,
            link,
            message,
        });
    }

    pub(super) fn news(&mut self, target: usize, news: BreakpointEvent) {
        // The first that is asked of each target.
        let id = RequestId(target as u64 + 1);
        self.answer((target, Link::Control, id), Event::News(news));
    }

    /// A thread stops, and values become reachable.
    pub(super) fn stops(&mut self, stop: Stop) {
        self.news(0, BreakpointEvent::Stopped { stop });
        let installs = self
            .asked
            .iter()
            .position(|(_, link, _, call)| *link == Link::Support && matches!(call, Call::Eval(_)));
        if let Some(at) = installs {
            let (target, link, id, _) = self.asked.remove(at);
            self.answer((target, link, id), finished("<keeper>"));
        }
    }

    #[track_caller]
    pub(super) fn response(&mut self, seq: i64) -> Value {
        let is_it = |message: &Value| message["request_seq"] == seq;
        let at = self.heard.iter().position(is_it);
        let at = at.unwrap_or_else(|| panic!("no answer to {seq}: {:?}", self.heard));
        self.heard.remove(at)
    }

    #[track_caller]
    pub(super) fn body(&mut self, seq: i64) -> Value {
        let response = self.response(seq);
        assert_eq!(response["success"], true, "{response}");
        response["body"].clone()
    }

    #[track_caller]
    pub(super) fn refusal(&mut self, seq: i64) -> String {
        let response = self.response(seq);
        assert_eq!(response["success"], false, "{response}");
        response["message"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(super) fn event(&mut self, name: &str) -> Value {
        let is_it = |message: &Value| message["event"] == name;
        let at = self.heard.iter().position(is_it);
        let at = at.unwrap_or_else(|| panic!("no {name}: {:?}", self.heard));
        self.heard.remove(at)["body"].clone()
    }

    pub(super) fn names(&self) -> Vec<String> {
        let name = |message: &Value| {
            let kind = ["event", "command"].map(|key| message[key].as_str());
            kind.into_iter().flatten().next().unwrap().to_owned()
        };
        self.heard.iter().map(name).collect()
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.feed(Input::Tick);
    }
}

pub(super) fn reached(target: usize) -> ReachedTarget {
    ReachedTarget {
        label: format!("rank {target}"),
        name: "python train.py".to_owned(),
        pid: 4242 + target as u32,
        is_local: true,
    }
}

pub(super) fn place(func: &str, lineno: u32) -> SourceLocation {
    SourceLocation {
        func: func.to_owned(),
        file: "/app/train.py".to_owned(),
        lineno,
    }
}

pub(super) fn stop(why: StopReason, lineno: u32) -> Stop {
    Stop {
        stop: StopId(1),
        thread: 77,
        thread_id: 4242,
        thread_name: "MainThread".to_owned(),
        why,
        frames: vec![place("step", lineno), place("<module>", 90)],
        since_millis: 0,
        ends_in_millis: 1000,
        driver: Controller::You,
        followers: 1,
    }
}

pub(super) fn set(point: u32, request: &SetBreakpoint, bound: &[u32]) -> Breakpoint {
    Breakpoint {
        point: BreakpointId(point),
        request: request.clone(),
        bound: bound.iter().map(|line| place("step", *line)).collect(),
        cost: "nothing".to_owned(),
        by: "sys.monitoring".to_owned(),
        hits: 0,
        fired: 0,
        dropped: 0,
        expires_in_millis: None,
        over: false,
        note: None,
    }
}

pub(super) fn outcome(outcome: Outcome) -> Event {
    Event::Evaluated(Evaluated {
        took_nanos: 1,
        output_dropped: 0,
        thread: None,
        outcome,
    })
}

pub(super) fn finished(value: &str) -> Event {
    outcome(Outcome::Finished {
        value: Some(value.to_owned()),
    })
}

pub(super) fn raised(exception: &str) -> Event {
    outcome(Outcome::Raised(Raised {
        exception: exception.to_owned(),
        message: String::new(),
        traceback: String::new(),
        frames: Vec::new(),
    }))
}

pub(super) fn pid() -> Value {
    json!({"processId": 4242})
}
