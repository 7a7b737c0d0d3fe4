//! Tables: what a recorded table looks like, and those that Probing records itself.

pub mod builtin;
pub mod schema;
