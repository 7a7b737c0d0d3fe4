//! Parallel requests: many targets are asked at the same time, each with its own deadline.

pub(crate) mod fan_out;
pub(crate) mod thread_pool;
