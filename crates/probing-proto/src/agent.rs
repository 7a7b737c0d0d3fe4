//! Requests to an agent over HTTP, and its answers.
//!
//! `docs/remote.md` shows it with `curl`; the agent's `/openapi.json` describes it.

use serde::{Deserialize, Serialize};

use crate::message::omitted::is_false;
use crate::message::threads::ThreadSelector;
use crate::message::{Failure, FrameSelector};
use crate::process::Pid;
use crate::report::{DeadProcess, ListedProcess};

/// Version of these requests and answers, said by `/health`.
pub const AGENT_PROTOCOL: u32 = 1;

/// The header of an answer to `/ws` that says, as an [`AttachedByAgent`], that the probe had to be brought in first.
pub const ATTACHED_HEADER: &str = "Probing-Attached";

/// What follows the rows of a query that are sent as a stream: a [`QueryEnd`].
pub const END_TRAILER: &str = "Probing-End";

/// Rows as a stream of Arrow's IPC format.
pub const ARROW_STREAM: &str = "application/vnd.apache.arrow.stream";

/// The fewest characters of a token, wherever it comes from: a shorter one can be found by trying.
pub const MIN_TOKEN: usize = 16;

/// The scheme of an `Authorization` header that proves a token to an agent within TLS without sending it:
/// `Probing-Proof` and 64 hexadecimal digits. `docs/protocol.md` says what they are.
pub const PROOF_SCHEME: &str = "Probing-Proof";

/// The file in which an agent says where it listens, or why it does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    pub pid: Pid,
    /// With the pid it names the process for all time.
    pub start_ticks: u64,
    /// The address that it listens on, `0.0.0.0:8080`.
    pub listen: String,
    /// The fingerprint of its certificate; none when it speaks plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Whether a program's `PROBING_PORT` asked for it: then it is started again when it was killed.
    #[serde(default)]
    pub wanted: bool,
    /// Why it does not listen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A token file: a line for each token, its role in front of it; a token alone is for control.
pub fn tokens_in(text: &str) -> Vec<(Role, String)> {
    let token = |line: &str| {
        let mut words = line.split_whitespace();
        let (role, token) = match (words.next()?, words.next()) {
            ("observe", Some(token)) => (Role::Observe, token),
            ("control", Some(token)) | (token, None) => (Role::Control, token),
            _ => return None,
        };
        (!token.starts_with('#')).then(|| (role, token.to_owned()))
    };
    text.lines().filter_map(token).collect()
}

/// What whoever shows a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look: stacks, SQL, lists. Nothing runs in a target.
    Observe,
    /// Run code, too.
    Control,
}

/// What `/health` answers to everybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    pub status: String,
    /// Version of the agent.
    pub version: String,
    /// Version of these requests and answers.
    pub protocol: u32,
}

/// Every refusal and failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    #[serde(flatten)]
    pub failure: Failure,
    /// What a program may want to tell apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<RefusalKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The target does not live any more.
    Ended,
    /// The target has no probe, and none was to be brought in.
    NoProbe,
    /// The target was reached and could not do it.
    NotDone,
    /// The target does not have the thread that was asked for.
    NoThread,
    /// The text of a query is not SQL.
    Syntax,
    /// None of the targets of a query could be read.
    Blind,
}

/// What `/targets` is asked, behind a `?`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TargetsRequest {
    /// Also those that have ended and left recorded rows.
    pub dead: bool,
}

/// What `/targets` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    pub host: String,
    /// What the token that was shown lets do.
    pub role: Role,
    /// The Python processes of the agent's user, in the order of their pids.
    pub targets: Vec<NodeTarget>,
    /// Those that have ended and left recorded rows, in the order of their start; when they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead: Vec<DeadProcess>,
}

/// A process on an agent's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTarget {
    #[serde(flatten)]
    pub process: ListedProcess,
    /// Whether it is meant by requests that name no process: those that have a probe; when none has, all.
    pub member: bool,
    /// Whether it is what people mean by its rank, and no worker that inherited the number.
    pub bears_rank: bool,
    /// How many ranks its job has.
    pub world_size: Option<u32>,
    /// Where its agent listens, as whoever asked several of them called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// What `/eval` is asked. Without `rank`, `ranks` or `pid` it is for the only target that there is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalRequest {
    pub code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// `0,2-5`, `all` or `failed`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// Run it on this thread of the program: `main`, a name, an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadSelector>,
    /// Run it in the locals of this frame: 0 is the innermost, -1 the outermost; or by the function's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<FrameSelector>,
    /// Seconds after which it is interrupted; 30 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    /// Most bytes of output to tell; 1 MiB when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
}

