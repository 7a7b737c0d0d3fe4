//! The session of one editor: a state machine without IO.
//!
//! [`Session::handle`] takes what happened (bytes of the editor, messages of probes, time) and gives what is to be done: bytes for
//! the editor, requests for probes. What belongs together is in the folder: `lifecycle`, `breakpoints`, `stops`, `values`.
//!
//! *Invariant:* every request is answered once. Ids of frames and values are valid while their thread is stopped.

mod breakpoints;
mod code;
mod config;
mod ids;
mod lifecycle;
mod probes;
mod stops;
mod text;
mod values;
mod wanted;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use probing_proto::dap::arguments;
use probing_proto::dap::body::{ErrorBody, ErrorMessage};
use probing_proto::dap::{AdapterMessage, ClientMessage, Content, Event, Response};
use probing_proto::message::breakpoints::StopId;
use probing_proto::message::{Call, Failure, Message, Request, RequestId};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::framing::{self, Decoder};

use self::breakpoints::Breakpoints;
pub(crate) use self::config::AttachConfig;
use self::ids::Ids;
use self::lifecycle::Phase;
use self::probes::{Asked, Purpose};
use self::stops::{Frame, ThreadsRequest};
use self::values::Branch;

/// Which connection to a target: one controls its stops, the other answers while that one is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    Control,
    Support,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Input<'a> {
    /// The editor sent these bytes.
    Bytes(&'a [u8]),
    /// The processes were found and their probes answered.
    Reached(Vec<ReachedTarget>),
    NotReached(Failure),
    FromProbe {
        target: usize,
        link: Link,
        message: Box<Message>,
    },
    /// The probe has gone, with its process or without.
    Closed {
        target: usize,
        reason: String,
    },
    Threads {
        target: usize,
        threads: Vec<ListedThread>,
    },
    /// Nothing but time.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Write one message to the editor.
    Write(Vec<u8>),
    /// Find the processes and connect: [`Input::Reached`] or [`Input::NotReached`].
    Reach(Box<AttachConfig>),
    Send {
        target: usize,
        link: Link,
        request: Request,
    },
    /// List the threads of a process from outside: [`Input::Threads`].
    ListThreads { target: usize },
    /// Close all connections; the session is over.
    End,
}

/// A process whose probe answers.
#[derive(Debug, Clone)]
pub(crate) struct ReachedTarget {
    /// What tells it from the others: `rank 3`.
    pub(crate) label: String,
    /// The command that it runs.
    pub(crate) name: String,
    /// As it is known here.
    pub(crate) pid: u32,
    pub(crate) is_local: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedThread {
    pub(crate) ident: u64,
    pub(crate) name: String,
}

/// A request of the editor that is to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reply {
    seq: i64,
    command: String,
}

/// How a request is answered.
enum Answer {
    Now(Value),
    /// When something else has happened.
    Later,
}

/// Why it is not: in words for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Refusal {
    text: String,
    /// Whether the editor should show it by itself.
    shown: bool,
}

impl Refusal {
    fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            shown: false,
        }
    }

    fn shown(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            shown: true,
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::new(words_of(&failure))
    }
}

fn words_of(failure: &Failure) -> String {
    match &failure.hint {
        Some(hint) => format!("{} (hint: {hint})", failure.error),
        None => failure.error.clone(),
    }
}

type Handled = Result<Answer, Refusal>;

/// One target, as the session knows it.
#[derive(Debug)]
struct Target {
    reached: ReachedTarget,
    stops: Vec<stops::StoppedThread>,
    /// Threads by their place in this list are what the editor knows.
    threads: Vec<u64>,
    values: values::Readiness,
    is_gone: bool,
}

/// What does not depend on what happens.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// Part of the name under which values are reached in targets; no other session's.
    pub(crate) nonce: String,
    /// What an editor has to know before it may attach.
    pub(crate) token: Option<String>,
    /// Whether the editor could read a file of that path.
    pub(crate) is_readable: fn(&str) -> bool,
}

#[derive(Debug)]
pub(crate) struct Session {
    surroundings: Surroundings,
    decoder: Decoder,
    /// The number of the last message that was sent.
    sent: i64,
    effects: Vec<Effect>,
    now: Instant,
    phase: Phase,
    /// The editor has said that it is done with configuring.
    is_configured: bool,
    /// Answered when the process is reached and the editor has configured.
    attach: Option<Reply>,
    config: AttachConfig,
    targets: Vec<Target>,
    last_request: u64,
    asked: HashMap<RequestId, Asked>,
    frames: Ids<Frame>,
    values: Ids<Branch>,
    sources: Vec<(usize, String)>,
    goto_lines: Vec<u32>,
    breakpoints: Breakpoints,
    listings: Vec<ThreadsRequest>,
}

