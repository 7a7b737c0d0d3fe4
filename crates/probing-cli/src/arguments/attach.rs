//! `probing attach` and `probing detach`

use std::time::Duration;

use clap::Args;

use crate::arguments::NamedTargets;
use crate::arguments::amounts::seconds;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 attach
  probing -t 4242 attach --json
  probing --ranks 0-7 attach               into all of them at the same time
  probing -t 4242 attach --force           the process is stopped, or its GIL is stuck in C

Nothing needs to be installed in the target's environment. One thread of it is stopped for a fraction of
a millisecond; if this command is killed at any moment the target goes on. See docs/permissions.md for
what the system must allow.")]
pub(crate) struct AttachArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Give up after so many seconds; what has not begun by then never begins
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// As a last resort run inside a blocked thread, even a stopped one. Risky: a thread that was inside
    /// malloc or held a lock may hang or crash the program
    #[arg(long)]
    pub(crate) force: bool,

    /// Print JSON: strategy, versions, pause, time
    #[arg(long)]
    pub(crate) json: bool,

    /// For tests: die by SIGKILL at this step
    #[arg(long, hide = true)]
    pub(crate) die_at_step: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 detach
  probing -t all detach                    out of every process of this user that has it")]
pub(crate) struct DetachArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,
}
