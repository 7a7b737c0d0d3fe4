//! The list of Python processes, all asked at the same time.
//!
//! Each is asked at the same time, so one that hangs delays nobody.

use std::collections::HashMap;
use std::iter::zip;
use std::thread;
use std::time::Duration;

use probing_process::procfs::processes::{self, Process, PythonVersion};
use probing_proto::message::Hello;
use probing_proto::paths;
use probing_proto::process::Pid;
use probing_proto::report::{ListedProcess, ProbeState, ProcessRole};
use probing_proto::tables::schema::Storage;

use crate::error::{ClientError, LocalError};
use crate::probe::check_user;
use crate::probe::connection::Connection;
use crate::probe::socket_path;
use crate::storage::cleanup;
use crate::targets::roles::roles;

/// How long the list waits for a probe to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_millis(500);
/// Processes asked at the same time.
const AT_ONCE: usize = 64;

/// All Python processes, in the order of their pids. Sweeps what dead ones of this user left behind.
pub fn list() -> Vec<ListedProcess> {
    cleanup::sweep();
    each(&processes::all_python())
}

/// What is known of these.
pub(crate) fn each(processes: &[Process]) -> Vec<ListedProcess> {
    let mut listed = Vec::with_capacity(processes.len());
    for some in processes.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let asked: Vec<_> = some
                .iter()
                .map(|process| scope.spawn(|| listed_process(process)))
                .collect();
            listed.extend(asked.into_iter().filter_map(|asked| asked.join().ok()));
        });
    }
    let roles: HashMap<Pid, ProcessRole> = zip(processes, roles(processes))
        .filter_map(|(process, role)| Some((process.pid, role?)))
        .collect();
    for process in &mut listed {
        let role = roles.get(&process.pid).copied();
        // A rank is the program itself, whoever started it.
        let is_rank = process.rank.is_some();
        process.role = role.filter(|role| !is_rank || *role != ProcessRole::Child);
    }
    listed
}

fn listed_process(process: &Process) -> ListedProcess {
    let (probe, hello) = ask(process);
    let rank = hello
        .as_ref()
        .and_then(|hello| hello.rank)
        .or_else(|| process.rank());
    let python = match (&hello, &process.python) {
        (Some(hello), _) => Some(hello.python.clone()),
        (None, Some(PythonVersion::Known(major, minor))) => Some(format!("{major}.{minor}")),
        _ => None,
    };
    ListedProcess {
        pid: process.pid,
        rank,
        role: None,
        python,
        probe,
        stopped: process.stat.is_stopped() || process.stat.is_held(),
        stops: hello.as_ref().map_or(0, |hello| hello.stops),
        uid: process.uid,
        age_seconds: process.age_seconds(),
        recording: recording_of(process),
        command: process.command.clone(),
    }
}

/// Where a process's recorded rows are, if we may look.
fn recording_of(process: &Process) -> Option<Storage> {
    check_user(process).ok()?;
    let recorders = socket_path::runtime_dirs(process)
        .into_iter()
        .map(|runtime_dir| paths::recorder_path(&runtime_dir, process.key()));
    recorders
        .filter_map(|path| probing_store::read_recorder(&path))
        .map(|recorder| recorder.storage)
        .next()
}

fn ask(process: &Process) -> (ProbeState, Option<Hello>) {
    let own = rustix::process::geteuid();
    if process.uid != own.as_raw() && !own.is_root() {
        return (ProbeState::Forbidden, None);
    }
    let Ok(Some(socket)) = socket_path::socket_of(process) else {
        return (ProbeState::None, None);
    };
    // It cannot answer; waiting for it tells nothing new.
    if process.stat.is_stopped() {
        return (ProbeState::Silent, None);
    }
    match Connection::to_process(process, &socket, HELLO_TIMEOUT) {
        Ok((_, hello)) => (ProbeState::Running, Some(hello)),
        Err(ClientError::Local(LocalError::NobodyListens { .. })) => (ProbeState::Left, None),
        Err(_) => (ProbeState::Silent, None),
    }
}
