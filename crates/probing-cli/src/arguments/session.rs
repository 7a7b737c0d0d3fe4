//! Arguments of `probing repl` and `probing connect`.

use clap::Args;

use crate::arguments::NamedTargets;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 repl
  probing -t train.py repl < inspect.py

Code runs in the live __main__ of the target; _ is the last value. Tab completes from live objects
without running their code. Ctrl-C interrupts the code, a second Ctrl-C abandons it, Ctrl-D exits,
%help lists the commands of the prompt. The history is in ~/.local/state/probing/history.")]
pub(crate) struct ReplArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  echo '{\"id\": 1, \"op\": \"eval\", \"code\": \"1 + 1\"}' | probing -t 4242 connect

Requests are read from standard input, answers are written to standard output, and several requests
may be in flight. The end of input interrupts running requests and exits, as does the end of the
target. docs/protocol.md describes the lines. In Python, use `probing.connect(4242)`.")]
pub(crate) struct ConnectArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,
}
