//! Arguments of `probing backtrace`.

use std::time::Duration;

use clap::Args;
use probing_proto::message::threads::ThreadSelector;
use probing_proto::wire::json_lines::BacktraceArgs;

use crate::arguments::NamedTargets;
use crate::arguments::amounts::some_seconds;

const SELECTION: &str = "Selection";
const FRAMES: &str = "Frames";
const REPETITION: &str = "Repetition";

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 backtrace
  probing -t 4242 backtrace --all
  probing -t train.py backtrace --thread loader-3
  probing -t 4242 backtrace --locals
  probing -t 4242 backtrace --all --json
  probing -t 4242 backtrace --native       also show C, C++ and Rust frames
  probing -t 4242 backtrace --tasks        show what each asyncio task awaits
  probing --ranks 0-7 backtrace            merge the stacks of all ranks, mark the odd one out
  probing -t 4242 -t 4243 backtrace        merge the stacks of any processes
  probing -t 4242 backtrace --watch 1      update once a second until Ctrl-C
  probing --ranks 0-7 backtrace --watch 1  update a whole job
  probing -t 4242 backtrace --tasks --watch 1
  probing -t 4242 backtrace --dump 10 --every 0.5 --json

Stacks are read from outside: nothing runs in the target, it is not stopped and needs no
preparation. The target may hang, hold its GIL in C or be stopped by a signal. Where the kernel
forbids reading (docs/permissions.md), the probe of a target supplies the stacks, without native
frames. The innermost frame comes last, as in Python's tracebacks; in JSON it comes first, with
depth 0.

Values of locals have a bounded length. Objects of your classes are shown by type and address, data
classes with their fields. Values that change during the read are shown as <changing>. A target that
has a probe (none is attached for this) shows values by `repr`, and tensors by shape, type and
device without touching their data; it has a second for that.

The odd one out of several targets is the one that is missing where nearly all others wait. With
--locals, values that are equal in all targets are shown once.

With --native, a thread on a CPU is held for a fraction of a millisecond while its stack is copied;
a thread that sleeps is not disturbed. Interpreter functions that only pass a call on are omitted.
Frames with debug information (in their file, beside it or in /usr/lib/debug) are shown with their
lines.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct BacktraceArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Show every thread; threads with equal stacks are grouped
    #[arg(long, help_heading = SELECTION)]
    pub(crate) all: bool,

    /// Show one thread: `main`, its name or an id
    #[arg(long, value_name = "main|NAME|ID", conflicts_with = "all", help_heading = SELECTION)]
    pub(crate) thread: Option<ThreadSelector>,

    /// Show pending asyncio tasks and what each awaits, deadlocks included
    #[arg(long, conflicts_with_all = ["all", "thread", "native"], help_heading = SELECTION)]
    pub(crate) tasks: bool,

    /// Show local variables of every frame
    #[arg(long, help_heading = FRAMES)]
    pub(crate) locals: bool,

    /// Also show native frames; with --all, also threads without Python
    #[arg(long, help_heading = FRAMES)]
    pub(crate) native: bool,

    /// Show the innermost frame first
    #[arg(long, help_heading = FRAMES)]
    pub(crate) reverse: bool,

    /// Hold a thread for about 0.1 ms when its stack changes during the read
    #[arg(long, help_heading = FRAMES)]
    pub(crate) pause: bool,

    /// Update every SECONDS, in place, until Ctrl-C or the target's exit
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds, conflicts_with = "dump", help_heading = REPETITION)]
    pub(crate) watch: Option<Duration>,

    /// Show the stacks N times, each with its time (UTC)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = REPETITION)]
    pub(crate) dump: Option<u64>,

    /// With --dump: wait SECONDS between two readings
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = some_seconds, requires = "dump", help_heading = REPETITION)]
    pub(crate) every: Duration,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl From<BacktraceArgs> for BacktraceArguments {
    fn from(asked: BacktraceArgs) -> Self {
        Self {
            all: asked.all,
            thread: asked.thread,
            tasks: asked.tasks,
            locals: asked.locals,
            native: asked.native,
            ..Self::default()
        }
    }
}
