//! Processes that tests started, seen from outside.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use crate::DEADLINE;

/// Looks again and again until `condition` holds: for what has no handshake (a file that goes away, a state of `/proc`).
///
/// # Panics
///
/// When it never does.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < until, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits for the end of a child; kills it when it does not come.
#[track_caller]
pub(crate) fn wait_for(child: &mut Child) -> ExitStatus {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status;
        }
        if Instant::now() > until {
            child.kill().expect("a child can be killed");
            child.wait().expect("a killed child ends");
            panic!("process {} did not end", child.id());
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// The exit status as a shell tells it: 128 + n for a signal.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(-1)
}

/// What a process uses, from `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub rss_kib: u64,
    pub threads: u64,
    pub voluntary_switches: u64,
    pub open_files: usize,
}

impl Usage {
    /// # Panics
    ///
    /// When the process is gone.
    pub fn of(pid: u32) -> Self {
        let status =
            std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
        let number = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_ascii_whitespace().next());
            word.and_then(|word| word.parse().ok())
                .expect("the kernel tells it")
        };
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
        let switches = tasks.flatten().map(|task| {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.and_then(|line| line.trim().parse::<u64>().ok())
                .unwrap_or(0)
        });
        Self {
            rss_kib: number("VmRSS:"),
            threads: number("Threads:"),
            voluntary_switches: switches.sum(),
            open_files: std::fs::read_dir(format!("/proc/{pid}/fd"))
                .expect("the process lives")
                .count(),
        }
    }
}
