//! The command `probing` with the engine, which `probing` starts when it needs SQL or an agent.

use std::process::ExitCode;

fn main() -> ExitCode {
    probing_cli::main(&probing_cli::HERE)
}
