//! The format of a capture: a process at one moment, in a zip archive or a folder.
//!
//! It is a zip archive, or a folder when the process wrote it itself; `docs/capture.md` has its parts.

use serde::{Deserialize, Serialize};

use crate::message::breakpoints::{Breakpoint, Stop};
use crate::process::Pid;

/// The version of the format. A reader refuses those that it does not know.
pub const FORMAT: u32 = 1;

/// How captures are called, and known by on a command line.
pub const EXTENSION: &str = "probe";

/// The parts of one.
pub const MANIFEST: &str = "capture.json";
pub const STACKS: &str = "stacks.json";
pub const SOURCES: &str = "sources.json";
pub const TASKS: &str = "tasks.json";
/// Of a folder: copies of the rings of what the process recorded.
pub const RINGS: &str = "rings";

/// `capture.json`: whose capture it is, and what is in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// Version of the command that wrote it.
    pub probing: String,
    /// Since 1970.
    pub taken_at_nanos: u64,
    /// Why it was taken, in words.
    pub reason: String,
    pub host: String,
    pub pid: Pid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// `3.12`
    pub python: String,
    pub command: Vec<String>,
    /// Threads that were stopped at breakpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stops: Vec<Stop>,
    /// What was armed, where no table tells it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<Breakpoint>,
    /// Names of the tables in the file, as a query writes them.
    pub tables: Vec<String>,
    /// What could not be had, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Lines of a source file around the places where threads were: an element of `sources.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    /// As the frames name it.
    pub file: String,
    /// The number of the first of these lines.
    pub first: u32,
    pub lines: Vec<String>,
}
