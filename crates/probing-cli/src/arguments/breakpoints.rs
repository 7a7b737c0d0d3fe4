//! Arguments of `probing break`, `breakpoints` and `delete`, and the options that `watch` and `debug` share.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use probing_proto::message::breakpoints::{
    Action, BreakpointId, BreakpointLocation, DisconnectPolicy, SetBreakpoint, StopPolicy,
};

use crate::arguments::NamedTargets;
use crate::arguments::amounts::{seconds, some_seconds};

/// Headings of the options that breakpoints and watchpoints share.
const CONDITIONS: &str = "Conditions";
const STOPS: &str = "Stops";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 break train.py:120                          stop the next thread there
  probing -t 4242 break train_step --if 'loss > 10' --once
  probing -t 4242 break train.py:120 --action log:'{step} {loss}' --follow
  probing -t 4242 break pkg.module.Class.method --action snapshot --hits 100
  probing -t 4242 break --raise ValueError
  probing -t 4242 break --uncaught                            stop at an uncaught exception
  probing --ranks 0-7 break train_step --action count
  probing -t 4242 debug                                       debug the stopped thread

A thread that stops waits for `probing debug`; the other threads run. The thread resumes by itself
when no client connects, when its controlling client is idle, or after the total time
(--stop-timeout, three times or one for all). --on-disconnect says what happens when the controlling
client disconnects. A breakpoint that stops is deleted after ten minutes (--for). --raise includes
derived classes. An expression that is interrupted (--expression-timeout) disables its breakpoint.
`probing query \"SELECT * FROM python.captures\"` shows recorded log lines and snapshots.")]
pub(crate) struct BreakArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    #[command(flatten)]
    at: LocationArgs,

    #[command(flatten)]
    terms: BreakpointOptions,

    /// Do this at each hit
    #[arg(
        long,
        value_name = "stop|log:TEXT|snapshot|count",
        default_value = "stop"
    )]
    action: ActionArg,

    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

/// One of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct LocationArgs {
    /// Name a line (`FILE:LINE`) or a function (`Trainer.fit`, `pkg.module.function`)
    #[arg(value_name = "PLACE")]
    place: Option<CodeLocation>,

    /// Break where this exception is raised
    #[arg(long, value_name = "EXCEPTION")]
    raise: Option<String>,

    /// Break where an exception stays uncaught
    #[arg(long)]
    uncaught: bool,
}

/// When a breakpoint acts, and for how long.
#[derive(Debug, Clone, Args)]
pub(crate) struct BreakpointOptions {
    /// Act only where EXPR, in the scope of the breakpoint, is true
    #[arg(long = "if", value_name = "EXPR", help_heading = CONDITIONS)]
    condition: Option<String>,

    /// Act from the Nth hit on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), help_heading = CONDITIONS)]
    hits: u64,

    /// Delete the breakpoint after it has acted once
    #[arg(long, help_heading = CONDITIONS)]
    pub(super) once: bool,

    /// Delete it after TIME (0 = never) [default: 10m for stops]
    #[arg(long = "for", value_name = "TIME", value_parser = seconds, help_heading = CONDITIONS)]
    pub(super) ttl: Option<Duration>,

    /// Interrupt EXPR after SECONDS (0 = no limit) [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = CONDITIONS)]
    expression_timeout: Option<Duration>,

    /// Also suspend the other threads during a stop
    #[arg(long, help_heading = STOPS)]
    all_threads: bool,

    /// Keep the thread stopped, or resume it
    #[arg(long, value_name = "keep|resume", default_value = "keep", hide_possible_values = true, help_heading = STOPS)]
    on_disconnect: DisconnectPolicyArg,

    /// Resume after connect, idle, total timeouts
    #[arg(long, value_name = "TIMES", default_value = "10m,30m,4h", help_heading = STOPS)]
    stop_timeout: StopTimeouts,
}

