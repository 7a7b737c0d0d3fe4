//! What stays with a target: `probing repl`, and `probing connect` for programs

use clap::Args;

use crate::arguments::NamedTargets;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 repl
  probing -t train.py repl < inspect.py

Code runs in the live __main__ of the target; _ is the last value. Tab completes from live objects without
running their code. Ctrl-C interrupts the code (twice: leaves it behind), Ctrl-D leaves, %help lists the
commands of the prompt. What was typed is kept in ~/.local/state/probing/history.")]
pub(crate) struct ReplArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  echo '{\"id\": 1, \"op\": \"eval\", \"code\": \"1 + 1\"}' | probing -t 4242 connect

For programs that look into others: requests come on standard input, answers go to standard output, many
may be in flight. It ends with its input, which interrupts what still runs, and with the target.
docs/protocol.md shows the lines. In Python, `probing.connect(4242)` speaks them for you.")]
pub(crate) struct ConnectArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,
}
