//! Targets of another machine, through an agent: what works, and what is refused.
#![expect(clippy::unwrap_used, reason = "a test")]

mod agent;
mod alike;
mod audit;
mod commands;
mod crowds;
mod described;
mod first_contact;
mod hostile;
mod hung_up;
mod impostors;
mod load;
mod machines;
mod ranks;
mod refusals;
mod sets;
mod sockets;
mod ssh;
mod stops;
mod taken;
mod tls;
mod traces;
mod wanted;

use probing_testkit::Sandbox;

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_probing"))
}
