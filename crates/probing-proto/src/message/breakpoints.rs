//! Messages about breakpoints, watchpoints and the sessions of stopped threads.
//!
//! A *point* is armed in one process: a place, perhaps a condition, and what is done there. A thread that a point has
//! stopped is a *stop* until it goes on: it waits in its own thread, without the GIL, and does what its driver asks.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::message::omitted::{is_false, is_first, is_zero};

/// A point of one process, counted from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BreakpointId(pub u32);

/// A stop of one process, counted from 1 on. It stays the same while its thread is stepped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StopId(pub u32);

/// What is to be armed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetBreakpoint {
    pub place: BreakpointLocation,
    /// An expression in the frame's names: without it, or where it is true, something is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// The first time that counts: 3 lets two go by.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub hits: u64,
    /// Disarm it when it has done something once.
    #[serde(default, skip_serializing_if = "is_false")]
    pub once: bool,
    #[serde(default)]
    pub action: Action,
    /// Tensors are told with statistics of their numbers, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stats: bool,
    /// Disarm it when the connection that armed it ends, however it does.
    #[serde(default, skip_serializing_if = "is_false")]
    pub own: bool,
    /// How long it stays armed; 0 for ever. Without it, as is usual for the action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_millis: Option<u64>,
    /// How long one of its expressions may run each time it is evaluated, before it is interrupted and the point disarmed; 0 for
    /// ever. Without it, one second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression_millis: Option<u64>,
    #[serde(default)]
    pub hold: StopPolicy,
}

/// Where a point is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum BreakpointLocation {
    /// A line of a file, named as far as it takes to know it: `train.py`, `pkg/train.py`, `<string>`.
    Line { file: String, line: u32 },
    /// The first line of a function: `train_step`, `Trainer.fit`, `pkg.module.function`.
    Function { function: String },
    /// An exception is raised: of this class or one derived from it, by name; without it, any.
    Raise {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exception: Option<String>,
    },
    /// An exception that nobody handles ends a thread, a task or the program.
    Uncaught,
    /// A local variable of a function is assigned to.
    Local { function: String, name: String },
    /// What an expression of names, attributes and items leads to changes: `config.lr`, `model.fc1.weight`,
    /// `os.environ['X']`.
    Value { path: String },
    /// A variable of the environment changes, as `os.environ` has it.
    Environment { name: String },
}

impl BreakpointLocation {
    /// Whether it is something that changes, and not a place in code.
    pub fn is_watch(&self) -> bool {
        match self {
            Self::Local { .. } | Self::Value { .. } | Self::Environment { .. } => true,
            Self::Line { .. } | Self::Function { .. } | Self::Raise { .. } | Self::Uncaught => {
                false
            }
        }
    }
}

/// What is done there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// The thread becomes a stop.
    #[default]
    Stop,
    /// A row of `python.captures` with this text, in which `{expression}` is replaced.
    Log { text: String },
    /// A row of `python.captures` with the stack and its locals.
    Snapshot,
    /// It is counted, and nothing else. What a watch sees is a row of `python.variables` in any case.
    Count,
}

/// How long a stop lasts at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StopPolicy {
    /// The connect timeout: until a client controls the stop.
    pub connect_millis: u64,
    /// Without a request of its driver.
    pub idle_millis: u64,
    /// In all.
    pub total_millis: u64,
    /// What becomes of it when its controlling client disconnected.
    pub gone: DisconnectPolicy,
    /// The other threads of the program wait, too.
    pub all_threads: bool,
}

impl Default for StopPolicy {
    fn default() -> Self {
        const MINUTE: u64 = 60_000;
        Self {
            connect_millis: 10 * MINUTE,
            idle_millis: 30 * MINUTE,
            total_millis: 240 * MINUTE,
            gone: DisconnectPolicy::Keep,
            all_threads: false,
        }
    }
}

/// What becomes of a stop when its controlling client disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisconnectPolicy {
    /// It waits for another, until a deadline.
    #[default]
    Keep,
    /// The thread resumes.
    Resume,
}

/// An armed point, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breakpoint {
    pub point: BreakpointId,
    #[serde(flatten)]
    pub request: SetBreakpoint,
    /// The code that it was found in; more may come as modules are loaded.
    pub bound: Vec<SourceLocation>,
    /// What it costs, in words.
    pub cost: String,
    /// How the interpreter tells us: `sys.monitoring`, `trace function`, …
    pub by: String,
    /// How often its place was passed (with a condition: where that was true). `hits` is what it was armed with.
    #[serde(rename = "passed")]
    pub hits: u64,
    /// How often something was done.
    pub fired: u64,
    /// Log lines and snapshots that were left out, because there were too many in a second.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_millis: Option<u64>,
    /// It has disarmed itself, as the note says.
    #[serde(default, skip_serializing_if = "is_false")]
    pub over: bool,
    /// Why it is not armed any more, or cannot do all that it should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The note of a breakpoint in a process that has more than one interpreter, before what else there is to say.
pub const OTHER_INTERPRETERS: &str = "the process has other interpreters, whose code has no breakpoints: \
     they are set in the main interpreter only";

