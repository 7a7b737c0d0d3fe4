//! The guest's manners: what the probe must never do to its process, measured against a process without it.
//!
//! `docs/safety.md` names these tests.
#![expect(clippy::unwrap_used, reason = "a test")]

mod clients;
mod directory;
mod exits;
mod forks;
mod host;
mod locals;
mod reads;
mod signals;
mod silence;
mod speed;
mod torture;
mod weight;
