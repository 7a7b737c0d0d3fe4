//! What can be typed: the arguments of every command, with their help.

mod clean;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Styles;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use probing_client::{AttachOptions, Choices, Entry, Ranks, TargetSet};
use probing_proto::env::PROBING_TARGET;
use probing_proto::lines::AskedStacks;

pub(crate) use clean::CleanArguments;

const STYLES: Styles = Styles::styled()
    .header(anstyle::Style::new().bold())
    .usage(anstyle::Style::new().bold())
    .literal(anstyle::AnsiColor::Cyan.on_default());

/// Look into Python processes that are already running.
#[derive(Debug, Parser)]
#[command(name = "probing", version, styles = STYLES, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    named: NamedTargets,

    /// The same, as the first word: `probing 4242 eval "…"`
    #[arg(value_name = "TARGET")]
    first_target: Option<Choices>,

    /// Of the targets (of all, without -t), those with these ranks in their job: 0,2-5
    #[arg(long, global = true, value_name = "RANKS")]
    ranks: Option<Ranks>,

    /// Do not bring the probe into a process that has none; fail instead
    #[arg(long, global = true)]
    pub(crate) no_attach: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// `-t`, which may stand before the command and behind it. (As one global argument, one place would hide the other.)
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NamedTargets {
    /// A process to look at: its pid, its script's name, unix:PATH, or `all` of this user's; several
    /// by commas or by several -t [env: `PROBING_TARGET`]
    #[arg(short = 't', long = "target", value_name = "TARGET")]
    targets: Vec<Choices>,
}

const EXAMPLES: &str = "\
Examples:
  probing list                             what can be looked at
  probing -t 4242 backtrace --all          where every thread is
  probing -t 4242 flamegraph -o out.svg    where it spends its time
  probing -t 4242 query \"SHOW TABLES\"      ask by SQL: docs/tables.md
  probing --ranks 0-7 backtrace            where all ranks of a job are, the odd one out marked
  probing -t 4242 eval \"loss\"              run code in a live process, prepared or not
  probing 4242 eval \"model.training\"       the target may come first
  probing -t 4242 repl                     a prompt in it
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
    /// Open a prompt in the target: completion, history, `%bt`, `?name`
    Repl(ReplArguments),
    /// Show where the target is: the stack of its main thread, or of every thread
    Backtrace(BacktraceArguments),
    /// Ask by SQL: stacks, threads, processes, recorded rows, of one target or of all
    Query(QueryArguments),
    /// Write what the targets have recorded into files
    Export(ExportArguments),
    /// Sample where the target spends its time, into a flame graph
    Flamegraph(FlamegraphArguments),
    /// Bring the probe into a running process (other commands do it by themselves)
    Attach(AttachArguments),
    /// Take the probe out of the target again: its thread ends, its files are removed
    Detach(DetachArguments),
    /// Start a program with the probe in it and in its children
    Run(RunArguments),
    /// Serve a program: requests and answers as lines of JSON
    Connect(ConnectArguments),
    /// Remove the rows that ended processes have recorded
    Clean(CleanArguments),
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
  probing list --dead                      who has ended, and left recorded rows

