//! Messages between a client and a probe.
//!
//! `docs/protocol.md` shows each message.
//!
//! Many requests may be in flight on one connection; what belongs to one carries its id.
//! Fields may be added; a reader ignores those it does not know. Anything else raises [`PROTOCOL`].

pub mod breakpoints;
pub mod completion;
pub(crate) mod omitted;
pub mod reads;
pub mod recorders;
pub mod threads;
pub mod torch;
pub mod trace;

use std::convert::Infallible;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::message::breakpoints::{
    Breakpoint, BreakpointEvent, BreakpointId, ObservedChange, SetBreakpoint, Source, StepCall,
    Stop, StopId,
};
use crate::message::completion::{Complete, Completion, Describe, Description};
use crate::message::omitted::{is_false, is_none_at_all, is_zero};
use crate::message::reads::{FileCall, Pieces};
use crate::message::recorders::{Heap, TracerCall, TracerState};
use crate::message::torch::{TorchCall, TorchStatus};
use crate::message::trace::{Trace, TraceId, TraceStatus};
use crate::process::{Pid, ProcessKey};

/// Version of this protocol, said in the hello.
pub const PROTOCOL: u32 = 1;

/// Longest piece of text (a value, a traceback, a piece of output) in one message.
pub const MAX_TEXT: usize = 4 << 20;

/// Chosen by the client, unique among its requests in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

/// From client to probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub id: RequestId,
    #[serde(flatten)]
    pub call: Call,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Call {
    /// Run code in the live `__main__` namespace. Answered by `output`s, then `evaluated`.
    Eval(Eval),
    /// Tell the values of local variables. Answered by `locals`.
    Locals(LocalsCall),
    /// Read memory of the process itself, without its interpreter: addresses and lengths. Answered by `read`.
    Memory { ranges: Vec<(u64, usize)> },
    /// Read a file of the process itself. Answered by `read`.
    File(FileCall),
    /// Complete a name from live objects, without running their code. Answered by `completions`.
    Complete(Complete),
    /// Tell what an object is. Answered by `described`.
    Describe(Describe),
    /// Tell how far the eval with that id is. Answered by `progress`.
    Progress { request: RequestId },
    /// Interrupt the eval with that id. Answered by `cancelling`; the eval gives its own answer.
    Cancel { request: RequestId },
    /// Arm a breakpoint or a watch. Answered by `armed`.
    Arm(SetBreakpoint),
    /// Disarm these points; all, when none is named. Answered by `points`: those that were.
    Disarm { points: Vec<BreakpointId> },
    /// Record a change that was seen from outside, in `python.variables`. Answered by `done`.
    Record(ObservedChange),
    /// Drop debug exceptions that arrive without their cause, before debug registers are set. Answered by `guarded`.
    GuardTraps,
    /// Tell what is armed. Answered by `points`.
    Points,
    /// Tell which threads are stopped. Answered by `stops`.
    Stops,
    /// Hear of stops and of what points see, from now on. Answered by `stops`, then a `news` for each, until it is
    /// cancelled or the connection ends. `driving`: threads that stop while nobody else drives them are driven by this
    /// connection.
    Follow { driving: bool },
    /// Drive a stop from this connection; `take` it from another. Answered by `done`.
    Drive { stop: StopId, take: bool },
    /// Resume a stopped thread that this connection controls. Answered by `done`; its next stop is `news`.
    Step(StepCall),
    /// Resume these stopped threads, whoever controls them; all, when none is named. Answered by `stops`: the resumed ones.
    Release { stops: Vec<StopId> },
    /// Record what torch does, or no longer. Answered by `torch`.
    Torch(TorchCall),
    /// Tell lines of a source file, as the target has it. Answered by `source`.
    Source {
        file: String,
        first: u32,
        count: u32,
    },
    /// Follow functions: rows for what they do. Answered by `traced`.
    Trace(Trace),
    /// End these traces; all that clients began, when none is named. Answered by `traces`: those that were.
    Untrace { traces: Vec<TraceId> },
    /// Tell what is traced. Answered by `traces`.
    Traces,
    /// Switch a tracer on or off, or tell how it is. Answered by `tracer`.
    Tracer(TracerCall),
    /// Tell what is in use of the heap, by samples. Answered by `heap`.
    Heap,
    /// Take the probe out of the process. Answered by `done`, then the connection ends.
    Detach,
}

/// One frame of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FrameSelector {
    /// 0 is the innermost, -1 the outermost.
    Depth(i64),
    /// The innermost frame of the function of this name, or qualified name.
    Function(String),
}

impl FromStr for FrameSelector {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text
            .parse()
            .map_or_else(|_| Self::Function(text.to_owned()), Self::Depth))
    }
}

impl From<u32> for FrameSelector {
    fn from(depth: u32) -> Self {
        Self::Depth(i64::from(depth))
    }
}

/// Code, and where to run it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eval {
    pub code: String,
    /// Run it on this thread of the program: `main`, a name, an id. Without it, on a thread of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Run it in the locals of this frame of that thread (of the main thread, if none is named). Then the code has a thread
    /// of its own again; `thread` only says whose frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<FrameSelector>,
    /// Run it on the thread that is stopped so, which this connection drives, in the locals of `frame` (of the innermost, if
    /// none is named): what it assigns there is assigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopId>,
    /// Most bytes of output to send; what is printed beyond is counted and dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Hold the value of a last expression, as this connection's `_`, until the connection ends.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keep: bool,
    /// Tell where the bytes of that value are, as a [`Storage`](crate::stops::Storage), and not its `repr`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub storage: bool,
}

