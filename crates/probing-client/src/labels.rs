//! Labels: how answers call targets, one or many, and ranks as people write them.

pub(crate) mod ranks;
pub(crate) mod target_label;
