//! Memory of the process: how much over time, and where its bytes were allocated.

pub(crate) mod heap;
pub(crate) mod rss;