/// How a new breakpoint is reported.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// Show hits until Ctrl-C; the breakpoint stays set
    #[arg(long)]
    pub(crate) follow: bool,

    /// Print JSON
    #[arg(long, conflicts_with = "follow")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 breakpoints
  probing --ranks all breakpoints
  probing -t 4242 breakpoints --json | jq '.points[] | {point, passed, fired}'")]
pub(crate) struct BreakpointsArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 delete 3
  probing -t 4242 delete all
  probing --ranks all delete all")]
pub(crate) struct DeleteArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Delete these, by their numbers in `probing breakpoints`
    #[arg(value_name = "ID|all", required = true)]
    pub(crate) which: Vec<IdSelector>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl BreakArguments {
    pub(crate) fn request(&self) -> SetBreakpoint {
        let place = match &self.at {
            LocationArgs {
                place: Some(place), ..
            } => place.0.clone(),
            LocationArgs { uncaught: true, .. } => BreakpointLocation::Uncaught,
            LocationArgs { raise, .. } => BreakpointLocation::Raise {
                exception: raise.clone(),
            },
        };
        self.terms.request(place, self.action.0.clone())
    }
}

impl BreakpointOptions {
    pub(super) fn request(&self, place: BreakpointLocation, action: Action) -> SetBreakpoint {
        let StopTimeouts([connect, idle, total]) = self.stop_timeout;
        SetBreakpoint {
            place,
            condition: self.condition.clone(),
            hits: self.hits,
            once: self.once,
            action,
            stats: false,
            own: false,
            ttl_millis: self.ttl.map(millis),
            expression_millis: self.expression_timeout.map(millis),
            hold: StopPolicy {
                connect_millis: millis(connect),
                idle_millis: millis(idle),
                total_millis: millis(total),
                gone: match self.on_disconnect {
                    DisconnectPolicyArg::Keep => DisconnectPolicy::Keep,
                    DisconnectPolicyArg::Resume => DisconnectPolicy::Resume,
                },
                all_threads: self.all_threads,
            },
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A line or a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CodeLocation(pub(crate) BreakpointLocation);

impl FromStr for CodeLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some((file, line)) = text.rsplit_once(':') {
            let line = line.parse().ok().filter(|line| *line > 0);
            return match line {
                Some(line) if !file.is_empty() => {
                    let file = file.to_owned();
                    Ok(Self(BreakpointLocation::Line { file, line }))
                }
                _ => Err(format!("not FILE:LINE and not a function: {text}")),
            };
        }
        if let Some((_, "py")) = text.rsplit_once('.') {
            return Err(format!("no line: write {text}:LINE"));
        }
        if is_dotted(text) {
            let function = text.to_owned();
            return Ok(Self(BreakpointLocation::Function { function }));
        }
        match text.parse::<u32>() {
            Ok(line) => Err(format!("no file: write train.py:{line}")),
            Err(_) => Err(format!("not FILE:LINE and not a function: {text}")),
        }
    }
}

/// `a.b.c`, with parts like `<locals>`.
pub(super) fn is_dotted(text: &str) -> bool {
    let is_name = |part: &str| {
        let inner = part
            .strip_prefix('<')
            .and_then(|part| part.strip_suffix('>'));
        let name = inner.unwrap_or(part);
        !name.is_empty()
            && !name.starts_with(|letter: char| letter.is_ascii_digit())
            && name
                .chars()
                .all(|letter| letter.is_alphanumeric() || letter == '_')
    };
    text.split('.').all(is_name)
}

/// `stop`, `log:TEXT`, `snapshot`, `count`; `record` is the word for watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActionArg(pub(crate) Action);

impl FromStr for ActionArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let action = match text.split_once(':') {
            Some(("log", text)) if !text.is_empty() => Action::Log {
                text: text.to_owned(),
            },
            None if text == "stop" => Action::Stop,
            None if text == "snapshot" => Action::Snapshot,
            None if matches!(text, "count" | "record") => Action::Count,
            _ if text == "log" || text == "log:" => {
                return Err("no text to log; write log:'{step} {loss}'".to_owned());
            }
            _ => return Err(format!("not stop, log:TEXT, snapshot or count: {text}")),
        };
        Ok(Self(action))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DisconnectPolicyArg {
    Keep,
    Resume,
}

/// Connect, idle and total timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StopTimeouts([Duration; 3]);

impl FromStr for StopTimeouts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let times: Result<Vec<Duration>, String> = text.split(',').map(some_seconds).collect();
        match times?.as_slice() {
            [each] => Ok(Self([*each; 3])),
            [connect, idle, total] => Ok(Self([*connect, *idle, *total])),
            _ => Err(format!("not one time and not three (10m,30m,4h): {text}")),
        }
    }
}

