//! `probing list`

use clap::Args;

use crate::arguments::NamedTargets;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing list
  probing list --json | jq '.[] | select(.probe == \"running\") | .pid'
  probing list --dead                      who has ended, and left recorded rows
  probing -t node7:8080 list               on the machine of an agent

PROBE is one of: running; none (`probing attach`, or any command, brings it in); silent (it did not
answer in time); left (the process became another program); forbidden (another user's process).
(1 thread at a breakpoint): `probing -t PID stops` shows it, `probing -t PID debug` goes there.
(heap only): there was no room in shared memory, so that rows which the program records end with it and
cannot be queried; --json says why.")]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Show processes that have ended and whose recorded rows are still there
    #[arg(long)]
    pub(crate) dead: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
