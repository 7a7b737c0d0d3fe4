//! What `probing torch` and `probing watch-nan` print as JSON.

use serde::{Deserialize, Serialize};

use crate::agent::MissingTarget;
use crate::message::torch::TorchStatus;
use crate::process::Pid;

/// What `probing torch on`, `off` and `status` print.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TorchReport {
    pub pid: Option<Pid>,
    /// Absent where there is no probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torch: Option<TorchStatus>,
}

/// What `probing watch-nan` prints: for each process its findings, the first of all first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NanReport {
    pub found: Vec<NanFinding>,
    /// How many modules were looked at meanwhile; null where only what was recorded is told, and where one of `missing` could
    /// not be asked.
    #[serde(default)]
    pub modules: Option<u64>,
    /// Those that could not be asked to look, or what they have looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingTarget>,
}

/// One value that is not finite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NanFinding {
    pub pid: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// The finding's number in its process.
    pub finding: u64,
    pub step: Option<i64>,
    /// `program` where the step is the program's own (`probing.step()`), `optimizer` where it is counted since recording began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_by: Option<String>,
    /// The class of the module that the value belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Where the module's `forward` begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineno: Option<u64>,
    pub tensor: TensorReading,
    /// What it came from: inputs and parameters of the module.
    pub context: Vec<TensorReading>,
}

/// A tensor that was looked at. Numbers are those of its finite values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorReading {
    /// `output`, `gradient`, `parameter` or `input`.
    pub kind: String,
    pub name: String,
    pub module: String,
    pub dtype: String,
    pub shape: String,
    pub device: String,
    pub count: u64,
    pub nan: u64,
    pub inf: u64,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub mean: Option<f64>,
    pub std: Option<f64>,
    pub norm: Option<f64>,
    pub zero_share: Option<f64>,
}
