//! Messages about traces of functions.
//!
//! A *trace* follows functions of one process: a function with what it calls, or all of a package. What it sees are rows of
//! `python.trace_event`, or only sums in `python.trace_stats`.

use serde::{Deserialize, Serialize};

use crate::message::breakpoints::{BreakpointId, SourceLocation};
use crate::message::omitted::{is_false, is_none_at_all, is_zero};

/// A trace of one process, counted from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TraceId(pub u32);

/// How the note of a trace ends whose functions belong to one that began before.
pub const FOLLOWED_ELSEWHERE: &str = "followed by another trace";

/// Millionths: a share of 1 % is 10,000.
pub const MILLION: u32 = 1_000_000;

/// What is to be traced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    #[serde(flatten)]
    pub scope: Scope,
    /// How far to follow what it calls: 0 is the function alone, 1 what it calls, too, and so on.
    #[serde(default, skip_serializing_if = "is_none_at_all")]
    pub depth: u32,
    /// Variables of the function: each change is a row of `python.variables`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watch: Vec<String>,
    /// Only sums, in `python.trace_stats`; no row for each call.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stats: bool,
    /// Each line that the function comes to is a row, too; not those of what it calls.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lines: bool,
    /// How long; 0 for ever. Without it, ten minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_millis: Option<u64>,
    /// Number of training steps; where none are counted, of calls of the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Most of the process's CPU time that it may cost, in millionths; none: as much as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ppm: Option<u32>,
}

/// Which functions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Scope {
    /// `train_step`, `Trainer.fit`, `pkg.module.function`; perhaps only those of a file, named as far as it takes.
    Function {
        function: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
    },
    /// All of a module, and of those inside it when it is a package.
    Module { module: String },
}

/// A trace, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStatus {
    pub trace: TraceId,
    #[serde(flatten)]
    pub request: Trace,
    /// Functions that it follows: the first ones; more may come as they are called or loaded.
    pub bound: Vec<SourceLocation>,
    /// How many it follows in all.
    pub functions: u32,
    /// How the interpreter tells us: `sys.monitoring`, `bytecode instrumentation`, `profile function`.
    pub by: String,
    /// What it is expected to cost, in words.
    pub cost: String,
    /// What was seen: calls, returns, and so on.
    pub events: u64,
    /// What one of them costs, as measured in this process.
    pub event_nanos: u64,
    /// What all of them have cost, in millionths of the CPU time that the process has used meanwhile.
    pub cost_ppm: u64,
    /// Functions of which nothing is told at the moment, because the trace would cost more than it may.
    #[serde(default, skip_serializing_if = "is_none_at_all")]
    pub muted: u32,
    /// How often that was so.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mutings: u64,
    /// Watches of its variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<BreakpointId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_millis: Option<u64>,
    /// Why it has ended, or cannot do all that it should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub ended: bool,
}
