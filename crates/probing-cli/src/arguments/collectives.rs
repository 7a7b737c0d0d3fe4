//! `probing collectives`: who is late, who never came

use clap::{Args, ValueEnum};

use crate::arguments::NamedTargets;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t all collectives on                     in a job that runs
  PROBING=1 PROBING_TORCH=collectives torchrun …    from the start on
  probing -t all collectives                        who is late; in a hang, who never came or does something else
  probing -t 4242,4243 collectives --json           ended ranks are asked by their pids

The same by SQL: python.collectives, see docs/collectives.md.")]
pub(crate) struct CollectivesArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Show what was recorded, or switch recording on or off
    #[arg(default_value = "show")]
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
