//! What a user does and sees, against real processes on every Python found.
#![expect(clippy::unwrap_used, reason = "a test")]

mod attach;
mod backtrace;
mod breakpoints;
mod capture;
mod connect;
mod dead;
mod debug;
mod debug_registers;
mod detach;
mod errors;
mod eval;
mod flamegraph;
mod foreign;
mod gone;
mod harmless;
mod hidden;
mod hostile;
mod interrupt;
mod kept;
mod leaks;
mod list;
mod locals;
mod loops;
mod memory;
mod other_users;
mod output;
mod query;
mod readme;
mod recording;
mod repl;
mod run;
mod sets;
mod start;
mod stress;
mod surroundings;
mod switches;
mod tasks;
mod threads;
mod torch;
mod traces;
mod training;
mod watch;

use probing_testkit::{Sandbox, scrubbed};

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_probing"))
}
