//! What `--json` prints of operations that ranks do together.

use serde::{Deserialize, Serialize};

use crate::message::omitted::is_false;

/// What `probing collectives` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectivesReport {
    /// Each with a verdict of its own: groups of different jobs have the same names.
    pub jobs: Vec<JobReport>,
}

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// Where its ranks met, as `python.collectives` has it.
    pub job: Option<String>,
    /// Whose rows were found, and who records.
    pub pids: Vec<u64>,
    /// Ranks that several of these processes have: they are of several jobs that cannot be told apart, and nothing else is
    /// said of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claimed_twice: Vec<i64>,
    pub groups: Vec<GroupReport>,
    /// How late each rank comes, the latest first.
    pub lateness: Vec<Lateness>,
    /// The rank that the others wait for, if it is always the same.
    pub straggler: Option<i64>,
    /// The rows are from several machines: times of one are compared with those of others as their clocks tell them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub several_hosts: bool,
}

/// One process group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    pub group_name: String,
    pub group_size: i64,
    /// Whose rows were found.
    pub ranks: Vec<i64>,
    /// Of those, the ones that have ended.
    pub ended: Vec<i64>,
    pub verdict: Verdict,
}

/// What a group waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// For nothing: all ranks have done the same.
    InStep { seq: i64 },
    /// For ranks that have not come to an operation that others are in.
    Absent {
        ranks: Vec<i64>,
        waiting: Vec<i64>,
        operation: Operation,
        /// What they did last.
        last: Option<Operation>,
        waited_seconds: f64,
    },
    /// Ranks do different things under the same number: those that differ from most come last.
    Differs { sides: Vec<Side> },
    /// All are in the same operation, which is not done: it is not the program.
    Transport {
        operation: Operation,
        waited_seconds: f64,
    },
    /// It cannot be told: the numbers of these ranks do not fit those of the others.
    Unaligned { ranks: Vec<i64> },
}

/// Ranks that do the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    pub ranks: Vec<i64>,
    pub operation: Operation,
}

/// An operation, as a rank asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub seq: i64,
    pub op: String,
    pub shapes: String,
    pub dtype: Option<String>,
    pub func: Option<String>,
    pub file: Option<String>,
    pub lineno: Option<i64>,
}

/// How late a rank came to operations that all ranks came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    pub rank: i64,
    pub operations: usize,
    /// How often it was the last.
    pub last: usize,
    /// Behind the first, in half of them or more.
    pub median_seconds: f64,
    pub most_seconds: f64,
}
