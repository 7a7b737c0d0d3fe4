//! `probing flamegraph`

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
  probing --ranks 0-7 flamegraph                         a part for each rank, at the same time

Stacks are read from outside: nothing runs in the target and, without --pause, it is never stopped. What
changes while it is read counts as far as it stayed; the rest is shown as moving. Counted are threads on a
CPU and those that hold the GIL; `--idle` adds those that sleep, wait for the GIL or are stopped. Ctrl-C
ends the sampling early; the file is written all the same. Speedscope files have no order in time: look at
Left Heavy or Sandwich.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct FlamegraphArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// The file to write, `-` for standard output; flamegraph-PID.svg (of several: flamegraph-8-targets.svg) if not given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Sample for TIME
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = seconds)]
    pub(crate) duration: Duration,

    /// Sample so many times a second
    #[arg(long, value_name = "HERTZ", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rate: u32,

    /// What to write; if not given, what the file's name ends with: .svg, .json (speedscope), .folded
    #[arg(long, value_enum)]
    pub(crate) format: Option<FlamegraphFormat>,

    /// Only one thread, `main`, by its name or its id (the kernel's or Python's)
    #[arg(long, value_name = "main|NAME|ID")]
    pub(crate) thread: Option<ThreadSelector>,

    /// Keep threads apart
    #[arg(long)]
    pub(crate) threads: bool,

    /// Count threads that sleep or wait, too
    #[arg(long)]
    pub(crate) idle: bool,

    /// Count by function, not by line
    #[arg(long)]
    pub(crate) functions: bool,

    /// Hold a thread for a moment when it moves too fast to be seen whole
    #[arg(long)]
    pub(crate) pause: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlamegraphFormat {
    /// A picture for the browser
    Svg,
    /// JSON for <https://www.speedscope.app>
    Speedscope,
    /// A line per stack and its count, for other tools
    Folded,
}
