//! A real program under test: started with and without Probing, and what came of it.

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;

use probing_proto::env::{PROBING_DIR, PROBING_TEST_REAL};
use probing_testkit::{CommandResult, EndedTarget, Sandbox, Target, root};
use rustix::process::{Pid, Signal, kill_process};

/// The Python of `scripts/real-environment`.
pub(crate) fn python() -> PathBuf {
    let path = PROBING_TEST_REAL.value();
    path.expect("PROBING_TEST_REAL is not set: run `make real`")
        .into()
}

/// A program that the environment has.
pub(crate) fn tool(name: &str) -> PathBuf {
    python().with_file_name(name)
}

/// `tests/targets/real/…`
pub(crate) fn source(name: &str) -> PathBuf {
    root().join("tests/targets/real").join(name)
}

pub(crate) fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_probing"))
}

/// What a program gave: what must not change when somebody looks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    status: i32,
    /// Lines that begin with `result`.
    results: Vec<String>,
    /// What it wrote to stderr, without numbers (pids, ports, times) and without Lightning's advice, which is drawn by lot.
    pub(crate) words: BTreeSet<String>,
}

impl From<EndedTarget> for Outcome {
    fn from(ended: EndedTarget) -> Self {
        let lines = ended.stdout.into_iter();
        let is_stable = |word: &&str| !word.starts_with("0x") && !word.contains("/tmp/p-");
        let without_numbers = |line: &String| {
            let words: Vec<&str> = line.split_whitespace().filter(is_stable).collect();
            words
                .join(" ")
                .replace(|letter: char| letter.is_ascii_digit(), "")
        };
        let words = ended.stderr.iter().filter(|line| !line.contains("Tip:"));
        Self {
            status: ended.status,
            results: lines.filter(|line| line.starts_with("result")).collect(),
            words: words.map(without_numbers).collect(),
        }
    }
}

/// A program that runs, and the processes in it that are looked at.
pub(crate) struct Program {
    pub(crate) sandbox: Sandbox,
    target: Option<Target>,
    /// In the order of their ranks, where they have any.
    pub(crate) pids: Vec<String>,
}

impl Program {
    /// Starts it and waits until `says` lines of it begin with `ready`. Pids are the last words of those; the words before
    /// put them in order.
    pub(crate) fn start(sandbox: Sandbox, command: Command, says: usize) -> Self {
        let mut target = sandbox.target_command(command).start_without_waiting();
        let mut said = Vec::new();
        while said.len() < says {
            let line = target.line();
            said.extend(line.strip_prefix("ready ").map(str::to_owned));
        }
        said.sort();
        let pid = |line: &String| line.rsplit(' ').next().unwrap_or_default().to_owned();
        Self {
            pids: said.iter().map(pid).collect(),
            sandbox,
            target: Some(target),
        }
    }

    /// What the program gives that nobody looks at. One that ends badly is tried again: torch aborts one of some four
    /// programs whose process groups of `gloo` were never destroyed, with or without us.
    pub(crate) fn alone(command: impl Fn(&Path) -> Command) -> Outcome {
        let run = || {
            let sandbox = sandbox();
            let command = command(sandbox.path());
            let target = sandbox.target_command(command).start_without_waiting();
            Outcome::from(target.end())
        };
        let mut outcomes = iter::repeat_with(run).take(10);
        outcomes.find(|outcome| outcome.status == 0).unwrap()
    }

    /// `probing -t …` of all its processes.
    pub(crate) fn probing(&self, arguments: &[&str]) -> CommandResult {
        self.ask(&self.pids.join(","), arguments)
    }

    /// `probing -t TARGET …`
    pub(crate) fn ask(&self, target: &str, arguments: &[&str]) -> CommandResult {
        self.sandbox.probing([&["-t", target], arguments].concat())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.target.as_ref().unwrap().signal(signal);
    }

    /// Lets it go, and waits for its end.
    pub(crate) fn end(&mut self) -> Outcome {
        self.target.take().unwrap().end().into()
    }
}

impl Drop for Program {
    /// Ranks outlive a launcher that is killed. All have the folder of this test among their variables.
    fn drop(&mut self) {
        self.target.take();
        let name = PROBING_DIR.name;
        let ours = format!("{name}={}", self.sandbox.runtime_dir().display());
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let is_ours = fs::read_to_string(entry.path().join("environ"))
                .is_ok_and(|variables| variables.split('\0').any(|variable| variable == ours));
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some(pid) = pid.and_then(Pid::from_raw).filter(|_| is_ours) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }
}
