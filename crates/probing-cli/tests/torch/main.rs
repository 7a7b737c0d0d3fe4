//! What users of torch do and see, with a real model and real ranks.
//!
//! Left out where torch is not installed: it is large.
//!
//! Loading torch takes seconds, so each test asks its target everything that it can.
#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "../remote/agent.rs"]
#[expect(dead_code, reason = "most of it is for tests of agents")]
mod agent;
mod block;
mod collectives;
mod compiled;
mod examples;
mod job;
mod nan;
mod remote;
mod rows;
mod scalars;
mod sets;
mod signals;
mod steps;
mod switches;
mod trace;
mod training;
mod unranked;
mod watches;

use probing_testkit::Sandbox;

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_probing"))
}