PROBE is one of: running; none (`probing attach`, or any command, brings it in); silent (it did not
answer in time); left (the process became another program); forbidden (another user's process).
(heap only): there was no room in shared memory, so that rows which the program records end with it and
cannot be queried; --json says why.")]
pub(crate) struct ListArguments {
    /// Show processes that have ended and whose recorded rows are still there
    #[arg(long)]
    pub(crate) dead: bool,

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
  probing --ranks 0-7 eval \"loss.item()\"    on each; equal results are shown together
  probing -t all eval --all \"step\"
  probing -t 4242 eval \"await queue.join()\"
  probing -t 4242 eval --thread main \"torch.cuda.synchronize()\"
  probing -t 4242 eval --frame 0 \"batch.shape, step\"

The code runs on a thread of its own. What it prints comes here and nowhere else (but not what C code
and child processes write by themselves); the value of a last expression is shown like at a prompt and
is `_` for the next eval. Top-level `await` runs on the program's event loop, if one runs. Standard
input stays the program's. Ctrl-C interrupts the code, not only this command.")]
pub(crate) struct EvalArguments {
    #[command(flatten)]
    named: NamedTargets,

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
    pub(crate) thread: Option<String>,

    /// Run it with the locals of this frame of the main thread (or of --thread): 0 is the innermost, as
    /// in `backtrace`. Needs nothing of that thread, which may be stuck
    #[arg(long, value_name = "N")]
    pub(crate) frame: Option<u32>,

    /// Show at most so many bytes of output, and say how many more there were; K and M are understood
    #[arg(long, value_name = "BYTES", default_value = "10M", value_parser = bytes)]
    pub(crate) max_output: u64,

    /// Print JSON: value, output, exception, time used
    #[arg(long)]
    pub(crate) json: bool,
}

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
Code whose file (or its file of symbols in /usr/lib/debug) has debug information is shown with its line.")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag that people type"
)]
pub(crate) struct BacktraceArguments {
    #[command(flatten)]
    named: NamedTargets,

    /// Every thread; those with the same stack are shown together
    #[arg(long)]
    pub(crate) all: bool,

    /// One thread, by its name or its id (the kernel's or Python's)
    #[arg(long, value_name = "NAME|ID", conflicts_with = "all")]
    pub(crate) thread: Option<String>,

    /// The asyncio tasks that are not done, instead of threads: what each waits for and where. Tasks that others wait
    /// for are shown below them, those that are alike together, and deadlocks are named
    #[arg(long, conflicts_with_all = ["all", "thread", "watch", "dump", "native"])]
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

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 query \"SELECT func, file, lineno, depth FROM python.backtrace WHERE depth < 5\"
  probing -t 4242 query                    a prompt: Tab completes tables and columns, \\d lists them
  probing -t all query \"SELECT pid, name, state FROM python.threads WHERE holds_gil\"
  probing --ranks 0-7 query \"SELECT func, count(*) FROM python.backtrace WHERE depth = 0 GROUP BY func\"
  probing -t 4242 query --every 2s \"SELECT name, duration(user_nanos) FROM process.threads\"
  probing -t 4242 query --csv \"SELECT * FROM process.info\" > info.csv
  echo 'SHOW TABLES; DESCRIBE python.backtrace;' | probing -t 4242 query

Queries only read, from outside: nothing runs in a target, and it may hang, be stopped or hold its GIL. A
target that cannot be read is missing among the rows and named on stderr. docs/tables.md has all tables.")]
pub(crate) struct QueryArguments {
    #[command(flatten)]
    named: NamedTargets,

    /// One statement; without it a prompt opens, or statements are read from standard input
    pub(crate) sql: Option<String>,

    #[command(flatten)]
    pub(crate) format: QueryFormat,

    /// Ask again and again, so long apart: 2s, 500ms, 1m; on a terminal in place; ends with Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = some_seconds, requires = "sql", conflicts_with = "parquet")]
    pub(crate) every: Option<Duration>,
}

/// How rows are written; a table without any of these.
#[derive(Debug, Clone, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct QueryFormat {
    /// Print JSON: an array with an object for each row
    #[arg(long, group = "format")]
    pub(crate) json: bool,

    /// Print CSV with a heading
    #[arg(long, group = "format")]
    pub(crate) csv: bool,

    /// Print an Arrow IPC stream
    #[arg(long, group = "format")]
    pub(crate) arrow: bool,

    /// Write a Parquet file
    #[arg(long, value_name = "FILE", group = "format")]
    pub(crate) parquet: Option<PathBuf>,

    /// Do not cut a table to the width of the terminal
    #[arg(long, group = "format")]
    pub(crate) wide: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 export --parquet run-7
  probing --ranks 0-7 export --parquet run-7   rows of all ranks together, told apart by pid, rank and host

Rows that a process has recorded stay readable for a while when it has ended; what shall stay for good is
exported. One file for each table, oldest rows first.")]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    named: NamedTargets,

