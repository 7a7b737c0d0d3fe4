//! Arguments of `probing run`.

use std::ffi::OsString;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing run -- python train.py --epochs 3
  probing run -- torchrun --nproc-per-node 8 train.py

The program's environment needs nothing installed. `probing` becomes the program: its pid, exit
status and signals are the program's own. Python children also get the probe. A Python that is
started with -I, -E or -S ignores the probe; a warning says so when the command line shows it, also
through `env`, `uv run` and the first line of a script, but not for Pythons that the program starts
later.")]
pub(crate) struct RunArguments {
    /// Run this program with these arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
}
