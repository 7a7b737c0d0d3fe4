//! The processes that an agent offers: those of its user in its own runtime folder.

use probing_process::procfs::processes::{self, Process};
use probing_proto::agent::NodeTarget;
use probing_proto::env::PROBING_DIR;
use probing_proto::paths;
use probing_proto::process::Pid;
use probing_proto::report::ProbeState;

use crate::probe::socket_path;
use crate::storage::cleanup;
use crate::storage::recording;
use crate::targets::candidate::bear_ranks;
use crate::targets::list;

/// Who is there now, in the order of pids. Sweeps what dead ones left behind, but for what they recorded.
pub fn roll() -> Vec<NodeTarget> {
    cleanup::sweep();
    let mut processes = processes::all_python();
    processes.retain(is_ours);
    let bear_ranks = bear_ranks(&processes);
    let listed = list::each(&processes);
    let is_probed = |probe: ProbeState| probe != ProbeState::None;
    let any_probed = listed.iter().any(|process| is_probed(process.probe));
    let each = listed.into_iter().zip(&processes).zip(bear_ranks);
    each.map(|((listed, process), bears_rank)| NodeTarget {
        member: is_probed(listed.probe) || !any_probed,
        process: listed,
        bears_rank,
        world_size: process.world_size(),
        node: None,
    })
    .collect()
}

/// Those that requests are for which name none: without asking any of them.
pub fn offered() -> Vec<Pid> {
    let mut processes = processes::all_python();
    processes.retain(is_ours);
    let has_socket = |process: &&Process| matches!(socket_path::socket_of(process), Ok(Some(_)));
    let probed: Vec<Pid> = processes
        .iter()
        .filter(has_socket)
        .map(|process| process.pid)
        .collect();
    if probed.is_empty() {
        return processes.iter().map(|process| process.pid).collect();
    }
    probed
}

/// Whether an agent offers this process.
pub fn is_offered(pid: Pid) -> bool {
    Process::read(pid).is_some_and(|process| process.python.is_some() && is_ours(&process))
}

/// Whether a process that has a probe lives: without asking any of them.
pub fn anyone_probed() -> bool {
    let folders = socket_path::our_runtime_dirs();
    let mut keys = folders.iter().flat_map(|folder| recording::keys_in(folder));
    keys.any(processes::is_alive)
}

/// One with a private folder of its own is somebody else's business.
fn is_ours(process: &Process) -> bool {
    let own = paths::runtime_dirs(process.own_uid, PROBING_DIR.value());
    process.uid == rustix::process::geteuid().as_raw()
        && socket_path::own_runtime_dirs(process) == own
}
