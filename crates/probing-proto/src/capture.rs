//! What a capture file says: a process as it was at one moment. The file is a zip archive; `docs/capture.md` has its parts.

use serde::{Deserialize, Serialize};

use crate::process::Pid;
use crate::stops::Stop;

/// The version of the format. A reader refuses those that it does not know.
pub const FORMAT: u32 = 1;

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
