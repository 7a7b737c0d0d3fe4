//! What `capture` takes.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::NamedTargets;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 capture -o hang.probe
  probing --ranks all capture -o hang/            a file for each rank
  probing -t hang.probe backtrace --all --locals  later, and on another machine
  probing -t hang.probe query \"SHOW TABLES\"

The file has the stacks of all threads with their variables and source lines, the asyncio tasks, and every table
that a query could ask for, recorded rows included. It is a zip archive of JSON and Arrow files, readable by its
user only: variables may hold what is nobody's business. The target goes on as if nothing were.")]
pub(crate) struct CaptureArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// The file to write, NAME.probe; for several targets, a folder for their files
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Why it is taken, to be read in it later
    #[arg(long, default_value = "asked for", value_name = "TEXT")]
    pub(crate) reason: String,

    /// Print JSON: an array with what each file holds
    #[arg(long)]
    pub(crate) json: bool,
}
