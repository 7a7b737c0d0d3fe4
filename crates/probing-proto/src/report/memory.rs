//! What `--json` prints of tracers and of memory that grows.

use serde::{Deserialize, Serialize};

use crate::message::TracebackFrame;
use crate::message::recorders::TracerState;
use crate::process::Pid;

/// What `probing memory` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracersReport {
    pub pid: Option<Pid>,
    pub tracers: Vec<TracerState>,
}

/// What `probing leak` prints: what grew, most first. Bytes and blocks are estimates, from samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeakReport {
    pub pid: Option<Pid>,
    pub seconds: f64,
    /// How often was looked.
    pub moments: usize,
    /// Whether the target ended meanwhile.
    pub ended: bool,
    pub rss_growth: Option<i64>,
    pub heap_growth: i64,
    /// The longest that the interpreter was held for a look.
    pub held_seconds: f64,
    pub sites: Vec<SiteGrowth>,
    pub types: Vec<TypeGrowth>,
}

/// How much more is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    pub bytes: i64,
    pub blocks: i64,
    /// How many samples more say so.
    pub samples: i64,
    /// From how many moments to the next it was more.
    pub rose: usize,
}

/// By the stack that allocated it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteGrowth {
    #[serde(flatten)]
    pub growth: Growth,
    /// Innermost first; empty when no Python code was running.
    pub stack: Vec<TracebackFrame>,
}

/// By the type of the objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeGrowth {
    #[serde(flatten)]
    pub growth: Growth,
    #[serde(rename = "type")]
    pub name: String,
}