/// What `/backtrace` is asked, behind a `?`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the query")]
pub struct StacksRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// Of every thread; else of the main thread.
    pub all: bool,
    /// Of one thread, by its name or one of its ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadSelector>,
    /// Of the asyncio tasks that are not done, instead of threads.
    pub tasks: bool,
    /// With the local variables of every frame.
    pub locals: bool,
    /// With the frames of C, Rust and the interpreter itself.
    pub native: bool,
    /// Hold a thread for a moment when its stack changed during the read.
    pub pause: bool,
    /// With the threads of the probe.
    #[serde(skip_serializing_if = "is_false")]
    pub probe_threads: bool,
}

/// What `/query` is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryRequest {
    pub sql: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// These processes; for who has found out already whom it means.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<Pid>,
}

/// What `/query` answers as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryReport {
    pub columns: Vec<String>,
    /// Each with a value for each column: a number, a text, true, false or null.
    pub rows: Vec<Vec<serde_json::Value>>,
    #[serde(flatten)]
    pub end: QueryEnd,
}

/// What is known when all rows have come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryEnd {
    pub took_seconds: f64,
    /// Targets whose rows are missing, and why.
    pub missing: Vec<MissingTarget>,
    /// Why the rows before are not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
}

/// A target that is not in an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingTarget {
    pub pid: Option<Pid>,
    pub rank: Option<u32>,
    #[serde(flatten)]
    pub failure: Failure,
}

/// What `probing query --json` writes to stderr where its answer lacks something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncompleteAnswer {
    pub missing: Vec<MissingTarget>,
}

/// What `/samples` is asked, behind a `?`: many readings of the stacks of one process, counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the query")]
pub struct SamplesRequest {
    pub pid: Pid,
    pub seconds: f64,
    /// Readings per second.
    pub rate: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadSelector>,
    /// Also threads that sleep or wait.
    #[serde(default)]
    pub idle: bool,
    /// Each thread apart.
    #[serde(default)]
    pub threads: bool,
    /// All lines of a function together.
    #[serde(default)]
    pub functions: bool,
    #[serde(default)]
    pub pause: bool,
}

/// What `/samples` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplesReport {
    pub note: Option<String>,
    pub taken: u64,
    pub missed: u64,
    pub counted: u64,
    pub torn: u64,
    pub failed: u64,
    pub paused_seconds: f64,
    pub cpu_seconds: f64,
    pub wanted_was_seen: bool,
    pub target_ended: bool,
    /// Names of the threads of the last reading.
    pub names: Vec<String>,
    pub places: Vec<SampledFrame>,
    /// Indices of places, outermost first, and how often that was seen.
    pub stacks: Vec<(Vec<usize>, u64)>,
    /// Stacks that were cut because there are too many different ones.
    pub cut: u64,
}

/// Where a sampled stack was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledFrame {
    pub func: String,
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// What `/ws` is asked, behind a `?`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayRequest {
    pub pid: Pid,
    /// Bring the probe in if it is not there.
    #[serde(default)]
    pub attach: bool,
}

/// That an agent brought the probe in, and what it cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttachedByAgent {
    pub strategy: String,
    /// Major and minor version.
    pub python: (u8, u8),
    pub paused_seconds: f64,
    pub took_seconds: f64,
}

/// One line of an agent's log of what was done through it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// UTC.
    pub time: String,
    /// The address that it came from.
    pub from: String,
    /// Which token let it in: its role, and the start of its SHA-256.
    pub token: String,
    /// `eval`, `attach`, `backtrace`, `source`: the operation.
    pub action: String,
    /// The process; none when the request was for several or named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// The code that runs, the query, or the rest of the request; the start of it when it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The length of all of it, in bytes, when only the start is above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_bytes: Option<u64>,
    /// The SHA-256 of all of it, in hexadecimal digits, when only the start is above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_sha256: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_has_a_role_in_front_of_each_token() {
        let tokens = tokens_in("# comment\ncontrol abc\n\nobserve def\nghi\nadmin jkl\n");
        let expected = [
            (Role::Control, "abc"),
            (Role::Observe, "def"),
            (Role::Control, "ghi"),
        ];
        assert_eq!(
            tokens,
            expected.map(|(role, token)| (role, token.to_owned()))
        );
    }
}
