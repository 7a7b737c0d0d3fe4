//! Reports of `--json` on breakpoints, watchpoints, stopped threads and traces.

use serde::{Deserialize, Serialize};

use crate::message::breakpoints::{Breakpoint, Stop};
use crate::message::trace::TraceStatus;
use crate::process::Pid;

/// What `probing break`, `watch`, `breakpoints` and `delete` print: breakpoints that were set, are set, or were deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakpointsReport {
    pub pid: Option<Pid>,
    pub points: Vec<Breakpoint>,
}

/// What `probing stops` and `resume` print: the threads that are stopped, or resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopsReport {
    pub pid: Option<Pid>,
    pub stops: Vec<Stop>,
}

/// What `probing trace` and `untrace` print: what was begun, is traced, or is no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracesReport {
    pub pid: Option<Pid>,
    pub traces: Vec<TraceStatus>,
}
