//! The subsystems of the probe: one fixed list.

use crate::breakpoints::BreakpointSubsystem;
use crate::recorders::torch::TorchSubsystem;
use crate::recorders::{CollectivesSubsystem, MemorySubsystem};
use crate::requests::subsystem::Subsystem;
use crate::trace::TraceSubsystem;

/// In the order in which they leave: torch's hooks go before the taps that they use, and traces last, as others may use them.
/// (Watchpoints are breakpoints whose location is a variable: they come and go with these.)
pub(crate) const SUBSYSTEMS: [&dyn Subsystem; 5] = [
    &TorchSubsystem,
    &BreakpointSubsystem,
    &MemorySubsystem,
    &CollectivesSubsystem,
    &TraceSubsystem,
];
