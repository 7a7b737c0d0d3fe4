//! The program `probing`.
//!
//! What needs the engine it leaves to `probing-engine` beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    probing_cli::main(&probing_cli::ELSEWHERE)
}
