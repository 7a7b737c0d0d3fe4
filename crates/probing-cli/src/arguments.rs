//! What can be typed: the commands and who they are for. What each command takes, with its help, is in the folder.

mod agent;
mod amounts;
mod attach;
mod backtrace;
mod breakpoints;
mod capture;
mod clean;
mod collectives;
mod dap;
mod eval;
mod flamegraph;
mod list;
mod memory;
mod query;
mod run;
mod session;
mod stops;
mod torch;
mod trace;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::Styles;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use probing_client::{
    AttachOptions, Entry, Fingerprint, Keys, RankSelector, TargetSelectors, TargetSet,
};
use probing_proto::env::{
    PROBING_CA, PROBING_FINGERPRINT, PROBING_TARGET, PROBING_TLS, PROBING_TOKEN,
};

use crate::first_contact;

pub(crate) use self::agent::AgentArguments;
pub(crate) use self::attach::{AttachArguments, DetachArguments};
pub(crate) use self::backtrace::BacktraceArguments;
pub(crate) use self::breakpoints::{
    ActionArg, BreakArguments, BreakpointsArguments, CodeLocation, DeleteArguments, OutputArgs,
};
pub(crate) use self::capture::CaptureArguments;
pub(crate) use self::clean::CleanArguments;
pub(crate) use self::collectives::{CollectivesAction, CollectivesArguments};
pub(crate) use self::dap::DapArguments;
pub(crate) use self::eval::EvalArguments;
pub(crate) use self::flamegraph::{FlamegraphArguments, FlamegraphFormat};
pub(crate) use self::list::ListArguments;
pub(crate) use self::memory::{LeakArguments, MemoryArguments, Switch};
pub(crate) use self::query::{ExportArguments, QueryArguments, QueryFormat};
pub(crate) use self::run::RunArguments;
pub(crate) use self::session::{ConnectArguments, ReplArguments};
pub(crate) use self::stops::{DebugArguments, ResumeArguments, StopsArguments};
pub(crate) use self::torch::{TorchArguments, WatchNanArguments};
pub(crate) use self::trace::{
    TopArguments, TraceArguments, TraceFormat, Tracing, UntraceArguments,
};
pub(crate) use self::watch::{BytesWatch, Variable, WatchArguments, Watching};

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
    first_target: Option<TargetSelectors>,

    /// Of the targets (of all, without -t), those with these ranks in their job: 0,2-5, all, or failed
    #[arg(long, visible_alias = "rank", global = true, value_name = "RANKS")]
    ranks: Option<RankSelector>,

    /// Do not bring the probe into a process that has none; fail instead
    #[arg(long, global = true)]
    pub(crate) no_attach: bool,

    /// Require this certificate of the agent, as it printed it [env: `PROBING_FINGERPRINT`]
    #[arg(long, global = true, value_name = "SHA256")]
    fingerprint: Option<Fingerprint>,

    /// Trust and remember the certificate of an agent that was never met; else ask on a terminal, or refuse
    /// [env: `PROBING_ACCEPT_NEW`]
    #[arg(long, global = true)]
    accept_new: bool,

    /// Trust agents whose certificates those in this PEM file have signed, and no others [env: `PROBING_CA`]
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// `-t`, which may stand before the command and behind it. (As one global argument, one place would hide the other.)
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NamedTargets {
    /// A process to look at: its pid, its script's name, unix:PATH, or `all` of this user's; HOST:PORT or
    /// `ssh://USER@HOST` for those of another machine; several by commas or by several -t [env: `PROBING_TARGET`]
    #[arg(short = 't', long = "target", value_name = "TARGET")]
    targets: Vec<TargetSelectors>,
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
  probing -t 4242 debug train.py:120       stop there and look around
  probing -t train.py detach               take the probe out again
  PROBING=1 python train.py                start a program with the probe in it
  probing run -- torchrun train.py         the same, with nothing installed in its environment
  probing -t node7:8080 backtrace          on another machine, where `probing agent` runs

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
    /// Write the target as it is now into a file, to be looked at later: stacks, variables, all tables
    Capture(CaptureArguments),
    /// Sample where the target spends its time, into a flame graph
    Flamegraph(FlamegraphArguments),
    /// Arm a breakpoint: stop a thread there, or log, keep a snapshot, or count
    Break(BreakArguments),
    /// Watch a variable, an attribute, a tensor or memory: who changes it, and how
    Watch(WatchArguments),
    /// Show what is armed, and how often it was hit
    Breakpoints(BreakpointsArguments),
    /// Disarm breakpoints and watches
    Disarm(DeleteArguments),
    /// Follow functions: a row for each call and return, or sums; export them
    Trace(TraceArguments),
    /// End traces
    Untrace(UntraceArguments),
    /// Show the hottest functions, live
    Top(TopArguments),
    /// Show the threads that have stopped at breakpoints
    Stops(StopsArguments),
    /// Let stopped threads go on
    Release(ResumeArguments),
    /// Debug what has stopped, in the terminal: source, steps, the commands of pdb
    Debug(DebugArguments),
    /// Debug from an editor: serve it by the Debug Adapter Protocol
    Dap(DapArguments),
    /// Record memory over time, and where it was allocated
    Memory(MemoryArguments),
    /// Tell which rank is late, and in a hang which one never came or does something else
    Collectives(CollectivesArguments),
    /// Find what grows: the places that allocated it, and its types
    Leak(LeakArguments),
    /// Record what a training with torch does: modules, backward passes, steps, statistics of tensors
    Torch(TorchArguments),
    /// Find the first value of a training that is not finite, and what it came from
    WatchNan(WatchNanArguments),
    /// Bring the probe into a running process (other commands do it by themselves)
    Attach(AttachArguments),
    /// Take the probe out of the target again: its thread ends, its files are removed
    Detach(DetachArguments),
    /// Start a program with the probe in it and in its children
    Run(RunArguments),
    /// Serve the targets of this machine to others: one port, a token, TLS
    Agent(AgentArguments),
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

impl Command {
    /// Whether it looks at processes.
    pub(crate) fn is_for_targets(&self) -> bool {
        !matches!(
            self,
            Self::Agent(_)
                | Self::Dap(_)
                | Self::Run(_)
                | Self::Clean(_)
                | Self::Completions { .. }
        )
    }

    /// What stands behind `-t` after the command's name.
    fn named_targets(&self) -> &[TargetSelectors] {
        match self {
            Self::Eval(EvalArguments { named, .. })
            | Self::Backtrace(BacktraceArguments { named, .. })
            | Self::Query(QueryArguments { named, .. })
            | Self::Export(ExportArguments { named, .. })
            | Self::Capture(CaptureArguments { named, .. })
            | Self::Flamegraph(FlamegraphArguments { named, .. })
            | Self::Attach(AttachArguments { named, .. })
            | Self::List(ListArguments { named, .. })
            | Self::Break(BreakArguments { named, .. })
            | Self::Watch(WatchArguments { named, .. })
            | Self::Breakpoints(BreakpointsArguments { named, .. })
            | Self::Disarm(DeleteArguments { named, .. })
            | Self::Trace(TraceArguments { named, .. })
            | Self::Untrace(UntraceArguments { named, .. })
            | Self::Top(TopArguments { named, .. })
            | Self::Stops(StopsArguments { named, .. })
            | Self::Release(ResumeArguments { named, .. })
            | Self::Debug(DebugArguments { named, .. })
            | Self::Memory(MemoryArguments { named, .. })
            | Self::Leak(LeakArguments { named, .. })
            | Self::Torch(TorchArguments { named, .. })
            | Self::WatchNan(WatchNanArguments { named, .. })
            | Self::Collectives(CollectivesArguments { named, .. })
            | Self::Repl(ReplArguments { named })
            | Self::Detach(DetachArguments { named })
            | Self::Connect(ConnectArguments { named }) => &named.targets,
            Self::Agent(_)
            | Self::Dap(_)
            | Self::Run(_)
            | Self::Clean(_)
            | Self::Completions { .. } => &[],
        }
    }
}

impl Arguments {
    /// The targets, wherever they were written. `variable` is `PROBING_TARGET`, which counts when nothing else does. A list is
    /// of all: there the variable only says on which machines.
    pub(crate) fn targets(&self, variable: Option<OsString>) -> Result<TargetSet, clap::Error> {
        let targets = self.chosen_targets(variable)?;
        let is_list = matches!(self.command, Command::List(_));
        if is_list && targets.nodes().is_empty() {
            return self.chosen_targets(None);
        }
        Ok(targets)
    }

    fn chosen_targets(&self, variable: Option<OsString>) -> Result<TargetSet, clap::Error> {
        let mut choices: Vec<TargetSelectors> = self.first_target.clone().into_iter().collect();
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
        Ok(TargetSet::new(choices, self.ranks.clone()).with_keys(&self.keys()?))
    }

    /// What opens the agents among the targets.
    pub(crate) fn keys(&self) -> Result<Keys, clap::Error> {
        let token = PROBING_TOKEN.value();
        Ok(Keys {
            token: token.map(|token| token.to_string_lossy().trim().to_owned()),
            fingerprint: self.named_fingerprint()?,
            ca: self.ca.clone().or_else(|| Some(PROBING_CA.value()?.into())),
            first_contact: first_contact::policy(self.accept_new),
            on_note: Some(first_contact::say),
            plain: PROBING_TLS.value().is_some_and(|tls| tls == "off"),
        })
    }

    fn named_fingerprint(&self) -> Result<Option<Fingerprint>, clap::Error> {
        // An authority that was named by an argument counts more than a variable.
        let variable = PROBING_FINGERPRINT.value();
        let variable = variable.filter(|_| self.fingerprint.is_none() && self.ca.is_none());
        let Some(variable) = variable else {
            return Ok(self.fingerprint);
        };
        let parsed = variable.to_string_lossy().parse().map_err(|error| {
            let name = PROBING_FINGERPRINT.name;
            Self::command().error(
                ErrorKind::ValueValidation,
                format!("invalid {name}: {error}"),
            )
        })?;
        Ok(Some(parsed))
    }

    /// What to do about a target without a probe.
    pub(crate) fn entry(&self) -> Entry {
        match &self.command {
            _ if self.no_attach => Entry::Forbidden,
            // There would be nothing to take out, nothing armed and nothing stopped.
            Command::Trace(trace) if !trace.begins() => Entry::Forbidden,
            Command::Detach(_)
            | Command::Untrace(_)
            | Command::Breakpoints(_)
            | Command::Disarm(_)
            | Command::Stops(_)
            | Command::Release(_) => Entry::Forbidden,
            Command::Torch(torch) if !torch.needs_probe() => Entry::Forbidden,
            Command::Attach(attach) => Entry::Attach(AttachOptions {
                deadline: attach.timeout,
                force: attach.force,
                die_at_step: attach.die_at_step,
                sleep_at_step: None,
            }),
            _ => Entry::Attach(AttachOptions::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    /// One word for one idea: how long something lasts is `--for`; how far apart two times are is `--every`.
    #[test]
    fn a_duration_is_for_and_an_interval_is_every() {
        let commands = Arguments::command();
        let with = |flag: &str| {
            let has = |command: &&clap::Command| {
                command
                    .get_arguments()
                    .any(|argument| argument.get_long() == Some(flag))
            };
            let with = commands.get_subcommands().filter(has);
            let mut names: Vec<&str> = with.map(clap::Command::get_name).collect();
            names.sort_unstable();
            names
        };
        for old in ["seconds", "ttl", "duration", "interval"] {
            assert_eq!(with(old), [""; 0], "{old}");
        }
        assert_eq!(with("every"), ["backtrace", "query", "top"]);
        let lasting = [
            "break",
            "debug",
            "flamegraph",
            "leak",
            "top",
            "trace",
            "watch",
            "watch-nan",
        ];
        assert_eq!(with("for"), lasting);
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
        // Which processes there are does not depend on it.
        check("probing list", set(&[], None));
        check("probing -t 42 list", set(&["42"], None));
        check("probing --ranks 1 list", set(&[], Some("1")));
        let elsewhere = targets("probing list", "node7:8080").unwrap();
        assert_eq!(elsewhere.nodes().len(), 1);
        let refused = targets("probing eval x", "unix:").unwrap_err().to_string();
        assert!(
            refused.contains("invalid PROBING_TARGET: unix: needs the path"),
            "{refused}"
        );
    }
}