impl Eval {
    /// Code for `__main__`, on a thread of its own.
    pub fn of(code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            ..Self::default()
        }
    }
}

/// From probe to client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The request it belongs to; none for what the probe says by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<RequestId>,
    #[serde(flatten)]
    pub event: Event,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The first message on every connection that is let in.
    Hello(Hello),
    /// Text that evaluated code printed.
    Output {
        stream: Stream,
        text: String,
    },
    /// An eval has ended.
    Evaluated(Evaluated),
    /// The values of local variables.
    Locals(Locals),
    /// Bytes that were asked for; they are the payload.
    Read(Pieces),
    /// Completions of a name, best first.
    Completions {
        completions: Vec<Completion>,
    },
    /// What an object is; nothing when it is not there, or only code could tell.
    Described {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<Description>,
    },
    /// What was armed, and what came of it.
    Armed(Breakpoint),
    /// Points, in the order in which they were armed.
    Points {
        points: Vec<Breakpoint>,
    },
    /// Threads that are stopped, in the order in which they stopped.
    Stops {
        stops: Vec<Stop>,
    },
    /// What is traced, and what came of it.
    Traced(TraceStatus),
    /// Traces, in the order in which they began.
    Traces {
        traces: Vec<TraceStatus>,
    },
    /// To one who follows.
    News(BreakpointEvent),
    /// What is recorded of torch.
    Torch(TorchStatus),
    Source(Source),
    Tracer(TracerState),
    Heap(Heap),
    /// Debug exceptions without their cause are dropped from now on, and counted in the 8 bytes at this address.
    Guarded {
        dropped_at: u64,
    },
    /// A request without a result of its own has been carried out.
    Done,
    /// How far an eval is.
    Progress(Progress),
    /// An eval will be interrupted at its next bytecode. One that has not begun never will.
    Cancelling(Progress),
    /// The request, or without an id the connection, could not be served.
    Failed(Failure),
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    /// Version of the probe.
    pub probe: String,
    /// Version of the interpreter, `3.12.1`.
    pub python: String,
    /// As the process itself sees it: inside a container not the pid outside.
    pub pid: Pid,
    pub start_ticks: u64,
    /// The probe's own thread, as the process itself sees it: the program may have others of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// How many of its threads are stopped at breakpoints now.
    #[serde(default, skip_serializing_if = "is_none_at_all")]
    pub stops: u32,
}

impl Hello {
    pub fn key(&self) -> ProcessKey {
        ProcessKey {
            pid: self.pid,
            start_ticks: self.start_ticks,
        }
    }
}

/// Which of the program's streams the text was meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// How far an eval is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Whether its code has begun to run.
    pub begun: bool,
    /// Begun: the thread that runs it now, by `threading.get_ident()`. Not begun: the thread that it waits for; without one
    /// it waits for the GIL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u64>,
}

/// How an eval ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evaluated {
    pub took_nanos: u64,
    /// Bytes of output beyond the limit, which were not sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub output_dropped: u64,
    /// The thread of the program that ran it; none when it had one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What became of evaluated code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It ran to its end. The value is the `repr` of a last expression that is not `None`.
    Finished {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
    /// It raised.
    Raised(Raised),
    /// It is not Python; `text` shows where.
    SyntaxError { text: String },
}

/// An exception that left the evaluated code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// Its class, `ZeroDivisionError`.
    pub exception: String,
    pub message: String,
    /// As Python prints it, from the evaluated code on.
    pub traceback: String,
    /// Outermost first, from the evaluated code on.
    pub frames: Vec<TracebackFrame>,
}

/// One line of a traceback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracebackFrame {
    pub func: String,
    pub file: String,
    pub lineno: u32,
}

/// Whose locals, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalsCall {
    /// By `threading.get_ident()`, in the order of interest; none for all.
    #[serde(default)]
    pub threads: Vec<u64>,
    /// For the whole answer: what is not known by then is left out of it.
    #[serde(default = "LocalsCall::usual_deadline")]
    pub deadline_millis: u64,
}

impl LocalsCall {
    fn usual_deadline() -> u64 {
        1000
    }
}

/// Local variables of threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locals {
    pub threads: Vec<ThreadLocals>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLocals {
    pub ident: u64,
    /// Innermost first.
    pub frames: Vec<FrameLocals>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameLocals {
    /// The qualified name from 3.11 on.
    pub func: String,
    pub file: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineno: Option<u32>,
    /// Those that are bound; absent where they cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locals: Option<Vec<LocalValue>>,
    /// How many there are beyond those.
    #[serde(default)]
    pub more: usize,
}

/// A local variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalValue {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// In the program's own words, cut to a bounded length; or why there are none, between `<` and `>`.
    pub value: String,
}

/// Why something could not be done, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub error: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// `text`, cut at a character so that it fits one message; what was cut is said in its place.
pub fn fit(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        let cut = text.floor_char_boundary(MAX_TEXT);
        let dropped = text.len() - cut;
        text.truncate(cut);
        text.push_str(&format!("… ({dropped} bytes more)"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_fits_stays_and_the_rest_is_counted() {
        assert_eq!(fit("short".into()), "short");
        let cut = fit("é".repeat(MAX_TEXT));
        assert!(
            cut.ends_with(&format!("… ({MAX_TEXT} bytes more)")),
            "{}",
            &cut[cut.len() - 40..]
        );
    }
}
