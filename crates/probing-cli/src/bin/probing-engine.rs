//! The command `probing` with the engine in it; started by `probing` for what needs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    probing_cli::main(&probing_cli::HERE)
}
