//! Enters real processes, on every Python found, and looks whether it did them any harm.
//!
//! `cargo test -p probing-attach -- --ignored` runs the same for minutes instead of seconds.

mod harmless;
mod killed;
mod refusals;
mod states;
mod target;
