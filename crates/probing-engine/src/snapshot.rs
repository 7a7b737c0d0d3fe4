//! Snapshots: what one query sees of its targets, each read once.

pub(crate) mod steps;
pub(crate) mod target_snapshot;
