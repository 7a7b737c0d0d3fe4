//! Arguments of `probing capture`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::NamedTargets;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 capture -o hang.probe
  probing --ranks all capture -o hang/            write a file for each rank
  probing -t hang.probe backtrace --all --locals  read it later, also on another machine
  probing -t hang.probe query \"SHOW TABLES\"

The file has the stacks of all threads with their variables and source lines, the asyncio tasks, and
every table with its recorded rows. It is a zip archive of JSON and Arrow files that only its user
can read, because variables may hold secrets. The target keeps running.")]
pub(crate) struct CaptureArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Write to FILE (NAME.probe), or for several targets to a folder
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Record TEXT as the reason of the capture
    #[arg(long, default_value = "asked for", value_name = "TEXT")]
    pub(crate) reason: String,

    /// Print JSON with the contents of each file
    #[arg(long)]
    pub(crate) json: bool,
}
