//! What `--json` prints: promises to scripts.

mod collectives;
mod memory;
mod recordings;
mod sets;
mod stops;
mod tasks;
mod torch;

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message::threads::ThreadNames;
use crate::message::{Evaluated, Outcome, Raised, TracebackFrame};
use crate::process::Pid;
use crate::tables::schema::Storage;

pub use self::collectives::{
    CollectivesReport, GroupReport, JobReport, Lateness, Operation, Side, Verdict,
};
pub use self::memory::{Growth, LeakReport, SiteGrowth, TracersReport, TypeGrowth};
pub use self::recordings::{
    CaptureReport, CleanReport, DeadProcess, RecordedTable, UnreadableTable,
};
pub use self::sets::{
    BacktracesReport, ReportedBranch, ReportedCall, ReportedEnd, ReportedTree, SetReport,
    TargetReport,
};
pub use self::stops::{BreakpointsReport, StopsReport, TracesReport};
pub use self::tasks::{ReportedTask, ReportedWait, TaskProgress, TasksReport, WaitKind};
pub use self::torch::{NanFinding, NanReport, TensorReading, TorchReport};

/// A process that can be looked at: one element of `probing list --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedProcess {
    pub pid: Pid,
    pub rank: Option<u32>,
    /// `null` of a program on its own, or of a rank.
    #[serde(default)]
    pub role: Option<ProcessRole>,
    /// As exact as can be told from outside; with a probe, `3.12.1`.
    pub python: Option<String>,
    pub probe: ProbeState,
    /// Held by a signal (Ctrl-Z, SIGSTOP) or a debugger.
    pub stopped: bool,
    /// How many of its threads are stopped at breakpoints.
    #[serde(default)]
    pub stops: u32,
    pub uid: u32,
    pub age_seconds: u64,
    /// Where its recorded rows are; `null` when it has none.
    pub recording: Option<Storage>,
    pub command: Vec<String>,
}

/// What a process is to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessRole {
    /// It starts the ranks of a job.
    Launcher,
    /// It loads data for its parent: `pt_data_worker` of torch.
    Worker,
    /// A Python process started it: a pool, a server that forks, a subprocess.
    Child,
}

/// What is known of a process's probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeState {
    /// There is none.
    None,
    /// It answered.
    Running,
    /// There is one, but it did not answer in time.
    Silent,
    /// Only its socket is left: the process has become another program.
    Left,
    /// It belongs to another user, who alone (with root) may ask.
    Forbidden,
}

/// What `probing attach --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttachedReport {
    pub pid: Pid,
    /// Version of the interpreter, `3.12.1`.
    pub python: String,
    /// Version of the probe.
    pub probe: String,
    /// How the probe was brought in; `null` when it was there already, and then so is the rest.
    pub strategy: Option<String>,
    /// The longest that a thread of the target was kept from its work.
    pub paused_seconds: Option<f64>,
    pub took_seconds: Option<f64>,
}

/// What `probing backtrace --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BacktraceReport {
    pub pid: Pid,
    /// `3.12`
    pub python: String,
    pub threads: Vec<ReportedThread>,
    /// Since 1970.
    pub taken_at_nanos: u64,
    pub took_seconds: f64,
    /// The longest that a thread was held; 0 without `--pause`.
    pub paused_seconds: f64,
    /// Threads without native frames, though these were asked for: none could be copied in the time that one is held.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub threads_without_native: usize,
    pub read: ReadMethod,
    /// What a user should know about how it was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// How stacks were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadMethod {
    Outside,
    /// Through the probe, because the kernel lets nobody else look: there are no native frames.
    Probe,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedThread {
    /// The kernel's id.
    pub thread_id: Option<u32>,
    /// Python's id, `threading.get_ident()`; 0 for a thread that Python does not know.
    pub ident: u64,
    pub thread_name: Option<String>,
    /// Whether the program's end does not wait for it; absent when not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon: Option<bool>,
    pub main: bool,
    /// `running`, `asleep`, `stopped`, or the system call that it waits in.
    pub state: String,
    pub gil: GilState,
    /// Who holds the GIL that this thread waits for: `loader (4243)`. Absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gil_holder: Option<String>,
    /// The number of the interpreter whose code it runs, if that is not the main one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<i64>,
    /// Of the main thread: the `threading.Thread` whose function it runs, in a greenlet (gevent) or because that thread has
    /// forked this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_thread: Option<String>,
    /// False when frames are missing; those that are here are in their order.
    pub complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingFrames>,
    /// Innermost first.
    pub frames: Vec<ReportedFrame>,
}

impl ReportedThread {
    /// What it is selected by.
    pub fn names(&self) -> ThreadNames<'_> {
        ThreadNames {
            is_main: self.main,
            name: self.thread_name.as_deref(),
            ident: self.ident,
            thread_id: self.thread_id,
        }
    }

    /// Name and id: `loader-3 (4243)`.
    pub fn title(&self) -> String {
        let id = self
            .thread_id
            .map_or_else(|| "?".to_owned(), |id| id.to_string());
        match &self.thread_name {
            Some(name) => format!("{name} ({id})"),
            None => id,
        }
    }
}

