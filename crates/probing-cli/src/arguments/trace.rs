//! Arguments of `probing trace`, `untrace` and `top`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use probing_proto::message::threads::ThreadSelector;
use probing_proto::message::trace::{MILLION, Scope, Trace, TraceId};

use crate::arguments::NamedTargets;
use crate::arguments::amounts::{seconds, some_seconds};
use crate::arguments::breakpoints::{IdSelector, is_dotted};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 trace train.py:train_step            record in python.trace_event
  probing -t 4242 trace train_step --depth 2 --for 10s also record two levels of callees
  probing -t 4242 trace Trainer.fit --watch lr         record changes of lr in python.variables
  probing -t 4242 trace train_step --lines             also record each line with its duration
  probing -t 4242 trace --module mypkg --stats         record sums only, in python.trace_stats
  probing -t 4242 trace --list                         list traces and their cost
  probing -t 4242 trace --export perfetto -o run.pftrace   export rows for ui.perfetto.dev
  probing -t 4242 untrace all

A trace costs at most 1 % of the process's CPU time (--budget): a function that is called too often
is throttled, that is, recorded for a part of the time; `trace --list` and python.probe_budget show
that. A trace ends after ten minutes (--for).")]
pub(crate) struct TraceArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    #[command(flatten)]
    what: TraceSubject,

    /// Also record N levels of callees
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = ["list", "export"])]
    depth: u32,

    /// Record changes of this local variable; repeatable
    #[arg(long, value_name = "NAME", conflicts_with_all = ["list", "export", "module"])]
    watch: Vec<String>,

    /// Record sums for each function, no row for each call
    #[arg(long, conflicts_with_all = ["list", "export"])]
    stats: bool,

    /// Also record each line of the function with its duration
    #[arg(long, conflicts_with_all = ["list", "export", "stats"])]
    lines: bool,

    /// End the trace after TIME (0 = no limit) [default: 10m]
    #[arg(long = "for", value_name = "TIME", value_parser = seconds, conflicts_with_all = ["list", "export"])]
    for_time: Option<Duration>,

    /// End after N training steps, or N calls if none are counted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["list", "export"])]
    steps: Option<u64>,

    /// Throttle above this share of CPU time
    #[arg(long, value_name = "PERCENT|none", default_value = "1%")]
    budget: Budget,

    /// Write the export to FILE
    #[arg(short, long, value_name = "FILE", requires = "export")]
    pub(crate) output: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// One of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct TraceSubject {
    /// Trace FUNCTION, `FILE:FUNCTION` or `MODULE:FUNCTION`
    #[arg(value_name = "FUNCTION")]
    function: Option<FunctionName>,

    /// Trace all functions of a module and of its submodules
    #[arg(long, value_name = "MODULE")]
    module: Option<String>,

    /// List traces and their cost
    #[arg(long)]
    list: bool,

    /// Export rows
    #[arg(long, value_name = "FORMAT", requires = "output")]
    export: Option<TraceFormat>,
}

/// The file format of an exported trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceFormat {
    // The native format of <https://ui.perfetto.dev>.
    Perfetto,
    // JSON for Chrome and other viewers.
    Chrome,
    // For <https://www.speedscope.app>.
    Speedscope,
}

/// The action of `probing trace`.
#[derive(Debug)]
pub(crate) enum Tracing {
    Begin(Trace),
    List,
    Export(TraceFormat),
}

impl TraceArguments {
    pub(crate) fn wanted(&self) -> Tracing {
        let scope = match &self.what {
            TraceSubject {
                export: Some(format),
                ..
            } => return Tracing::Export(*format),
            TraceSubject {
                module: Some(module),
                ..
            } => Scope::Module {
                module: module.clone(),
            },
            TraceSubject {
                function: Some(place),
                ..
            } => Scope::Function {
                function: place.function.clone(),
                file: place.file.clone(),
            },
            _ => return Tracing::List,
        };
        Tracing::Begin(Trace {
            scope,
            depth: self.depth,
            watch: self.watch.clone(),
            stats: self.stats,
            lines: self.lines,
            for_millis: self
                .for_time
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            steps: self.steps,
            budget_ppm: self.budget.0,
        })
    }

