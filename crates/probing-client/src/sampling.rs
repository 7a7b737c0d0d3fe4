//! Sampling: many readings of stacks, counted as they come.

pub(crate) mod call_tree;
pub(crate) mod samples;
pub(crate) mod ticker;
