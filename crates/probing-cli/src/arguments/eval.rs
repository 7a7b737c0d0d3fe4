//! Arguments of `probing eval`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use probing_proto::message::FrameSelector;
use probing_proto::message::threads::ThreadSelector;

use crate::arguments::NamedTargets;
use crate::arguments::amounts::{bytes, seconds};

const PLACE: &str = "Thread and frame";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 eval \"loss.item()\"
  probing -t 4242 eval \"optimizer.param_groups[0]['lr'] = 0.0001\"
  probing -t 4242 eval -f inspect_model.py
  echo 'print(step)' | probing -t 4242 eval -
  probing -t 4242 eval --timeout 5 \"model(batch).mean()\" --json
  probing --ranks 0-7 eval \"loss.item()\"    run on each rank; equal results are grouped
  probing -t all eval --all \"step\"
  probing -t 4242 eval \"await queue.join()\"
  probing -t 4242 eval --thread main \"torch.cuda.synchronize()\"
  probing -t 4242 eval --frame 0 \"batch.shape, step\"
  probing -t 4242 eval --frame main \"args\"

The code runs on its own thread. Its output appears here and not in the program's output, except
what C code and child processes write. The value of a last expression is printed and is `_` in the
next eval. Top-level `await` runs on the program's event loop, if one runs. Ctrl-C interrupts the
code.

With --thread, the code runs like a signal handler: it must not need a lock that the thread may
hold. Code that names torch's gradients waits for the main thread. With --frame, the frame is one of
the main thread or of --thread, which may be stuck; FUNCTION is its innermost frame of that name.")]
pub(crate) struct EvalArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Run this Python code; `-` reads it from standard input
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub(crate) code: Option<String>,

    /// Read the code from a file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Interrupt the code after SECONDS (0 = no limit)
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// Run the code on each of several targets; implied by --ranks
    #[arg(long)]
    pub(crate) all: bool,

    /// Run the code on this thread, between two bytecodes
    #[arg(long, value_name = "main|NAME|ID", help_heading = PLACE)]
    pub(crate) thread: Option<ThreadSelector>,

    /// Use the locals of this frame (0 = innermost, -1 = outermost)
    #[arg(long, value_name = "N|FUNCTION", allow_hyphen_values = true, help_heading = PLACE)]
    pub(crate) frame: Option<FrameSelector>,

    /// Show at most BYTES of output (500K, 10M)
    #[arg(long, value_name = "BYTES", default_value = "10M", value_parser = bytes)]
    pub(crate) max_output: u64,

    /// Print JSON with value, output, exception and duration
    #[arg(long)]
    pub(crate) json: bool,
}
