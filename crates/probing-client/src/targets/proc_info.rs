//! Facts about a target from `/proc`, which exist in every state of the target.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use probing_process::proc;
use probing_process::procfs::processes::{Process, PythonVersion};
use probing_process::procfs::threads::{self, SyscallState, Tid};
use probing_process::procfs::usage::Usage;
use probing_proto::process::Pid;

use crate::error::ClientError;
use crate::probe::socket_path;
use crate::stacks;
use crate::targets::target::Target;

/// A process, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessFacts {
    pub pid: Pid,
    /// Its pid as it sees it itself: another one inside a container.
    pub own_pid: Pid,
    pub parent: Pid,
    pub uid: u32,
    pub gid: u32,
    /// `3.12`, as file names tell it.
    pub python: Option<String>,
    pub command: Vec<String>,
    pub program: Option<PathBuf>,
    pub folder: Option<PathBuf>,
    /// In a word.
    pub state: &'static str,
    pub threads: u32,
    /// Since 1970.
    pub started_at_nanos: u64,
    pub usage: Usage,
    /// Unknown when we may not look.
    pub open_files: Option<usize>,
    /// Whether a probe of ours is in it.
    pub probed: bool,
    /// Its variables when it started, in their order; `None` when we may not look.
    pub variables: Option<Vec<(String, String)>>,
}

/// A thread, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadFacts {
    pub thread_id: u32,
    /// What the kernel calls it.
    pub name: Option<String>,
    pub state: &'static str,
    /// The system call that it sleeps in; unknown when it does not, or when we may not look.
    pub system_call: Option<String>,
    pub started_at_nanos: u64,
    pub usage: Usage,
}

/// What this machine is called.
pub fn host_name() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

impl Target {
    /// What the kernel knows of it.
    pub fn facts(&self) -> Result<ProcessFacts, ClientError> {
        let process = self.process()?;
        stacks::check_python(&process)?;
        let pid = process.pid;
        let link = |name: &str| fs::read_link(proc(pid, name)).ok();
        Ok(ProcessFacts {
            pid,
            own_pid: process.own_pid,
            parent: process.stat.parent,
            uid: process.uid,
            gid: process.gid,
            python: match &process.python {
                Some(PythonVersion::Known(major, minor)) => Some(format!("{major}.{minor}")),
                Some(PythonVersion::Unknown) | None => None,
            },
            command: process.command.clone(),
            program: link("exe"),
            folder: link("cwd"),
            state: word(process.stat.state),
            threads: process.stat.threads,
            started_at_nanos: started_at(process.stat.start_ticks),
            usage: Usage::of(pid).ok_or(ClientError::Ended { pid })?,
            open_files: fs::read_dir(proc(pid, "fd")).ok().map(Iterator::count),
            probed: matches!(socket_path::socket_of(&process), Ok(Some(_))),
            variables: variables(&process),
        })
    }

    /// What the kernel knows of each of its threads, in the order of their ids. One that ends meanwhile is left out.
    pub fn thread_facts(&self) -> Result<Vec<ThreadFacts>, ClientError> {
        let process = self.process()?;
        stacks::check_python(&process)?;
        let pid = process.pid;
        let ids = threads::thread_ids(pid).map_err(|_gone| ClientError::Ended { pid })?;
        let facts = ids.into_iter().filter_map(|tid| thread(pid, tid));
        Ok(facts.collect())
    }
}

fn thread(pid: Pid, tid: Tid) -> Option<ThreadFacts> {
    let stat = threads::stat(pid, tid)?;
    let place = SyscallState::of(pid, tid);
    Some(ThreadFacts {
        thread_id: tid.0,
        name: threads::name(pid, tid),
        state: word(stat.state),
        system_call: match place {
            SyscallState::Call { number, .. } => Some(match place.call_name() {
                Some(name) => name.to_owned(),
                None => number.to_string(),
            }),
            SyscallState::Running | SyscallState::Other => None,
        },
        started_at_nanos: started_at(stat.start_ticks),
        usage: Usage::of_thread(pid, tid)?,
    })
}

fn word(state: char) -> &'static str {
    match state {
        'R' => "running",
        'S' => "asleep",
        'D' => "asleep in the kernel",
        'T' => "stopped",
        't' => "held",
        'I' => "idle",
        'Z' | 'X' | 'x' => "ended",
        _ => "unknown",
    }
}

/// When a living process was started.
pub fn started_at_nanos(pid: Pid) -> Option<u64> {
    Process::read(pid).map(|process| started_at(process.key().start_ticks))
}

/// The same, of ticks since the machine was.
pub(crate) fn started_at(start_ticks: u64) -> u64 {
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let since_boot = Duration::new(since_boot.tv_sec as u64, since_boot.tv_nsec as u32);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let begun = Duration::from_secs_f64(start_ticks as f64 / ticks as f64);
    let age = since_boot.saturating_sub(begun);
    now.saturating_sub(age).as_nanos() as u64
}

fn variables(process: &Process) -> Option<Vec<(String, String)>> {
    let denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let hidden = || fs::read(proc(process.pid, "environ")).is_err_and(denied);
    if process.environ.is_empty() && hidden() {
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let entries = process.environ.split(|&byte| byte == 0);
    let pair = |entry: &[u8]| {
        let equals = entry.iter().position(|&byte| byte == b'=')?;
        Some((text(&entry[..equals]), text(&entry[equals + 1..])))
    };
    Some(entries.filter_map(pair).collect())
}
