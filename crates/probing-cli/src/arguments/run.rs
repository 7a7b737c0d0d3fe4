//! `probing run`

use std::ffi::OsString;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing run -- python train.py --epochs 3
  probing run -- torchrun --nproc-per-node 8 train.py

Nothing needs to be installed in the program's environment. `probing` becomes the program: its pid,
exit status and signals are the program's own. Python children get the probe, too. A Python started
with -I, -E or -S ignores this; a warning says so where the command shows it, also through `env`,
`uv run` and the first line of a script, but not of Pythons that the program starts later.")]
pub(crate) struct RunArguments {
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
}
