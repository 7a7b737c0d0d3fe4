//! What can be typed: the arguments of every command, with their help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, builder::Styles};
use probing_client::{AttachOptions, Entry, Target};
use probing_proto::env::PROBING_TARGET;

const STYLES: Styles = Styles::styled()
    .header(anstyle::Style::new().bold())
    .usage(anstyle::Style::new().bold())
    .literal(anstyle::AnsiColor::Cyan.on_default());

/// Look into Python processes that are already running.
#[derive(Debug, Parser)]
#[command(name = "probing", version, styles = STYLES, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Arguments {
    /// The process to look at: its pid, its script's name, or unix:PATH
    #[arg(short = 't', long = "target", global = true, value_name = "TARGET", env = PROBING_TARGET.name, hide_env_values = true)]
    named_target: Option<Target>,

    /// The same, as the first word: `probing 4242 eval "…"`
    #[arg(value_name = "TARGET")]
    first_target: Option<Target>,

    /// Do not bring the probe into a process that has none; fail instead
    #[arg(long, global = true)]
    pub(crate) no_attach: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  probing list                             what can be looked at
  probing -t 4242 backtrace --all          where every thread is
  probing -t 4242 eval \"loss\"              run code in a live process, prepared or not
  probing 4242 eval \"model.training\"       the target may come first
  probing -t train.py detach               take the probe out again
  PROBING=1 python train.py                start a program with the probe in it
  probing run -- torchrun train.py         the same, with nothing installed in its environment

Exit status: 0 done, 1 the code raised or the command failed, 2 syntax error or wrong arguments,
3 target not reached, 124 timed out, 130 interrupted.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the Python processes that can be looked at
    List(ListArguments),
    /// Run code in the target's live `__main__` namespace
    Eval(EvalArguments),
    /// Show where the target is: the stack of its main thread, or of every thread
    Backtrace(BacktraceArguments),
    /// Bring the probe into a running process (other commands do it by themselves)
    Attach(AttachArguments),
    /// Take the probe out of the target again: its thread ends, its files are removed
    Detach,
    /// Start a program with the probe in it and in its children
    Run(RunArguments),
    /// Print a completion script for your shell
    #[command(
        after_help = "Example:\n  probing completions bash > ~/.local/share/bash-completion/completions/probing"
    )]
    Completions { shell: clap_complete::Shell },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing list
  probing list --json | jq '.[] | select(.probe == \"running\") | .pid'

PROBE is one of: running; none (`probing attach`, or any command, brings it in); silent (it did not
answer in time); left (the process became another program); forbidden (another user's process).")]
pub(crate) struct ListArguments {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 eval \"loss.item()\"
  probing -t 4242 eval \"optimizer.param_groups[0]['lr'] = 0.0001\"
  probing -t 4242 eval -f inspect_model.py
  echo 'print(step)' | probing -t 4242 eval -
  probing -t 4242 eval --timeout 5 \"model(batch).mean()\" --json

The code runs on a thread of its own. What it prints comes here and nowhere else; the value of a last
expression is shown like at a prompt. Ctrl-C interrupts the code, not only this command.")]
pub(crate) struct EvalArguments {
    /// Python code; `-` reads it from standard input
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub(crate) code: Option<String>,

    /// Read the code from a file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Interrupt the code after so many seconds; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// Print JSON: value, output, exception, time used
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 backtrace
  probing -t 4242 backtrace --all
  probing -t train.py backtrace --thread loader-3
  probing -t 4242 backtrace --all --json

Stacks are read from outside: nothing runs in the target, it is not stopped and need not be prepared. It
works for one that hangs, holds its GIL in C or is stopped by a signal. The innermost frame comes last, as
in Python's tracebacks; in JSON, frames begin with the innermost, depth 0.")]
pub(crate) struct BacktraceArguments {
    /// Every thread; those with the same stack are shown together
    #[arg(long)]
    pub(crate) all: bool,

    /// One thread, by its name or its id (the kernel's or Python's)
    #[arg(long, value_name = "NAME|ID", conflicts_with = "all")]
    pub(crate) thread: Option<String>,

    /// The innermost frame first
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 attach
  probing -t 4242 attach --json
  probing -t 4242 attach --force           the process is stopped, or its GIL is stuck in C

Nothing needs to be installed in the target's environment. One thread of it is stopped for a fraction of
a millisecond; if this command is killed at any moment the target goes on. See docs/permissions.md for
what the system must allow.")]
pub(crate) struct AttachArguments {
    /// Give up after so many seconds; what has not begun by then never begins
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// As a last resort run inside a blocked thread, even a stopped one. Risky: a thread that was inside
    /// malloc or held a lock may hang or crash the program
    #[arg(long)]
    pub(crate) force: bool,

    /// Print JSON: strategy, versions, pause, time
    #[arg(long)]
    pub(crate) json: bool,

    /// For tests: die by SIGKILL at this step
    #[arg(long, hide = true)]
    pub(crate) die_at_step: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing run -- python train.py --epochs 3
  probing run -- torchrun --nproc-per-node 8 train.py

Nothing needs to be installed in the program's environment. `probing` becomes the program: its pid,
exit status and signals are the program's own. Python children get the probe, too. A Python started
with -I, -E or -S ignores this.")]
pub(crate) struct RunArguments {
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
}

impl Arguments {
    /// The target, wherever it was written.
    pub(crate) fn target(&self) -> Option<Target> {
        self.first_target
            .clone()
            .or_else(|| self.named_target.clone())
    }

    /// What to do about a target without a probe.
    pub(crate) fn entry(&self) -> Entry {
        match &self.command {
            _ if self.no_attach => Entry::Forbidden,
            // There would be nothing to take out.
            Command::Detach => Entry::Forbidden,
            Command::Attach(attach) => Entry::Attach(AttachOptions {
                deadline: attach.timeout,
                force: attach.force,
                die_at_step: attach.die_at_step,
            }),
            _ => Entry::Attach(AttachOptions::default()),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|error| format!("not a number of seconds: {error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use probing_proto::process::Pid;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    fn target_of(line: &str) -> Option<Target> {
        Arguments::try_parse_from(line.split(' ')).unwrap().target()
    }

    #[test]
    fn a_target_stands_first_or_behind_t() {
        for line in [
            "probing 42 eval x",
            "probing -t 42 eval x",
            "probing eval -t 42 x",
        ] {
            assert_eq!(target_of(line), Some(Target::Local(Pid(42))), "{line}");
        }
        assert_eq!(
            target_of("probing train.py detach"),
            Some(Target::Name("train.py".into()))
        );
        assert_eq!(target_of("probing list"), None);
    }
}
