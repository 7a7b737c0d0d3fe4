//! Optimizer: nodes of a plan that are done faster here than by the engine's own.

pub(crate) mod count_pushdown;
pub(crate) mod exec_override;
pub(crate) mod group_by;
pub(crate) mod joins;
pub(crate) mod key_interning;
pub(crate) mod sum_pushdown;
