//! Arguments of `probing flamegraph`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use probing_proto::message::threads::ThreadSelector;

use crate::arguments::NamedTargets;
use crate::arguments::amounts::seconds;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 flamegraph
  probing -t 4242 flamegraph -o out.svg --for 30s --rate 200
  probing -t 4242 flamegraph -o out.speedscope.json      for https://www.speedscope.app
  probing -t 4242 flamegraph --idle --thread loader-3 -o -  > loader.svg
  probing --ranks 0-7 flamegraph                         sample all ranks at the same time

Stacks are read from outside: nothing runs in the target and, without --pause, it is never stopped.
A stack that changes during the read counts as far as it is consistent; its rest is shown as moving.
Threads on a CPU and threads that hold the GIL are counted; --idle adds threads that sleep, wait for
the GIL or are stopped. Ctrl-C ends sampling early and still writes the file. Speedscope files have
no order in time: use Left Heavy or Sandwich.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct FlamegraphArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Write to FILE, - for stdout [default: flamegraph-PID.svg]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Sample for TIME
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = seconds)]
    pub(crate) duration: Duration,

    /// Sample HERTZ times a second
    #[arg(long, value_name = "HERTZ", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rate: u32,

    /// Write this format [default: by the ending of FILE]
    #[arg(
        long,
        value_enum,
        value_name = "svg|speedscope|folded",
        hide_possible_values = true
    )]
    pub(crate) format: Option<FlamegraphFormat>,

    /// Sample one thread: `main`, its name or an id
    #[arg(long, value_name = "main|NAME|ID")]
    pub(crate) thread: Option<ThreadSelector>,

    /// Show each thread separately
    #[arg(long)]
    pub(crate) threads: bool,

    /// Also count threads that sleep or wait
    #[arg(long)]
    pub(crate) idle: bool,

    /// Count by function instead of line
    #[arg(long)]
    pub(crate) functions: bool,

    /// Hold a thread for about 0.1 ms if its stack changes
    #[arg(long)]
    pub(crate) pause: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlamegraphFormat {
    // A picture for the browser.
    Svg,
    // JSON for <https://www.speedscope.app>, with the ending .json.
    Speedscope,
    // A line per stack and its count, for other tools.
    Folded,
}