impl Session {
    pub(crate) fn new(surroundings: Surroundings, now: Instant) -> Self {
        Self {
            surroundings,
            decoder: Decoder::default(),
            sent: 0,
            effects: Vec::new(),
            now,
            phase: Phase::Fresh,
            is_configured: false,
            attach: None,
            config: AttachConfig::default(),
            targets: Vec::new(),
            last_request: 0,
            asked: HashMap::new(),
            frames: Ids::default(),
            values: Ids::default(),
            sources: Vec::new(),
            goto_lines: Vec::new(),
            breakpoints: Breakpoints::default(),
            listings: Vec::new(),
        }
    }

    /// Takes in what happened, and gives what is to be done, in this order.
    pub(crate) fn handle(&mut self, now: Instant, input: Input<'_>) -> Vec<Effect> {
        self.now = now;
        if self.phase != Phase::Ended {
            self.take_in(input);
            self.look_at_time();
        }
        std::mem::take(&mut self.effects)
    }

    fn take_in(&mut self, input: Input<'_>) {
        match input {
            Input::Bytes(bytes) => self.take_bytes(bytes),
            Input::Reached(targets) => self.reached(targets),
            Input::NotReached(failure) => self.not_reached(&failure),
            Input::FromProbe {
                target,
                link,
                message,
            } => self.hear(target, link, *message),
            Input::Closed { target, reason } => self.closed(target, &reason),
            Input::Threads { target, threads } => self.listed(target, threads),
            Input::Tick => {}
        }
    }

