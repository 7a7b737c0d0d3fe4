//! The commands of `probing` and the selection of their targets.
//!
//! The folder has the arguments of each command.

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
mod groups;
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
pub(crate) use self::groups::parse;
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

/// Debug Python processes that are already running
#[derive(Debug, Parser)]
#[command(name = "probing", version, styles = STYLES, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    named: NamedTargets,

    /// Select a target, as -t does: `probing 4242 eval "…"`
    #[arg(value_name = "TARGET")]
    first_target: Option<TargetSelectors>,

    /// Select ranks of a job: 0,2-5, all, failed
    #[arg(
        long,
        visible_alias = "rank",
        global = true,
        value_name = "RANKS",
        help_heading = TARGET_OPTIONS
    )]
    ranks: Option<RankSelector>,

    /// Fail if the target has no probe, instead of attaching it
    #[arg(long, global = true, help_heading = TARGET_OPTIONS)]
    pub(crate) no_attach: bool,

    #[arg(
        long,
        global = true,
        value_name = "SHA256",
        help_heading = REMOTE_OPTIONS,
        help = "Require this certificate of the agent [env: PROBING_FINGERPRINT]"
    )]
    fingerprint: Option<Fingerprint>,

    #[arg(
        long,
        global = true,
        help_heading = REMOTE_OPTIONS,
        help = "Trust and remember a certificate that is new [env: PROBING_ACCEPT_NEW]"
    )]
    accept_new: bool,

    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = REMOTE_OPTIONS,
        help = "Trust only certificates that this PEM file signs [env: PROBING_CA]"
    )]
    ca: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that select targets.
const TARGET_OPTIONS: &str = "Target options";

/// Options for targets on other machines. They stand last.
const REMOTE_OPTIONS: &str = "Remote options";

/// `-t`, which may stand before the command and after it. (As one global argument, one place would hide the other.)
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NamedTargets {
    #[arg(
        short = 't',
        long = "target",
        value_name = "TARGET",
        help_heading = TARGET_OPTIONS,
        help = "Select a process or a machine; repeatable [env: PROBING_TARGET]"
    )]
    targets: Vec<TargetSelectors>,
}

const EXAMPLES: &str = "\
Targets:
  -t 4242                a process by its pid
  -t train.py            a process by its script
  -t all                 all Python processes of this user
  -t unix:/path          a socket
  -t hang.probe          a capture
  -t node7:8080          the processes of another machine, on which `probing agent` runs
  -t ssh://me@node7      the processes of another machine, through ssh
  -t 4242,4243           several; -t can also be repeated
  --ranks 0,2-5          ranks of a job

Examples:
  probing list                             show the Python processes
  probing -t 4242 backtrace --all          show where every thread is
  probing -t 4242 eval \"loss\"              run code in a live process
  probing 4242 eval \"model.training\"       the target may come first
  probing -t 4242 debug train.py:120       stop at a line and step from there
  probing -t 4242 query \"SHOW TABLES\"      ask by SQL (docs/tables.md)
  probing --ranks 0-7 backtrace            merge the stacks of all ranks, mark the odd one out
  probing -t train.py detach               remove the probe
  PROBING=1 python train.py                start a program with the probe
  probing run -- torchrun train.py         start it with nothing installed in its environment

Exit status: 0 done, 1 the code raised or the command failed, 2 syntax error or wrong arguments,
3 target not reached, 124 timed out, 130 interrupted.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List Python processes, their ranks and probes
    List(ListArguments),
    /// Run code in the target's live `__main__` namespace
    Eval(EvalArguments),
    /// Open a Python prompt in the target
    Repl(ReplArguments),
    /// Show the stacks of threads or asyncio tasks
    Backtrace(BacktraceArguments),
    /// Query stacks, processes and recorded rows by SQL
    Query(QueryArguments),
    /// Write recorded rows to Parquet files
    Export(ExportArguments),
    /// Write stacks, variables and all tables to a file
    Capture(CaptureArguments),
    /// Sample stacks into a flame graph
    Flamegraph(FlamegraphArguments),
    /// Set a breakpoint that stops, logs, snapshots or counts
    Break(BreakArguments),
    /// Set a watchpoint on a variable, attribute, tensor or memory
    Watch(WatchArguments),
    /// List breakpoints and watchpoints with their hits
    Breakpoints(BreakpointsArguments),
    /// Delete breakpoints and watchpoints
    #[command(visible_alias = "disarm")]
    Delete(DeleteArguments),
    /// Record calls, returns and lines of functions
    Trace(TraceArguments),
    /// End traces of functions
    Untrace(UntraceArguments),
    /// Show the hottest functions, live
    Top(TopArguments),
    /// List threads that are stopped at breakpoints
    Stops(StopsArguments),
    /// Resume stopped threads
    #[command(visible_alias = "release")]
    Resume(ResumeArguments),
    /// Debug stopped threads with the commands of pdb
    Debug(DebugArguments),
    /// Serve an editor by the Debug Adapter Protocol
    Dap(DapArguments),
    /// Record memory use and where it was allocated
    Memory(MemoryArguments),
    /// Name the rank that a collective waits for
    Collectives(CollectivesArguments),
    /// Find the lines and types whose memory grows
    Leak(LeakArguments),
    /// Record modules, steps and tensors of a torch training
    Torch(TorchArguments),
    /// Find the first NaN or Inf of a torch training
    WatchNan(WatchNanArguments),
    /// Attach the probe (other commands do so when needed)
    Attach(AttachArguments),
    /// Remove the probe with its thread, files and sockets
    Detach(DetachArguments),
    /// Start a program with the probe in it and its children
    Run(RunArguments),
    /// Serve the targets of this machine to other machines
    Agent(AgentArguments),
    /// Serve another program by lines of JSON
    Connect(ConnectArguments),
    /// Remove rows that ended processes have recorded
    Clean(CleanArguments),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  probing completions bash > ~/.local/share/bash-completion/completions/probing"
    )]
    Completions {
        /// Name the shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Whether the command has targets.
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

    /// The targets of each `-t` after the command's name.
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
            | Self::Delete(DeleteArguments { named, .. })
            | Self::Trace(TraceArguments { named, .. })
            | Self::Untrace(UntraceArguments { named, .. })
            | Self::Top(TopArguments { named, .. })
            | Self::Stops(StopsArguments { named, .. })
            | Self::Resume(ResumeArguments { named, .. })
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
    /// The targets, wherever they were written. `variable` is `PROBING_TARGET`, the default. `list` shows all processes: there
    /// the variable only names machines.
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

    /// Token and certificates for the agents among the targets.
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
        // An authority that an argument names has precedence over the variable.
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

    /// How to treat a target without a probe.
    pub(crate) fn entry(&self) -> Entry {
        match &self.command {
            _ if self.no_attach => Entry::Forbidden,
            // Without a probe there is nothing to remove, delete or resume.
            Command::Trace(trace) if !trace.begins() => Entry::Forbidden,
            Command::Detach(_)
            | Command::Untrace(_)
            | Command::Breakpoints(_)
            | Command::Delete(_)
            | Command::Stops(_)
            | Command::Resume(_) => Entry::Forbidden,
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
    fn targets_stand_first_or_after_t() {
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
