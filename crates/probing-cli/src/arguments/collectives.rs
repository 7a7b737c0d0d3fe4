//! Arguments of `probing collectives`.

use clap::{Args, ValueEnum};

use crate::arguments::NamedTargets;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t all collectives on                     record in a running job
  PROBING=1 PROBING_TORCH=collectives torchrun …    record from the start
  probing -t all collectives                        name late and missing ranks
  probing -t 4242,4243 collectives --json           read ended ranks by their pids

The rows are in python.collectives (docs/collectives.md).")]
pub(crate) struct CollectivesArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Show recorded collectives, or switch recording
    #[arg(
        default_value = "show",
        value_name = "show|on|off",
        hide_possible_values = true
    )]
    pub(crate) what: CollectivesAction,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CollectivesAction {
    Show,
    On,
    Off,
}