    /// The folder for the Parquet files; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) parquet: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 flamegraph
  probing -t 4242 flamegraph -o out.svg --seconds 30 --rate 200
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
    named: NamedTargets,

    /// The file to write, `-` for standard output; flamegraph-PID.svg (of several: flamegraph-8-targets.svg) if not given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Sample for so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) seconds: Duration,

    /// Sample so many times a second
    #[arg(long, value_name = "HERTZ", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rate: u32,

    /// What to write; if not given, what the file's name ends with: .svg, .json (speedscope), .folded
    #[arg(long, value_enum)]
    pub(crate) format: Option<FlamegraphFormat>,

    /// Only one thread, by its name or its id (the kernel's or Python's)
    #[arg(long, value_name = "NAME|ID")]
    pub(crate) thread: Option<String>,

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

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 attach
  probing -t 4242 attach --json
  probing --ranks 0-7 attach               into all of them at the same time
  probing -t 4242 attach --force           the process is stopped, or its GIL is stuck in C

Nothing needs to be installed in the target's environment. One thread of it is stopped for a fraction of
a millisecond; if this command is killed at any moment the target goes on. See docs/permissions.md for
what the system must allow.")]
pub(crate) struct AttachArguments {
    #[command(flatten)]
    named: NamedTargets,

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
  probing -t 4242 detach
  probing -t all detach                    out of every process of this user that has it")]
pub(crate) struct DetachArguments {
    #[command(flatten)]
    named: NamedTargets,
}

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
    named: NamedTargets,
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

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  echo '{\"id\": 1, \"op\": \"eval\", \"code\": \"1 + 1\"}' | probing -t 4242 connect

For programs that look into others: requests come on standard input, answers go to standard output, many
may be in flight. It ends with its input, which interrupts what still runs, and with the target.
docs/protocol.md shows the lines. In Python, `probing.connect(4242)` speaks them for you.")]
pub(crate) struct ConnectArguments {
    #[command(flatten)]
    named: NamedTargets,
}

impl From<AskedStacks> for BacktraceArguments {
    fn from(asked: AskedStacks) -> Self {
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

impl Command {
    /// What stands behind `-t` after the command's name.
    fn named_targets(&self) -> &[Choices] {
        match self {
            Self::Eval(EvalArguments { named, .. })
            | Self::Backtrace(BacktraceArguments { named, .. })
            | Self::Query(QueryArguments { named, .. })
            | Self::Export(ExportArguments { named, .. })
            | Self::Flamegraph(FlamegraphArguments { named, .. })
            | Self::Attach(AttachArguments { named, .. })
            | Self::Repl(ReplArguments { named })
            | Self::Detach(DetachArguments { named })
            | Self::Connect(ConnectArguments { named }) => &named.targets,
            Self::List(_) | Self::Run(_) | Self::Clean(_) | Self::Completions { .. } => &[],
        }
    }
}

impl Arguments {
    /// The targets, wherever they were written. `variable` is `PROBING_TARGET`, which counts when nothing else does.
    pub(crate) fn targets(&self, variable: Option<OsString>) -> Result<TargetSet, clap::Error> {
        let mut choices: Vec<Choices> = self.first_target.clone().into_iter().collect();
        choices.extend(self.named.targets.iter().cloned());
        choices.extend(self.command.named_targets().iter().cloned());
        if let Some(variable) = variable.filter(|_| choices.is_empty()) {
            let named = variable.to_string_lossy().parse().map_err(|error| {
                let name = PROBING_TARGET.name;
                Self::command().error(
                    ErrorKind::ValueValidation,
                    format!("invalid {name}: {error}"),
                )
            })?;
            choices.push(named);
        }
        Ok(TargetSet::new(choices, self.ranks.clone()))
    }

    /// What to do about a target without a probe.
    pub(crate) fn entry(&self) -> Entry {
        match &self.command {
            _ if self.no_attach => Entry::Forbidden,
            // There would be nothing to take out.
            Command::Detach(_) => Entry::Forbidden,
            Command::Attach(attach) => Entry::Attach(AttachOptions {
                deadline: attach.timeout,
                force: attach.force,
                die_at_step: attach.die_at_step,
            }),
            _ => Entry::Attach(AttachOptions::default()),
        }
    }
}

fn some_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("must be more than nothing".to_owned()),
        some => Ok(some),
    }
}

/// `2`, `2s`, `500ms`, `1.5m`, `1h`
fn seconds(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (digits, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .unwrap_or((text, 1.0));
    let number: f64 = digits
        .parse()
        .map_err(|error| format!("not a number of seconds: {error}"))?;
    Duration::try_from_secs_f64(number * unit).map_err(|error| error.to_string())
}

/// `500`, `64K`, `10M`
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let number: u64 = digits
        .parse()
        .map_err(|error| format!("not a number of bytes: {error}"))?;
    number
        .checked_mul(unit)
        .ok_or_else(|| "not so many".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_bytes_may_have_a_unit() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("64k"), Ok(64 << 10));
        assert_eq!(bytes("10M"), Ok(10 << 20));
        for wrong in [
            "",
            "M",
            "-1",
            "1.5M",
            "10T",
            "99999999999999999999",
            "99999999999999999M",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_may_have_a_unit() {
        let check =
            |text: &str, millis| assert_eq!(seconds(text), Ok(Duration::from_millis(millis)));
        check("2", 2000);
        check("2s", 2000);
        check("500ms", 500);
        check("1.5m", 90_000);
        check("1h", 3_600_000);
        for wrong in ["", "s", "-1s", "2d", "1 s s", "nan", "inf"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    fn targets(line: &str, variable: &str) -> Result<TargetSet, clap::Error> {
        let variable = Some(OsString::from(variable)).filter(|variable| !variable.is_empty());
        Arguments::try_parse_from(line.split(' '))?.targets(variable)
    }

    fn set(names: &[&str], ranks: Option<&str>) -> TargetSet {
        let names = names.iter().map(|name| name.parse().unwrap());
        TargetSet::new(names, ranks.map(|ranks| ranks.parse().unwrap()))
    }

    #[test]
    fn targets_stand_first_or_behind_t() {
        let check = |line: &str, expected: TargetSet| {
            assert_eq!(targets(line, "").unwrap(), expected, "{line}");
        };
        for line in [
            "probing 42 eval x",
            "probing -t 42 eval x",
            "probing eval -t 42 x",
        ] {
            check(line, set(&["42"], None));
        }
        check("probing train.py detach", set(&["train.py"], None));
        check("probing list", set(&[], None));
        for line in [
            "probing -t 42 -t 43 backtrace",
            "probing -t 42,43 backtrace",
            "probing 42,43 backtrace",
            "probing 42 -t 43 backtrace",
            "probing 42 backtrace -t 43",
            "probing backtrace -t 42 -t 43",
            "probing -t 42 backtrace -t 43",
        ] {
            check(line, set(&["42", "43"], None));
        }
        check("probing --ranks 0,2-5 backtrace", set(&[], Some("0,2-5")));
        check(
            "probing -t all backtrace --ranks 7",
            set(&["all"], Some("7")),
        );
    }

    #[test]
    fn the_variable_counts_when_nothing_else_names_a_target() {
        let check = |line: &str, expected: TargetSet| {
            assert_eq!(targets(line, "7,8").unwrap(), expected, "{line}");
        };
        check("probing eval x", set(&["7", "8"], None));
        check("probing --ranks 1 eval x", set(&["7", "8"], Some("1")));
        check("probing -t 42 eval x", set(&["42"], None));
        check("probing 42 eval x", set(&["42"], None));
        let refused = targets("probing eval x", "unix:").unwrap_err().to_string();
        assert!(
            refused.contains("invalid PROBING_TARGET: unix: needs the path"),
            "{refused}"
        );
    }
}
