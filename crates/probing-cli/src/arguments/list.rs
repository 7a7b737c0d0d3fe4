//! Arguments of `probing list`.

use clap::Args;

use crate::arguments::NamedTargets;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing list
  probing list --json | jq '.[] | select(.probe == \"running\") | .pid'
  probing list --dead                      list ended processes with recorded rows
  probing -t node7:8080 list               list the processes of another machine

PROBE is one of: running; none (any command that needs the probe attaches it); silent (the probe did not
answer in time); left (the process became another program); forbidden (another user's process).
(1 thread at a breakpoint): `probing -t PID stops` lists the thread, `probing -t PID debug` debugs it.
(heap only): shared memory was full. Rows are lost when the process ends and cannot be queried; --json
says why.")]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// List ended processes whose recorded rows still exist
    #[arg(long)]
    pub(crate) dead: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
