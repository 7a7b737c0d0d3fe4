//! `probing memory`, `leak`: memory over time, and what grows

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::arguments::NamedTargets;
use crate::arguments::amounts::some_seconds;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 memory on
  probing -t 4242 query \"SELECT ts, rss, python_heap, step FROM python.memory ORDER BY ts DESC LIMIT 10\"
  probing --ranks all memory off
  PROBING=1 PROBING_MEMORY=1 python train.py      from the first line on

On: a row of python.memory every second and at every step, and the stacks that memory in use came from in
python.heap every ten seconds. Rows stay when the process ends. See docs/memory.md.")]
pub(crate) struct MemoryArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Switch it on or off, or tell how it is
    #[arg(default_value = "status")]
    pub(crate) switch: Switch,

    /// Leave allocations alone: only python.memory
    #[arg(long)]
    pub(crate) no_heap: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a tracer is to be.
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
  probing -t 4242 leak                    what grows within a minute
  probing -t 4242 leak --for 10m --top 3
  probing --ranks all leak --json

Samples one allocation in about 512 KiB (programs run at most some percent slower meanwhile) and looks seven times what
is in use of them. Ctrl-C ends it with what is known so far. Memory that torch or numpy use for their numbers is
not Python's: it shows in the growth of rss only.")]
pub(crate) struct LeakArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// How long to look
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = some_seconds)]
    pub(crate) duration: Duration,

    /// Places and types to show
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) top: usize,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
