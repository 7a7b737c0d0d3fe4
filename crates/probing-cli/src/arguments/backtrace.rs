//! `probing backtrace`

use std::time::Duration;

use clap::Args;
use probing_proto::message::threads::ThreadSelector;
use probing_proto::wire::json_lines::BacktraceArgs;

use crate::arguments::NamedTargets;
use crate::arguments::amounts::some_seconds;

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 backtrace
  probing -t 4242 backtrace --all
  probing -t train.py backtrace --thread loader-3
  probing -t 4242 backtrace --locals
  probing -t 4242 backtrace --all --json
  probing -t 4242 backtrace --native       what Python called in C, C++ and Rust, and what called it
  probing -t 4242 backtrace --tasks        asyncio: what every task awaits, and who awaits whom
  probing --ranks 0-7 backtrace            one tree of all: who is where, the odd one out marked
  probing -t 4242 -t 4243 backtrace        the same for any processes; -t all for all of this user
  probing -t 4242 backtrace --watch 1      a live view; Ctrl-C ends it
  probing --ranks 0-7 backtrace --watch 1  the same of a whole job
  probing -t 4242 backtrace --tasks --watch 1
  probing -t 4242 backtrace --dump 10 --every 0.5 --json

Stacks are read from outside: nothing runs in the target, it is not stopped and need not be prepared. It
works for one that hangs, holds its GIL in C or is stopped by a signal. Where the kernel forbids it
(docs/permissions.md), a target that has a probe is read through that, without native frames. The innermost frame comes last, as
in Python's tracebacks; in JSON, frames begin with the innermost, depth 0.

Values of locals are cut to a bounded length; objects of your classes are shown by type and address, those
of data classes with their fields. What changes faster than it can be read is shown as <changing>. A target
that has a probe (none is brought in for this) tells them in its own words within a second: by `repr`, and
tensors by shape, type and device, without touching their data.

Of several targets, the odd one out is who is not there where nearly all others wait. With --locals, what
is the same in all is told once, else who has which value.

With --native, a thread that is on a CPU is held for a fraction of a millisecond while its stack is copied;
one that sleeps is not disturbed. Functions of the interpreter that only pass a call on are left out.
Code whose file (or its file of symbols, beside it or in /usr/lib/debug) has debug information is shown with
its line.")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag that people type"
)]
pub(crate) struct BacktraceArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Every thread; those with the same stack are shown together
    #[arg(long)]
    pub(crate) all: bool,

    /// One thread, `main`, by its name or its id (the kernel's or Python's)
    #[arg(long, value_name = "main|NAME|ID", conflicts_with = "all")]
    pub(crate) thread: Option<ThreadSelector>,

    /// The asyncio tasks that are not done, instead of threads: what each waits for and where. Tasks that others wait
    /// for are shown below them, those that are alike together, and deadlocks are named
    #[arg(long, conflicts_with_all = ["all", "thread", "native"])]
    pub(crate) tasks: bool,

    /// Local variables of every frame, with their values
    #[arg(long)]
    pub(crate) locals: bool,

    /// Native frames, too, in their true order among Python's; with --all, threads that Python does not know
    #[arg(long)]
    pub(crate) native: bool,

    /// The innermost frame first
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Show it again every so many seconds, in place; ends with Ctrl-C or with the target
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds, conflicts_with = "dump")]
    pub(crate) watch: Option<Duration>,

    /// Show it so many times, each with the time (UTC)
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) dump: Option<u64>,

    /// With --dump, the seconds from one to the next
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = some_seconds, requires = "dump")]
    pub(crate) every: Duration,

    /// Hold a thread for a moment (some 0.1 ms) when it moves too fast to be seen whole
    #[arg(long)]
    pub(crate) pause: bool,

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