    /// Whether the engine is needed for it.
    pub(crate) fn is_export(&self) -> bool {
        self.what.export.is_some()
    }

    /// Whether it needs a probe that is not there yet.
    pub(crate) fn begins(&self) -> bool {
        matches!(self.wanted(), Tracing::Begin(_))
    }
}

/// `train.py:train_step`, `train_step`
#[derive(Debug, Clone, PartialEq, Eq)]
struct FunctionName {
    file: Option<String>,
    function: String,
}

impl FromStr for FunctionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (file, function) = match text.rsplit_once(':') {
            Some((file, function)) => (Some(file), function),
            None => (None, text),
        };
        let has_file = file.is_none_or(|file| !file.is_empty());
        if !has_file || !is_dotted(function) {
            return Err(format!("not NAME and not FILE:NAME: {text}"));
        }
        Ok(Self {
            file: file.map(str::to_owned),
            function: function.to_owned(),
        })
    }
}

/// A share of CPU time, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Budget(Option<u32>);

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self(None));
        }
        let digits = text.strip_suffix('%').unwrap_or(text);
        let percent: Option<f64> = digits.trim().parse().ok();
        match percent.filter(|percent| (0.001..=100.0).contains(percent)) {
            Some(percent) => Ok(Self(Some((percent / 100.0 * f64::from(MILLION)) as u32))),
            None => Err(format!("not a percentage (1%, 0.5%) and not none: {text}")),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 untrace 1
  probing -t 4242 untrace all
  probing --ranks all untrace all")]
pub(crate) struct UntraceArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// End these, by their numbers in `probing trace --list`
    #[arg(value_name = "ID|all", required = true)]
    which: Vec<IdSelector>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl UntraceArguments {
    /// None: all.
    pub(crate) fn traces(&self) -> Vec<TraceId> {
        let numbers = IdSelector::numbers(&self.which);
        numbers.into_iter().map(TraceId).collect()
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 top                     update every two seconds until Ctrl-C
  probing -t 4242 trace --module mypkg --stats; probing -t 4242 top    show exact counts
  probing -t 4242 top --once --json | jq '.functions[0]'

With a trace, the numbers are the exact counts of python.trace_stats. Without one, the stacks of the
process are sampled from outside; the heading says which.")]
pub(crate) struct TopArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Show one table and exit
    #[arg(long)]
    pub(crate) once: bool,

    /// With --once: count or sample for TIME
    #[arg(long = "for", value_name = "TIME", default_value = "2s", value_parser = some_seconds, requires = "once")]
    duration: Duration,

    /// Update the table every TIME
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = some_seconds, conflicts_with = "once")]
    every: Duration,

    /// Sample one thread: `main`, its name or an id; traces are ignored
    #[arg(long, value_name = "main|NAME|ID")]
    pub(crate) thread: Option<ThreadSelector>,

    /// Show N functions
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub(crate) functions: usize,

    /// Print JSON
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
}

impl TopArguments {
    /// The time that one table covers.
    pub(crate) fn span(&self) -> Duration {
        if self.once { self.duration } else { self.every }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_may_be_one_of_a_file() {
        let check = |text: &str, file: Option<&str>, function: &str| {
            let expected = FunctionName {
                file: file.map(str::to_owned),
                function: function.to_owned(),
            };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        };
        check("train_step", None, "train_step");
        check("train.py:Trainer.fit", Some("train.py"), "Trainer.fit");
        check("./a:b.py:f", Some("./a:b.py"), "f");
        for wrong in ["", ":f", "train.py:", "train.py:12", "a b"] {
            assert!(wrong.parse::<FunctionName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_budget_is_a_share_of_cpu_time_or_none() {
        assert_eq!("1%".parse(), Ok(Budget(Some(10_000))));
        assert_eq!("0.5".parse(), Ok(Budget(Some(5_000))));
        assert_eq!("none".parse(), Ok(Budget(None)));
        for wrong in ["", "0%", "-1%", "101%", "much"] {
            assert!(wrong.parse::<Budget>().is_err(), "{wrong}");
        }
    }
}
