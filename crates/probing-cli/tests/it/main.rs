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
mod switches;
mod tasks;
mod threads;
mod torch;
mod traces;
mod training;
mod watch;

use probing_testkit::Sandbox;

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_probing"))
}

/// Numbers that differ from run to run (pids, ages, times) as `N`, runs of spaces as one.
fn scrubbed(text: &str) -> String {
    let mut scrubbed = String::new();
    for character in text.chars() {
        match (character, scrubbed.chars().last()) {
            ('0'..='9', Some('N')) | (' ', Some(' ')) => {}
            ('0'..='9', _) => scrubbed.push('N'),
            _ => scrubbed.push(character),
        }
    }
    scrubbed
}
