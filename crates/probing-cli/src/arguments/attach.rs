//! Arguments of `probing attach` and `probing detach`.

use std::time::Duration;

use clap::Args;

use crate::arguments::NamedTargets;
use crate::arguments::amounts::seconds;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 attach
  probing -t 4242 attach --json
  probing --ranks 0-7 attach               attach to eight ranks at the same time
  probing -t 4242 attach --force           for a process that is stopped or whose GIL is stuck in C

The target's environment needs nothing installed. Attaching stops one thread of the target for a
fraction of a millisecond. If this command is killed at any moment, the target resumes.
docs/permissions.md says what the system must allow.")]
pub(crate) struct AttachArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Give up after SECONDS; an attach that has not begun by then never begins
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// Run inside a blocked or stopped thread; may hang or crash the program
    #[arg(long)]
    pub(crate) force: bool,

    /// Print JSON with strategy, versions, pause and time
    #[arg(long)]
    pub(crate) json: bool,

    /// Die by SIGKILL at this step (for tests)
    #[arg(long, hide = true)]
    pub(crate) die_at_step: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 detach
  probing -t all detach                    remove it from every process of this user")]
pub(crate) struct DetachArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,
}
