//! Reads the stacks of real processes, on every Python found, and compares them with what Python says itself.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by its panic"
)]

mod moving;
mod native;
mod refusals;
mod target;
mod tasks;
mod values;
mod waiting;
mod worlds;
