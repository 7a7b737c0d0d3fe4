//! Enters real processes, on every Python found, and looks whether it did them any harm.
//!
//! `cargo test -p probing-attach -- --ignored` runs the same for minutes instead of seconds.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by its panic"
)]

mod harmless;
mod killed;
mod refusals;
mod states;
mod target;
mod traps;