/// The state of a thread in words: `holds the GIL, running`, `waits in futex`.
pub fn state_words(state: &str, gil: GilState) -> String {
    let place = match state {
        state @ ("running" | "asleep" | "stopped") => state.to_owned(),
        call => format!("waits in {call}"),
    };
    match gil {
        GilState::Holds => format!("holds the GIL, {place}"),
        GilState::Waits => "waits for the GIL".to_owned(),
        GilState::Free => place,
    }
}

/// Which frames are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingFrames {
    /// The thread moved too fast: only the frames that stayed are here.
    Inner,
    /// There are too many, or they could not be read.
    Outer,
    /// Native calls that could not be followed.
    Native,
}

/// What a thread has to do with the GIL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GilState {
    Holds,
    Waits,
    /// It sleeps or computes without it.
    Free,
}

/// One frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReportedFrame {
    #[serde(serialize_with = "text", deserialize_with = "read_text")]
    pub func: Arc<str>,
    #[serde(serialize_with = "text", deserialize_with = "read_text")]
    pub file: Arc<str>,
    /// The line being executed.
    pub lineno: Option<u32>,
    /// 0 is the innermost frame of the program.
    pub depth: usize,
    /// `Python` or `Native`. Of a native frame, `file` is its library or program.
    pub frame_type: FrameType,
    /// Of a native frame: where in its file the code is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// Of a native frame with debug information: the file that `lineno` is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_file: Option<String>,
    /// The text of the line, where the file can be read.
    #[serde(
        serialize_with = "text_or_null",
        deserialize_with = "read_text_or_null"
    )]
    pub source: Option<Arc<str>>,
    /// Those that are bound; `null` when not asked for, or when the frame was left before they were read.
    pub locals: Option<Vec<ReportedLocal>>,
    /// How many locals there are beyond those.
    pub more_locals: usize,
}

/// Whose call a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FrameType {
    Python,
    Native,
}

impl FrameType {
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::Native => "Native",
        }
    }
}

/// A local variable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReportedLocal {
    #[serde(serialize_with = "text", deserialize_with = "read_text")]
    pub name: Arc<str>,
    /// As Python would write it, cut to a bounded length.
    #[serde(serialize_with = "text", deserialize_with = "read_text")]
    pub value: Arc<str>,
    /// Name of its type; `null` when the value could not be read.
    #[serde(
        rename = "type",
        serialize_with = "text_or_null",
        deserialize_with = "read_text_or_null"
    )]
    pub kind: Option<Arc<str>>,
}

/// A write that `probing watch --addr` saw; `--json` prints one a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WriteReport {
    pub pid: Pid,
    pub address: u64,
    pub length: usize,
    /// When it was, since 1970.
    pub at_nanos: u64,
    /// The bytes as numbers: as they were read before, and just after; `null` when they could not be read.
    pub old: Option<String>,
    pub new: Option<String>,
    /// The kernel wrote them, for a system call of the thread.
    pub by_kernel: bool,
    /// How much later Python's frames were read; the native ones are those of the write.
    pub python_later_nanos: u64,
    pub thread: ReportedThread,
}

/// What `probing eval --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalReport {
    pub pid: Pid,
    /// The `repr` of the last expression's value.
    pub value: Option<String>,
    /// What the code printed to stdout and stderr, in order.
    pub output: String,
    /// Bytes that the code printed beyond `--max-output`; they are not in `output`.
    pub output_dropped: u64,
    pub exception: Option<ReportedException>,
    /// The deadline passed before the code ended.
    pub timed_out: bool,
    /// The thread of the program that ran it; `null` when it had one of its own.
    pub thread: Option<String>,
    /// What keeps code that did not end when it was interrupted, or did not begin; else `null`.
    pub stuck: Option<StuckReport>,
    pub took_seconds: f64,
}

/// Code that did not do as it was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckReport {
    /// False: it never ran and never will.
    pub begun: bool,
    /// In words.
    pub reason: String,
    /// The thread that it is on or waits for, where it can be read.
    pub thread: Option<ReportedThread>,
}

/// The exception that ended an eval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedException {
    #[serde(rename = "type")]
    pub kind: String,
    pub message: String,
    pub traceback: String,
    pub frames: Vec<TracebackFrame>,
}

impl EvalReport {
    pub fn new(pid: Pid, output: String, evaluated: Evaluated, timed_out: bool) -> Self {
        let (value, exception) = match evaluated.outcome {
            Outcome::Finished { value } => (value, None),
            Outcome::Raised(Raised {
                exception,
                message,
                traceback,
                frames,
            }) => (
                None,
                Some(ReportedException {
                    kind: exception,
                    message,
                    traceback,
                    frames,
                }),
            ),
            Outcome::SyntaxError { text } => (
                None,
                Some(ReportedException {
                    kind: "SyntaxError".to_owned(),
                    message: text
                        .trim_end()
                        .lines()
                        .next_back()
                        .unwrap_or_default()
                        .to_owned(),
                    traceback: text,
                    frames: Vec::new(),
                }),
            ),
        };
        Self {
            pid,
            value,
            output,
            output_dropped: evaluated.output_dropped,
            exception,
            timed_out,
            thread: evaluated.thread,
            stuck: None,
            took_seconds: evaluated.took_nanos as f64 / 1e9,
        }
    }
}
/// Many frames share their texts.
fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn text_or_null<S: Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(serializer)
}

fn read_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    String::deserialize(deserializer).map(Arc::from)
}

fn read_text_or_null<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<str>>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(Arc::from))
}
