//! A program under test: a real process that says when it is ready and ends when it is told to.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{self, Usage};
use crate::{DEADLINE, wait_until};

/// How to start a target.
#[derive(Debug)]
pub struct TargetBuilder {
    command: Command,
}

impl TargetBuilder {
    pub(crate) fn new(mut command: Command) -> Self {
        for variable in [
            "PROBING",
            "PROBING_PORT",
            "RANK",
            "PYTHONPATH",
            "SLURM_PROCID",
            "OMPI_COMM_WORLD_RANK",
        ] {
            command.env_remove(variable);
        }
        Self { command }
    }

    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Anything else about how the process starts.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }

    /// Starts it and waits for its `ready`.
    pub fn start(self) -> Target {
        let mut target = self.start_without_waiting();
        assert_eq!(target.line(), "ready");
        target
    }

    pub fn start_without_waiting(mut self) -> Target {
        let mut child = self
            .command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the target starts");
        Target {
            stdin: child.stdin.take(),
            stdout: lines_of(child.stdout.take().expect("a pipe")),
            stderr: lines_of(child.stderr.take().expect("a pipe")),
            child,
        }
    }
}

/// A running target. Ends, at the latest, when dropped.
#[derive(Debug)]
pub struct Target {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

/// A target that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTarget {
    /// As a shell tells it: 128 + n for a signal.
    pub status: i32,
    /// Lines that the test has not taken yet.
    pub stdout: Vec<String>,
    pub stderr: Vec<String>,
}

impl Target {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn usage(&self) -> Usage {
        Usage::of(self.pid())
    }

    /// The next line that it prints.
    #[track_caller]
    pub fn line(&mut self) -> String {
        match self.stdout.recv_timeout(DEADLINE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("the target prints nothing"),
            Err(RecvTimeoutError::Disconnected) => {
                let stderr = rest_of(&self.stderr);
                panic!("the target has ended: {}", stderr.join("\n"))
            }
        }
    }

    /// Lines printed so far that nobody has taken.
    pub fn lines_so_far(&self) -> Vec<String> {
        self.stdout.try_iter().collect()
    }

    /// Sends it a line.
    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its input is open");
        writeln!(stdin, "{line}").expect("the target reads");
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a pid");
        kill_process(pid, signal).expect("the target can be signalled");
    }

    /// Stops it with SIGSTOP and returns when it is.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        wait_until("the target is stopped", || self.state() == 'T');
    }

    /// Its state as `/proc` names it.
    pub fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()))
            .expect("the target lives");
        probing_proto::process::Stat::parse(&stat)
            .expect("a stat line")
            .state
    }

    /// Whether it still runs.
    pub fn lives(&mut self) -> bool {
        self.status().is_none()
    }

    /// How it has ended, as a shell tells it, if it has.
    pub fn status(&mut self) -> Option<i32> {
        let ended = self.child.try_wait().expect("a child can be waited for");
        ended.map(process::code)
    }

    /// Lets it go and waits for its end.
    pub fn end(mut self) -> EndedTarget {
        self.stdin = None;
        self.wait()
    }

    /// Waits for an end that comes by itself.
    pub fn wait(mut self) -> EndedTarget {
        let status = process::wait_for(&mut self.child);
        EndedTarget {
            status: process::code(status),
            stdout: rest_of(&self.stdout),
            stderr: rest_of(&self.stderr),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Already ended, or not: both are fine here.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn lines_of(pipe: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n') {
            let Ok(line) = line else { return };
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    receiver
}

/// What is left in the pipe. A child of the target may hold it open, so this does not wait for its end for ever.
fn rest_of(lines: &Receiver<String>) -> Vec<String> {
    let mut rest = Vec::new();
    while let Ok(line) = lines.recv_timeout(std::time::Duration::from_millis(500)) {
        rest.push(line);
    }
    rest
}