/// A number, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdSelector {
    All,
    One(u32),
}

impl FromStr for IdSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim_start_matches('#') {
            "all" => Ok(Self::All),
            number => match number.parse() {
                Ok(number) if number > 0 => Ok(Self::One(number)),
                _ => Err(format!("not a number from 1 on and not all: {text}")),
            },
        }
    }
}

impl IdSelector {
    /// Their numbers; none when all are meant.
    pub(crate) fn numbers(these: &[Self]) -> Vec<u32> {
        let mut numbers = Vec::new();
        for which in these {
            match which {
                Self::All => return Vec::new(),
                Self::One(number) => numbers.push(*number),
            }
        }
        numbers
    }
}

impl DeleteArguments {
    pub(crate) fn points(&self) -> Vec<BreakpointId> {
        IdSelector::numbers(&self.which)
            .into_iter()
            .map(BreakpointId)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_line_or_a_function() {
        let line = |file: &str, line| {
            let file = file.to_owned();
            Ok(CodeLocation(BreakpointLocation::Line { file, line }))
        };
        let function = |name: &str| {
            let function = name.to_owned();
            Ok(CodeLocation(BreakpointLocation::Function { function }))
        };
        assert_eq!("train.py:120".parse(), line("train.py", 120));
        assert_eq!("<string>:3".parse(), line("<string>", 3));
        assert_eq!("c:/a b.py:7".parse(), line("c:/a b.py", 7));
        for name in [
            "train_step",
            "pkg.mod.Class.method",
            "f.<locals>.g",
            "größe",
        ] {
            assert_eq!(name.parse(), function(name));
        }
        for wrong in [
            "",
            "120",
            "train.py:",
            ":3",
            "train.py:0",
            "f()",
            "a..b",
            "train.py:x",
        ] {
            assert!(wrong.parse::<CodeLocation>().is_err(), "{wrong}");
        }
        let which_file = "120".parse::<CodeLocation>().unwrap_err();
        assert_eq!(which_file, "no file: write train.py:120");
        for file in ["train.py", "src/train.py"] {
            let which_line = file.parse::<CodeLocation>().unwrap_err();
            assert_eq!(which_line, format!("no line: write {file}:LINE"));
        }
    }

    #[test]
    fn an_action_is_a_word_or_a_text_to_log() {
        let log = |text: &str| Action::Log {
            text: text.to_owned(),
        };
        let check = |text: &str, action| assert_eq!(text.parse(), Ok(ActionArg(action)));
        check("stop", Action::Stop);
        check("log:{step}: {loss}", log("{step}: {loss}"));
        check("count", Action::Count);
        check("record", Action::Count);
        for wrong in ["", "log", "log:", "stop:x", "halt"] {
            assert!(wrong.parse::<ActionArg>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_stop_timeout_is_one_time_or_three() {
        let minutes = |minutes: [u64; 3]| {
            let times = minutes.map(|minutes| Duration::from_secs(minutes * 60));
            Ok(StopTimeouts(times))
        };
        assert_eq!("5m".parse(), minutes([5, 5, 5]));
        assert_eq!("10m,30m,4h".parse(), minutes([10, 30, 240]));
        for wrong in ["", "0", "5m,5m", "1,2,3,4", "x"] {
            assert!(wrong.parse::<StopTimeouts>().is_err(), "{wrong}");
        }
    }
}
