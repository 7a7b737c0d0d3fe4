//! Reports of `--json` on recorded rows and captures.

use serde::{Deserialize, Serialize};

use crate::capture::Manifest;
use crate::process::Pid;

/// One element of `probing list --dead --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadProcess {
    /// As it saw itself.
    pub pid: Pid,
    pub rank: Option<u32>,
    /// `3.12.1`
    pub python: Option<String>,
    /// Since its last row.
    pub age_seconds: u64,
    /// Memory that its rows take.
    pub bytes: u64,
    pub tables: Vec<RecordedTable>,
    /// What else it has recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableTable>,
    pub command: Vec<String>,
}

/// A table whose rows this version cannot read, some of them or all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableTable {
    /// `user.train`
    pub name: String,
    pub error: String,
    /// What to do about it.
    pub hint: String,
}

/// A table that it has recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedTable {
    /// `user.train`
    pub name: String,
    /// Rows that are still there.
    pub rows: usize,
}

/// One element of what `probing capture --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaptureReport {
    pub path: String,
    pub bytes: u64,
    /// How many have their stacks in it.
    pub threads: usize,
    pub capture: Manifest,
}

/// What `probing clean --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CleanReport {
    /// Whether it was only said what would go.
    pub dry_run: bool,
    pub bytes: u64,
    pub removed: Vec<DeadProcess>,
}
