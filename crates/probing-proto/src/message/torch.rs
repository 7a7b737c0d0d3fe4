//! Messages to the recorder of torch.

use serde::{Deserialize, Serialize};

use crate::message::omitted::is_zero;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum TorchCall {
    /// Begin, or change the settings: what is not named stays as it is.
    On(TorchOptions),
    /// End all of it but what connections have borrowed (see [`crate::tracers::Tracer::Nan`]).
    Off,
    Status {
        /// `looked_at` counts the modules that were checked after this number of checks.
        #[serde(default, skip_serializing_if = "is_zero")]
        since: u64,
    },
}

/// What is to be recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TorchOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensors: Option<Tensors>,
    /// Look at what modules give and at gradients, and record the first that are not finite.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nan: bool,
}

/// Rows of `python.torch_trace`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// One of this number of steps is recorded.
    pub every: u32,
    /// How often the memory of a GPU is read.
    pub memory: MemoryRead,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            every: 1,
            memory: MemoryRead::Step,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryRead {
    Never,
    /// Once in each step, behind the optimizer's.
    Step,
    /// Behind each module, too.
    Module,
}

/// Rows of `python.tensors`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensors {
    /// One of this number of steps is checked.
    pub every: u32,
    pub kinds: Vec<TensorKind>,
    /// Names with `*`; all, when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorKind {
    Parameters,
    Gradients,
    Activations,
}

impl TensorKind {
    pub const ALL: [Self; 3] = [Self::Parameters, Self::Gradients, Self::Activations];

    pub fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Gradients => "gradients",
            Self::Activations => "activations",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TorchStatus {
    pub state: TorchState,
    /// The version of torch, where it is imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(flatten)]
    pub options: TorchOptions,
    /// How modules are seen: `sys.monitoring`, or a function in the place of another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The step that the training is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// Whose steps are counted: the class of an optimizer, or `program`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_by: Option<String>,
    /// Models that were seen, by their classes.
    pub roots: Vec<String>,
    /// How many modules they have.
    pub modules: u64,
    /// How many NaN and Inf values were recorded.
    pub findings: u64,
    /// Tensors that were looked at for NaN and Inf since the probe is in the process.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub looks: u64,
    /// How many modules they belong to; only of those looks that came after the first `since` ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub looked_at: u64,
    /// Why nothing may come of what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TorchState {
    Off,
    /// It begins when the program imports torch.
    Waiting,
    On,
}
