//! Lines of JSON between a program and `probing connect`.
//!
//! `docs/protocol.md` shows each.
//!
//! The command knows sockets, folders and attaching; a program in any language only has to know these lines.

use serde::{Deserialize, Serialize};

use crate::message::breakpoints::{Breakpoint, BreakpointId, Stop, StopId, StopPolicy};
use crate::message::omitted::is_false;
use crate::message::threads::ThreadSelector;
use crate::message::{Evaluated, Failure, FrameSelector, RequestId, Stream};
use crate::process::Pid;

/// Version of these lines, said in the hello.
pub const LINES: u32 = 1;

/// Longest line from a program.
pub const MAX_LINE: usize = crate::wire::MAX_REQUEST;

/// From the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LineRequest {
    /// Chosen by the program, unique among its requests in flight.
    pub id: RequestId,
    #[serde(flatten)]
    pub call: LineCall,
}

/// What is asked of the command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum LineCall {
    /// Run code. Answered by `output`s, then `evaluated` or `stuck`.
    Eval(EvalArgs),
    /// Interrupt the eval with that id, which gives its own answer. Answered by `done`.
    Cancel { request: RequestId },
    /// Read the stacks from outside. Answered by `backtrace`.
    Backtrace(BacktraceArgs),
    /// Ask by SQL. Answered by `table`.
    Query { sql: String },
    /// Arm a breakpoint or a watch. Answered by `points`: that one.
    Arm(BreakpointArgs),
    /// Disarm these points; all, when none is named. Answered by `points`: those that were.
    Disarm { points: Vec<BreakpointId> },
    /// Tell what is armed. Answered by `points`.
    Points,
    /// Tell which threads are stopped. Answered by `stops`.
    Stops,
    /// Resume these stopped threads; all, when none is named. Answered by `stops`: the resumed ones.
    Release { stops: Vec<StopId> },
    /// Take the probe out of the target. Answered by `done`.
    Detach,
}

/// A breakpoint or a watch, in the words of `probing break` and `probing watch`. One of the first four says where.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakpointArgs {
    /// `train.py:120`, or a function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// A class of exceptions, where it is raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raise: Option<String>,
    /// An exception that nobody handles.
    #[serde(skip_serializing_if = "is_false")]
    pub uncaught: bool,
    /// A variable: `train_step:lr`, `model.fc1.weight`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// The first time that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    pub once: bool,
    /// `stop`, `log:TEXT`, `snapshot`, `count`. Without it, `stop` for a place and `count` for a watch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Of tensors that are watched: their numbers, too.
    #[serde(skip_serializing_if = "is_false")]
    pub stats: bool,
    /// How long it stays armed; 0 for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<f64>,
    /// How long an expression of it may take each time; 0 for as long as it likes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expression_timeout_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<StopPolicy>,
}

/// Code, where to run it, and what it may take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalArgs {
    pub code: String,
    /// Run it on this thread of the program: `main`, a name, an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadSelector>,
    /// Run it in the locals of this frame of that thread, or of the main thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<FrameSelector>,
    /// Most bytes of output to tell; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Seconds after which it is interrupted; without it, never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
}

/// Which stacks, and how much of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a word of the line, as of the command"
)]
pub struct BacktraceArgs {
    /// Of every thread; else of the main thread.
    pub all: bool,
    /// Of one thread, by its name or one of its ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadSelector>,
    /// Of the asyncio tasks that are not done, instead of threads.
    pub tasks: bool,
    /// With the local variables of every frame.
    pub locals: bool,
    /// With the frames of C, Rust and the interpreter itself, in their true order.
    pub native: bool,
}

/// To the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LineMessage {
    /// The request it belongs to; none for what is said unasked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<RequestId>,
    #[serde(flatten)]
    pub event: LineEvent,
}

/// What the command tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LineEvent {
    /// The first line, when there is such a target.
    Hello(TargetHello),
    /// Text that evaluated code printed.
    Output { stream: Stream, text: String },
    /// An eval has ended.
    Evaluated {
        /// Because its time was up.
        timed_out: bool,
        #[serde(flatten)]
        evaluated: Evaluated,
    },
    /// Time was up, and an eval did not end when it was interrupted, or never began.
    Stuck {
        begun: bool,
        reason: String,
        /// Where the thread is that keeps it, for people.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        stack: String,
    },
    /// Stacks: as text for people, and as what `probing backtrace --json` prints.
    Backtrace {
        text: String,
        report: serde_json::Value,
    },
    /// The rows that a query gave.
    Table {
        columns: Vec<String>,
        /// Each with a value for each column: a number, a text, true, false or null.
        rows: Vec<Vec<serde_json::Value>>,
        /// What should be there besides and could not be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Breakpoints and watches, in the order in which they were armed.
    Points { points: Vec<Breakpoint> },
    /// Threads that are stopped, or were.
    Stops { stops: Vec<Stop> },
    /// A request without a result of its own has been carried out.
    Done,
    /// The request, or without an id the connection, could not be served.
    Failed {
        kind: FailureKind,
        #[serde(flatten)]
        failure: Failure,
    },
    /// The last line, when the target has ended.
    Gone { reason: String },
}

/// Which process it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetHello {
    /// Version of these lines.
    pub lines: u32,
    pub pid: Pid,
    /// As exact as can be told: with a probe, `3.12.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Its command line, where it can be seen from here.
    pub command: Vec<String>,
    /// Whether the probe is in it. Else the first request that needs it brings it in.
    pub probed: bool,
}

/// What kind of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The target, or its probe, cannot be reached.
    Unreachable,
    /// This version of the command cannot do it.
    Unsupported,
    /// Anything else.
    Failed,
}
