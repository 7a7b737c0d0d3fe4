//! `probing break`, `breakpoints`, `disarm`: what is armed in a target; and the terms that `watch` and `debug` share

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use probing_proto::message::breakpoints::{
    Action, BreakpointId, BreakpointLocation, DisconnectPolicy, SetBreakpoint, StopPolicy,
};

use crate::arguments::NamedTargets;
use crate::arguments::amounts::{seconds, some_seconds};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 break train.py:120                          the next thread that comes there stops
  probing -t 4242 break train_step --if 'loss > 10' --once
  probing -t 4242 break train.py:120 --action log:'{step} {loss}' --follow
  probing -t 4242 break pkg.module.Class.method --action snapshot --hits 100
  probing -t 4242 break --raise ValueError
  probing -t 4242 break --uncaught                            instead of a traceback and an end, a stop
  probing --ranks 0-7 break train_step --action count
  probing -t 4242 debug                                       look around in what has stopped

A thread that stops waits for `probing debug`, the others go on; nobody came, or nothing was asked for a
while: it goes on by itself (--hold). A breakpoint that stops is disarmed by itself, too (--for). What log
lines and snapshots record is read with `probing query \"SELECT * FROM python.captures\"`.")]
pub(crate) struct BreakArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    #[command(flatten)]
    at: LocationArgs,

    #[command(flatten)]
    terms: BreakpointOptions,

    /// What is done there
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
    /// `FILE:LINE`, as much of the path as it takes to know it; or a function: `train_step`, `Trainer.fit`,
    /// `pkg.module.function`
    #[arg(value_name = "PLACE")]
    place: Option<CodeLocation>,

    /// Where an exception of this class (`ValueError`, `json.JSONDecodeError`), or of one derived from it, is
    /// raised
    #[arg(long, value_name = "EXCEPTION")]
    raise: Option<String>,

    /// Where an exception that nobody handles ends the program, a thread or a task
    #[arg(long)]
    uncaught: bool,
}

/// When a point does something, and for how long.
#[derive(Debug, Clone, Args)]
pub(crate) struct BreakpointOptions {
    /// Only where this expression, in the names of that place, is true
    #[arg(long = "if", value_name = "EXPR")]
    condition: Option<String>,

    /// Only from this time on: 3 lets two go by
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    hits: u64,

    /// Disarm it when it has done something once
    #[arg(long)]
    pub(super) once: bool,

    /// Disarm it after this time; 0: never [default: 10m for those that stop, 0 for those that record]
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    pub(super) ttl: Option<Duration>,

    /// Interrupt an expression (--if, log:TEXT) that runs for SECONDS, and disarm its breakpoint; 0: no
    /// limit [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    expression_timeout: Option<Duration>,

    /// When a thread stops, the other threads of the program wait, too
    #[arg(long)]
    all_threads: bool,

    /// What becomes of a stopped thread whose driver has gone
    #[arg(long, value_name = "keep|resume", default_value = "keep")]
    gone: DisconnectPolicyArg,

    /// How long a thread stays stopped: until somebody comes, while nothing is asked, in all; one time
    /// stands for all three
    #[arg(long, value_name = "TIME,TIME,TIME", default_value = "10m,30m,4h")]
    hold: StopTimeouts,
}

/// How what was armed is told.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// Then show log lines, changes and stops as they come, until Ctrl-C. It stays armed
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
  probing -t 4242 disarm 3
  probing -t 4242 disarm all
  probing --ranks all disarm all")]
pub(crate) struct DeleteArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Numbers of breakpoints and watches, as `probing breakpoints` shows them; or all
    #[arg(value_name = "ID|all", required = true)]
    pub(crate) which: Vec<IdSelector>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl BreakArguments {
    pub(crate) fn arm(&self) -> SetBreakpoint {
        let place = match &self.at {
            LocationArgs {
                place: Some(place), ..
            } => place.0.clone(),
            LocationArgs { uncaught: true, .. } => BreakpointLocation::Uncaught,
            LocationArgs { raise, .. } => BreakpointLocation::Raise {
                exception: raise.clone(),
            },
        };
        self.terms.arm(place, self.action.0.clone())
    }
}

impl BreakpointOptions {
    pub(super) fn arm(&self, place: BreakpointLocation, action: Action) -> SetBreakpoint {
        let StopTimeouts([connect, idle, total]) = self.hold;
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
                gone: match self.gone {
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
                _ => Err(format!("a place is FILE:LINE or a function: {text}")),
            };
        }
        if let Some((_, "py")) = text.rsplit_once('.') {
            return Err(format!("a line is missing: {text}:LINE"));
        }
        if is_dotted(text) {
            let function = text.to_owned();
            return Ok(Self(BreakpointLocation::Function { function }));
        }
        match text.parse::<u32>() {
            Ok(line) => Err(format!("of which file? train.py:{line}")),
            Err(_) => Err(format!("a place is FILE:LINE or a function: {text}")),
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
                return Err("what is to be logged? log:'{step} {loss}'".to_owned());
            }
            _ => return Err(format!("one of stop, log:TEXT, snapshot, count: {text}")),
        };
        Ok(Self(action))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DisconnectPolicyArg {
    /// It waits for another, until a deadline
    Keep,
    /// The program goes on
    Resume,
}

/// Until somebody comes, while nothing is asked, in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StopTimeouts([Duration; 3]);

impl FromStr for StopTimeouts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let times: Result<Vec<Duration>, String> = text.split(',').map(some_seconds).collect();
        match times?.as_slice() {
            [each] => Ok(Self([*each; 3])),
            [connect, idle, total] => Ok(Self([*connect, *idle, *total])),
            _ => Err(format!("one time or three, as in 10m,30m,4h: {text}")),
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
                _ => Err(format!("a number from 1 on, or all: {text}")),
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
        assert_eq!(which_file, "of which file? train.py:120");
        for file in ["train.py", "src/train.py"] {
            let which_line = file.parse::<CodeLocation>().unwrap_err();
            assert_eq!(which_line, format!("a line is missing: {file}:LINE"));
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
    fn a_hold_is_one_time_or_three() {
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
