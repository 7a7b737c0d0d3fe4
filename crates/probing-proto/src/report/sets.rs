//! What `--json` prints for a set of targets.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::process::Pid;
use crate::report::{BacktraceReport, FrameType, GilState, text, text_or_null};

/// What commands print for several targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetReport<R> {
    pub targets: Vec<TargetReport<R>>,
    /// Ranks that were asked for and that no process has, as `--ranks` takes them.
    pub missing_ranks: Option<String>,
}

/// What `probing backtrace --json` prints for several targets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BacktracesReport {
    #[serde(flatten)]
    pub set: SetReport<BacktraceReport>,
    /// The stacks merged: one tree for the main threads; with `--all`, one for the threads of each name.
    pub trees: Vec<ReportedTree>,
}

/// One target of a set and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetReport<R> {
    /// As `-t` takes it.
    pub target: String,
    pub pid: Option<Pid>,
    pub rank: Option<u32>,
    /// Why there is no report.
    pub error: Option<String>,
    pub report: Option<R>,
}

/// Stacks of several targets as one tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportedTree {
    /// The names of the threads that it is about.
    pub threads: Vec<String>,
    pub trunk: ReportedBranch,
}

/// The common part of some stacks, and their branches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportedBranch {
    /// How many targets are here.
    pub count: usize,
    /// Their ranks as `--ranks` takes them: `0-6,8`.
    pub ranks: Option<String>,
    /// The pids of those without a rank, or whose rank another target has, too.
    pub pids: Vec<Pid>,
    /// Few are here, and nearly all others wait together in another function.
    pub odd: bool,
    /// Outermost first.
    pub frames: Vec<ReportedCall>,
    /// Where the stacks end; `null` when they part instead.
    pub end: Option<ReportedEnd>,
    /// Their branches, the most common first.
    pub branches: Vec<ReportedBranch>,
}

/// A frame that several stacks have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportedCall {
    #[serde(serialize_with = "text")]
    pub func: Arc<str>,
    #[serde(serialize_with = "text")]
    pub file: Arc<str>,
    pub lineno: Option<u32>,
    pub frame_type: FrameType,
    #[serde(serialize_with = "text_or_null")]
    pub source: Option<Arc<str>>,
}

/// What threads do in their innermost frame; as in [`super::ReportedThread`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportedEnd {
    pub state: String,
    pub gil: GilState,
    pub complete: bool,
}