/// How the note of a breakpoint ends whose name something has that is no code of Python's, after `NAME is WHAT`.
pub const NO_PYTHON_CODE: &str = ": set in case a Python function gets this name later";

/// A place in code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceLocation {
    pub func: String,
    pub file: String,
    pub lineno: u32,
}

/// A thread that stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    pub stop: StopId,
    /// By `threading.get_ident()`.
    pub thread: u64,
    /// The kernel's number of it.
    pub thread_id: u32,
    pub thread_name: String,
    pub why: StopReason,
    /// Innermost first; at most a few hundred.
    pub frames: Vec<SourceLocation>,
    pub since_millis: u64,
    /// When it ends if nobody asks anything more.
    pub ends_in_millis: u64,
    /// Its controlling client: none, the one that asks, or another.
    pub driver: Controller,
    /// Clients that follow it.
    pub followers: u32,
}

/// Who drives a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    Nobody,
    You,
    Another,
}

/// Why a thread stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum StopReason {
    Breakpoint {
        point: BreakpointId,
    },
    /// A step has come to its end.
    Step,
    /// It is about to leave a function, as a step asked.
    Returned {
        /// What the function returns, in bounded words.
        value: String,
    },
    /// `probing.breakpoint()`.
    Asked,
    /// A watch saw a change.
    Changed {
        point: BreakpointId,
        name: String,
        old: String,
        new: String,
    },
    Raised {
        point: BreakpointId,
        exception: String,
        message: String,
        uncaught: bool,
    },
}

impl StopReason {
    /// The point that stopped it.
    pub fn point(&self) -> Option<BreakpointId> {
        match self {
            Self::Breakpoint { point }
            | Self::Changed { point, .. }
            | Self::Raised { point, .. } => Some(*point),
            Self::Step | Self::Returned { .. } | Self::Asked => None,
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Breakpoint { point } => write!(f, "breakpoint {}", point.0),
            Self::Step => f.write_str("step"),
            Self::Returned { value } => write!(f, "returns {value}"),
            Self::Asked => f.write_str("probing.breakpoint()"),
            Self::Changed {
                point,
                name,
                old,
                new,
            } => write!(f, "watch {}: {name}: {old} → {new}", point.0),
            Self::Raised {
                exception,
                message,
                uncaught,
                ..
            } => {
                let how = if *uncaught { "uncaught" } else { "raised" };
                write!(f, "{exception} {how}")?;
                if message.is_empty() {
                    return Ok(());
                }
                write!(f, ": {message}")
            }
        }
    }
}

/// How a stopped thread resumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCall {
    pub stop: StopId,
    #[serde(flatten)]
    pub step: Step,
    /// Frames of the standard library and of installed packages are passed by.
    #[serde(default, skip_serializing_if = "is_false")]
    pub my_code: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// To the next line of this function, or of its caller when it ends.
    Over,
    /// To the next line, wherever it is.
    Into,
    /// To the caller, when this frame (0 is the innermost) has ended.
    Out { frame: u32 },
    /// To where this frame (0 is the innermost) returns, with its value; if it ends by an exception, to its caller.
    Return { frame: u32 },
    /// To a line of this function that is not before this one, or to its end.
    Until { line: u32 },
    /// On this line next, without running what lies between. The thread stays stopped.
    Jump { line: u32 },
    /// On, until something else stops it. The stop ends.
    Continue,
}

/// What those who follow a process hear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "snake_case")]
pub enum BreakpointEvent {
    /// A thread stopped, or stopped again behind a step.
    Stopped { stop: Stop },
    /// The thread resumed.
    WentOn { stop: StopId, because: ResumeReason },
    /// Another drives it now, or nobody.
    Driven { stop: StopId, driver: Controller },
    /// A point has logged; what could not be sent is in `python.captures` all the same.
    Logged {
        point: BreakpointId,
        text: String,
        at: SourceLocation,
        thread_name: String,
    },
    /// A watch has seen a change.
    Changed {
        point: BreakpointId,
        name: String,
        old: String,
        new: String,
        at: SourceLocation,
        thread_name: String,
    },
    /// It is armed no more.
    Disarmed { point: BreakpointId, reason: String },
}

/// Why a stopped thread resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeReason {
    Asked,
    Deadline,
    DriverGone,
    Detached,
    /// It has ended in the middle of a step.
    ThreadEnded,
    /// A Ctrl-C has come to the program.
    Interrupted,
}

/// Lines of a source file, as the target has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The number of the first of these lines.
    pub first: u32,
    pub lines: Vec<String>,
    /// How many the file has.
    pub of: u32,
}

/// Where the bytes of a value are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Storage {
    pub address: u64,
    /// How many there are.
    pub bytes: u64,
    /// Of one of its elements.
    pub item: u64,
    /// Its type.
    pub kind: String,
}

/// A change that a client has seen from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedChange {
    /// What is watched.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<SourceLocation>,
    /// The kernel's number of the thread that made it.
    pub thread_id: u32,
    pub thread_name: String,
}

fn first() -> u64 {
    1
}
