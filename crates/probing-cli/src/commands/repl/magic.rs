//! The commands of the prompt, which begin with `%`.

use std::fmt::Write as _;

use clap::Parser;

use crate::arguments::BacktraceArguments;

/// One command, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Magic {
    /// `%bt`, with the words of `probing backtrace`.
    Backtrace(Vec<String>),
    Threads,
    /// Run code in the locals of this frame from now on; without a number, in the program's `__main__` again.
    Frame(Option<u32>),
    /// Run code on this thread from now on, or look for frames there; without a name, on a thread of its own again.
    Thread(Option<String>),
    Query(String),
    /// Run code and say how long it took.
    Time(String),
    Who,
    Help,
    Leave,
}

/// Name, arguments, what it does. The order is that of `%help`.
const MAGICS: [(&str, &str, &str); 9] = [
    (
        "bt",
        "[--all] [--locals] …",
        "show the stack; options as of `probing backtrace`",
    ),
    ("threads", "", "list threads with their innermost frames"),
    (
        "frame",
        "[N]",
        "run code in frame N (0 = innermost), or leave it",
    ),
    (
        "thread",
        "[NAME|ID|main]",
        "run code on that thread, until %thread off",
    ),
    ("query", "SQL", "ask the tables"),
    ("time", "CODE", "run code and show its duration"),
    ("who", "", "list the names of the program or the frame"),
    ("help", "", "show this text"),
    ("exit", "", "exit the prompt, as Ctrl-D does"),
];

impl Magic {
    /// What stands behind `%`; else what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        match name {
            "bt" | "backtrace" => Ok(Self::Backtrace(
                rest.split_whitespace().map(str::to_owned).collect(),
            )),
            "threads" => Ok(Self::Threads),
            "frame" if matches!(rest, "" | "off") => Ok(Self::Frame(None)),
            "frame" => match rest.parse() {
                Ok(number) => Ok(Self::Frame(Some(number))),
                Err(_) => Err(format!("%frame needs a number, 0 is the innermost: {rest}")),
            },
            "thread" => Ok(Self::Thread(
                Some(rest.to_owned()).filter(|name| !matches!(name.as_str(), "" | "off")),
            )),
            "query" | "time" if rest.is_empty() => Err(format!("%{name} needs an argument")),
            "query" => Ok(Self::Query(rest.to_owned())),
            "time" => Ok(Self::Time(rest.to_owned())),
            "who" => Ok(Self::Who),
            "help" => Ok(Self::Help),
            "exit" | "quit" => Ok(Self::Leave),
            _ => Err(format!("no such command: %{name}; %help lists them")),
        }
    }

    /// Names that begin with `prefix`.
    pub(super) fn names(prefix: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
        MAGICS
            .iter()
            .filter(move |(name, ..)| name.starts_with(prefix))
            .map(|(name, _, does)| (*name, *does))
    }
}

/// What `%help` prints.
pub(super) fn help() -> String {
    let mut text = String::from(
        "Python runs in the target's live __main__; _ is the last value.\n\
         Tab completes, Ctrl-C interrupts, Ctrl-D exits.\n\n",
    );
    for (name, arguments, does) in MAGICS {
        // Writing to a String does not fail.
        writeln!(text, "  {:<28} {does}", format!("%{name} {arguments}")).ok();
    }
    text.push_str("  ?name, name?                 show type, signature, doc and file\n");
    text
}

/// The words behind `%bt`.
#[derive(Debug, Parser)]
#[command(
    name = "%bt",
    bin_name = "%bt",
    no_binary_name = true,
    disable_help_flag = true
)]
struct BacktraceLine {
    #[command(flatten)]
    arguments: BacktraceArguments,
}

pub(super) fn backtrace_arguments(words: &[String]) -> Result<BacktraceArguments, clap::Error> {
    BacktraceLine::try_parse_from(words).map(|words| words.arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_help_is_understood() {
        for (name, arguments, _) in MAGICS {
            let text = match arguments {
                "SQL" | "CODE" => format!("{name} 1"),
                _ => name.to_owned(),
            };
            assert!(Magic::parse(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_help_fits_a_narrow_terminal() {
        for line in help().lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, said) in [
            ("frame x", "a number"),
            ("time", "an argument"),
            ("nope", "%help"),
        ] {
            let error = Magic::parse(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        assert_eq!(Magic::parse("frame 3"), Ok(Magic::Frame(Some(3))));
        assert_eq!(Magic::parse("thread off"), Ok(Magic::Thread(None)));
    }
}
