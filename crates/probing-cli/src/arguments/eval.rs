//! `probing eval`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use probing_proto::message::FrameSelector;
use probing_proto::message::threads::ThreadSelector;

use crate::arguments::NamedTargets;
use crate::arguments::amounts::{bytes, seconds};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 eval \"loss.item()\"
  probing -t 4242 eval \"optimizer.param_groups[0]['lr'] = 0.0001\"
  probing -t 4242 eval -f inspect_model.py
  echo 'print(step)' | probing -t 4242 eval -
  probing -t 4242 eval --timeout 5 \"model(batch).mean()\" --json
  probing --ranks 0-7 eval \"loss.item()\"    on each; equal results are shown together
  probing -t all eval --all \"step\"
  probing -t 4242 eval \"await queue.join()\"
  probing -t 4242 eval --thread main \"torch.cuda.synchronize()\"
  probing -t 4242 eval --frame 0 \"batch.shape, step\"
  probing -t 4242 eval --frame main \"args\"

The code runs on a thread of its own. What it prints comes here and nowhere else (but not what C code
and child processes write by themselves); the value of a last expression is shown like at a prompt and
is `_` for the next eval. Top-level `await` runs on the program's event loop, if one runs. Standard
input stays the program's. Ctrl-C interrupts the code, not only this command.")]
pub(crate) struct EvalArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Python code; `-` reads it from standard input
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub(crate) code: Option<String>,

    /// Read the code from a file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Interrupt the code after so many seconds; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// Run it on every target named, when they are several; --ranks says so, too
    #[arg(long)]
    pub(crate) all: bool,

    /// Run it on this thread of the program, at a bytecode boundary, like a signal handler: it must not
    /// need a lock that the thread may hold. Else it has a thread of its own; code that names torch's
    /// gradients waits for main
    #[arg(long, value_name = "main|NAME|ID")]
    pub(crate) thread: Option<ThreadSelector>,

    /// Run it with the locals of this frame of the main thread (or of --thread): 0 is the innermost, as
    /// in `backtrace`, -1 the outermost; FUNCTION is the innermost frame of that name. Needs nothing of
    /// that thread, which may be stuck
    #[arg(long, value_name = "N|FUNCTION", allow_hyphen_values = true)]
    pub(crate) frame: Option<FrameSelector>,

    /// Show at most so many bytes of output, and say how many more there were; K and M are understood
    #[arg(long, value_name = "BYTES", default_value = "10M", value_parser = bytes)]
    pub(crate) max_output: u64,

    /// Print JSON: value, output, exception, time used
    #[arg(long)]
    pub(crate) json: bool,
}