    /// When [`Session::handle`] wants to be called at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let asked = self.asked.values().filter_map(|asked| asked.deadline);
        asked
            .chain(self.breakpoints.looked_at_next())
            .chain(self.phase.deadline())
            .min()
    }

    fn take_bytes(&mut self, bytes: &[u8]) {
        self.decoder.push(bytes);
        loop {
            match self.decoder.next_message() {
                Ok(Some(message)) => self.take_message(&message),
                Ok(None) => return,
                Err(error) => {
                    self.say(
                        "stderr",
                        &format!("the editor's bytes are no messages: {error}\n"),
                    );
                    return self.end();
                }
            }
            if self.phase == Phase::Ended {
                return;
            }
        }
    }

    fn take_message(&mut self, bytes: &[u8]) {
        let message: ClientMessage = match serde_json::from_slice(bytes) {
            Ok(message) => message,
            Err(error) => return self.say("stderr", &format!("message not understood: {error}\n")),
        };
        if !message.is_request() {
            return;
        }
        let reply = Reply {
            seq: message.seq,
            command: message.command,
        };
        let handled = self.take_request(&reply, message.arguments);
        match handled {
            Ok(Answer::Now(body)) => self.answer(&reply, body),
            Ok(Answer::Later) => {}
            Err(refusal) => self.refuse(&reply, &refusal),
        }
        self.after(&reply);
    }

    fn take_request(&mut self, reply: &Reply, arguments: Value) -> Handled {
        if self.phase.is_leaving() && reply.command != "disconnect" {
            return Err(Refusal::new("the session ends"));
        }
        match reply.command.as_str() {
            "initialize" => self.initialize(&parsed(arguments)?),
            "attach" => self.attach(reply, parsed(arguments)?),
            "launch" => Err(Refusal::shown(
                "launch is not supported: start the program, then attach to it by its pid",
            )),
            "configurationDone" => self.configuration_done(reply),
            "disconnect" => self.disconnect(reply, &parsed(arguments)?),
            "cancel" => Ok(self.cancel(&parsed(arguments)?)),
            command => {
                if self.targets.is_empty() {
                    return Err(Refusal::new(format!("no process is attached: {command}")));
                }
                self.take_request_of_target(reply, arguments)
            }
        }
    }

    fn take_request_of_target(&mut self, reply: &Reply, arguments: Value) -> Handled {
        match reply.command.as_str() {
            "terminate" => Ok(self.terminate()),
            "setBreakpoints" => self.set_breakpoints(reply, parsed(arguments)?),
            "setFunctionBreakpoints" => {
                Ok(self.set_function_breakpoints(reply, parsed(arguments)?))
            }
            "setExceptionBreakpoints" => self.set_exception_breakpoints(reply, parsed(arguments)?),
            "dataBreakpointInfo" => self.data_breakpoint_info(&parsed(arguments)?),
            "setDataBreakpoints" => Ok(self.set_data_breakpoints(reply, parsed(arguments)?)),
            "threads" => Ok(self.threads(reply)),
            "stackTrace" => self.stack_trace(&parsed(arguments)?),
            "continue" | "next" | "stepIn" | "stepOut" | "goto" => {
                self.step(reply, &parsed(arguments)?)
            }
            "gotoTargets" => self.goto_targets(&parsed(arguments)?),
            "pause" => Err(Refusal::shown(
                "a running thread cannot be paused: set a breakpoint in code that it runs",
            )),
            "exceptionInfo" => self.exception_info(&parsed(arguments)?),
            "scopes" => self.scopes(&parsed(arguments)?),
            "variables" => self.variables(reply, &parsed(arguments)?),
            "setVariable" => self.set_variable(reply, &parsed(arguments)?),
            "setExpression" => self.set_expression(reply, &parsed(arguments)?),
            "evaluate" => self.evaluate(reply, parsed(arguments)?),
            "completions" => self.completions(reply, &parsed(arguments)?),
            "source" => self.source(reply, &parsed(arguments)?),
            command => Err(Refusal::new(format!("not supported: {command}"))),
        }
    }

    fn cancel(&mut self, arguments: &arguments::Cancel) -> Answer {
        let is_meant = |asked: &Asked| {
            let seq = asked.purpose.reply().map(|reply| reply.seq);
            seq.is_some() && seq == arguments.request_id
        };
        let found = self.asked.iter().find(|(_, asked)| is_meant(asked));
        if let Some(id) = found.map(|(id, _)| *id) {
            self.interrupt(id, probes::Interrupted::Cancelled);
        }
        Answer::Now(Value::Null)
    }

    fn answer(&mut self, reply: &Reply, body: Value) {
        self.write(Content::Response(Response {
            request_seq: reply.seq,
            success: true,
            command: reply.command.clone(),
            message: None,
            body,
        }));
    }

    fn refuse(&mut self, reply: &Reply, refusal: &Refusal) {
        let body = ErrorBody {
            error: ErrorMessage {
                id: 1,
                // Braces are variables of the format.
                format: refusal.text.replace('{', "(").replace('}', ")"),
                show_user: refusal.shown,
            },
        };
        self.write(Content::Response(Response {
            request_seq: reply.seq,
            success: false,
            command: reply.command.clone(),
            message: Some(refusal.text.clone()),
            body: to_value(&body),
        }));
    }

    fn event(&mut self, event: &'static str, body: Value) {
        self.write(Content::Event(Event { event, body }));
    }

    fn say(&mut self, category: &'static str, output: &str) {
        let body = probing_proto::dap::body::OutputEvent {
            category,
            output: output.to_owned(),
            source: None,
            line: None,
        };
        self.event("output", to_value(&body));
    }

    fn write(&mut self, content: Content) {
        self.sent += 1;
        let message = AdapterMessage {
            seq: self.sent,
            content,
        };
        let json = to_value(&message).to_string();
        self.effects
            .push(Effect::Write(framing::encode(json.as_bytes())));
    }

    /// Asks a probe; what comes of it is taken in by [`Session::hear`].
    fn ask(&mut self, target: usize, link: Link, call: Call, purpose: Purpose) -> RequestId {
        self.ask_within(target, link, call, purpose, None)
    }

    fn ask_within(
        &mut self,
        target: usize,
        link: Link,
        call: Call,
        purpose: Purpose,
        limit: Option<Duration>,
    ) -> RequestId {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        self.asked.insert(
            id,
            Asked {
                target,
                link,
                purpose,
                deadline: limit.map(|limit| self.now + limit),
                interrupted: None,
            },
        );
        let request = Request { id, call };
        self.effects.push(Effect::Send {
            target,
            link,
            request,
        });
        id
    }

    fn stopped(&self, key: ids::StopKey) -> Option<&stops::StoppedThread> {
        let stops = &self.targets.get(key.target)?.stops;
        stops.iter().find(|it| it.stop.stop == key.stop)
    }

    fn key(target: usize, stop: StopId) -> ids::StopKey {
        ids::StopKey { target, stop }
    }
}

/// Arguments that are absent are as if they were empty.
fn parsed<T: DeserializeOwned>(arguments: Value) -> Result<T, Refusal> {
    let arguments = if arguments.is_null() {
        Value::Object(serde_json::Map::new())
    } else {
        arguments
    };
    serde_json::from_value(arguments)
        .map_err(|error| Refusal::new(format!("arguments not understood: {error}")))
}

/// As JSON. What cannot be is none: keys of maps that are no texts, of which there are none here.
fn to_value(body: &impl serde::Serialize) -> Value {
    serde_json::to_value(body).unwrap_or_default()
}
