//! Arguments of `probing memory` and `leak`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::arguments::NamedTargets;
use crate::arguments::amounts::some_seconds;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 memory on
  probing -t 4242 query \"SELECT ts, rss, python_heap FROM python.memory\"
  probing --ranks all memory off
  PROBING=1 PROBING_MEMORY=1 python train.py      record from the start

`on` records a row of python.memory every second and at every step, and every ten seconds the
allocation stacks of memory in use in python.heap. Rows stay when the process ends (docs/memory.md).")]
pub(crate) struct MemoryArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Switch recording, or show its state
    #[arg(
        default_value = "status",
        value_name = "on|off|status",
        hide_possible_values = true
    )]
    pub(crate) switch: Switch,

    /// Record python.memory only, no allocations
    #[arg(long)]
    pub(crate) no_heap: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The state that a recorder shall have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
    Status,
}

impl Switch {
    pub(crate) fn on(self) -> Option<bool> {
        match self {
            Self::On => Some(true),
            Self::Off => Some(false),
            Self::Status => None,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 leak                    find what grows within a minute
  probing -t 4242 leak --for 10m --top 3
  probing --ranks all leak --json

One allocation in about 512 KiB is sampled, and its use is read seven times. The program runs a few
percent slower meanwhile. Ctrl-C ends sampling and shows the results so far. The data of torch's
tensors and numpy's arrays is not Python's memory: it shows in the growth of rss only.")]
pub(crate) struct LeakArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Sample for TIME
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = some_seconds)]
    pub(crate) duration: Duration,

    /// Show N allocation stacks and types
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
