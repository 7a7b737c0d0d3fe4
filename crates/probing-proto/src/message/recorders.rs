//! Messages to the recorders of memory, of collectives and of NaN and Inf values.

use serde::{Deserialize, Serialize};

use crate::message::TracebackFrame;
use crate::message::omitted::is_false;

/// Something that records rows while it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tracer {
    /// `python.memory`: once a second, and at every step of a training.
    Memory,
    /// `python.heap`: where the bytes come from that are in use, by samples of allocations.
    Heap,
    /// `python.collectives`: what the ranks of a job do together.
    Collectives,
    /// Findings in `python.tensors`: values of modules that are not finite.
    Nan,
}

/// A tracer, and what it is to be. Without `on` it stays as it is.
///
/// One that is `borrowed` is on for as long as the connection lasts, or until it is given back; who else wants it to be on
/// does not notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracerCall {
    pub tracer: Tracer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<bool>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub borrowed: bool,
}

/// How a tracer is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracerState {
    pub tracer: Tracer,
    pub on: bool,
    /// Before the call.
    pub was_on: bool,
    /// What one should know about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Of collectives: the job, as `python.collectives` calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// What is in use of that which was allocated since the sampler was switched on. All numbers are estimates: one allocation
/// in about `period_bytes` is seen and stands for those that were not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heap {
    pub period_bytes: u64,
    /// On the monotonic clock.
    pub taken_at_nanos: u64,
    /// By the stack that allocated it, most bytes first.
    pub sites: Vec<HeapSite>,
    /// By the type of what it is now, most bytes first.
    pub types: Vec<HeapType>,
    /// Memory of the process, as the kernel counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss: Option<u64>,
    /// Samples for which there was no room.
    #[serde(default)]
    pub dropped: u64,
    /// How long the interpreter was held for this answer.
    #[serde(default)]
    pub held_nanos: u64,
}

/// Bytes in use that came from one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapSite {
    /// The same for the same stack of one process.
    pub id: u64,
    /// Innermost first; empty when no Python code was running.
    pub stack: Vec<TracebackFrame>,
    pub live: Live,
}

/// Bytes in use by objects of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapType {
    pub name: String,
    pub live: Live,
}

/// Something in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    pub bytes: u64,
    pub blocks: u64,
    /// How many samples say so.
    pub samples: u64,
}
