//! The guest's manners: what the probe must never do to the process it lives in, measured on real targets with and
//! without it. `docs/safety.md` names these tests.
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
