//! The identity of a process, and the line of `/proc` that both ends read.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A process id as seen from the process that speaks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pid {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// A process for all time: its pid is given to others after it died, its pid and start time never.
///
/// Written `4242.81733` (pid, clock ticks since boot): the name of the process's private folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey {
    pub pid: Pid,
    pub start_ticks: u64,
}

impl fmt::Display for ProcessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pid, self.start_ticks)
    }
}

/// The text was not `<pid>.<ticks>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a process's folder: {0}")]
pub struct NotAProcessKey(String);

impl FromStr for ProcessKey {
    type Err = NotAProcessKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split_once('.')
            .and_then(|(pid, ticks)| {
                Some(Self {
                    pid: pid.parse().ok()?,
                    start_ticks: ticks.parse().ok()?,
                })
            })
            .filter(|key| key.to_string() == text)
            .ok_or_else(|| NotAProcessKey(text.to_owned()))
    }
}

/// The parts of `/proc/<pid>/stat` that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub state: char,
    pub parent: Pid,
    pub start_ticks: u64,
    pub threads: u32,
    flags: u32,
}

/// `PF_EXITING`: on its way out, its memory is gone or going.
const EXITING: u32 = 0x4;

impl Stat {
    /// Reads the line. The name in it may contain spaces, parentheses and line breaks, so fields count from its end.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, fields) = line.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let flags = fields.nth(4)?.parse().ok()?;
        let threads = fields.nth(10)?.parse().ok()?;
        let start_ticks = fields.nth(1)?.parse().ok()?;
        Some(Self {
            state,
            parent,
            start_ticks,
            threads,
            flags,
        })
    }

    /// Whether it is on a CPU, or waits for one.
    pub fn is_running(self) -> bool {
        self.state == 'R'
    }

    /// Whether a signal holds the whole process (Ctrl-Z, SIGSTOP).
    pub fn is_stopped(self) -> bool {
        self.state == 'T'
    }

    /// Whether a debugger holds its main thread now. Attaching does, for a fraction of a millisecond.
    pub fn is_held(self) -> bool {
        self.state == 't'
    }

    /// Whether it ends, or has ended and only waits for its parent to notice.
    pub fn is_dead(self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') || self.flags & EXITING != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name_holds() {
        let rest = "S 1 4242 1 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 81733 1 1";
        for name in ["python", "a b", "x) R 9 (y", "line\nbreak"] {
            let stat = Stat::parse(&format!("4242 ({name}) {rest}")).unwrap();
            assert_eq!(
                (stat.state, stat.parent, stat.threads, stat.start_ticks),
                ('S', Pid(1), 1, 81733),
                "{name}"
            );
        }
        assert_eq!(Stat::parse("4242 (short) S 1 2"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn a_process_key_is_its_folder_name_and_back() {
        let key = ProcessKey {
            pid: Pid(4242),
            start_ticks: 81733,
        };
        assert_eq!(key.to_string(), "4242.81733");
        assert_eq!("4242.81733".parse(), Ok(key));
        for text in [
            "",
            "4242",
            "4242.",
            ".81733",
            "a.b",
            "04242.81733",
            "4242.8.1",
            "+4.2",
        ] {
            assert!(text.parse::<ProcessKey>().is_err(), "{text}");
        }
    }
}
