//! Threads that block SIGTRAP: the kernel ends a process at a stray trap in one of them, whatever handler it has.

use std::thread;
use std::time::Duration;

use probing_process::procfs::status::Status;
use probing_process::procfs::threads::{self, Tid};
use probing_proto::process::Pid;

const TRAP: u64 = 1 << (libc::SIGTRAP - 1);
/// A thread that starts another one blocks all signals for an instant, and the new one begins so.
const READS: usize = 10;
const READ_INTERVAL: Duration = Duration::from_millis(1);
/// What the probe calls its threads.
const OURS: &str = "probing";

/// Those of these threads that block SIGTRAP, and not for an instant.
pub(crate) fn blocking(pid: Pid, tids: &[Tid]) -> Vec<Tid> {
    let blocks =
        |tid: &Tid| Status::of_thread(pid, *tid).is_some_and(|status| status.blocked & TRAP != 0);
    let mut found: Vec<Tid> = tids.iter().copied().filter(blocks).collect();
    for _ in 1..READS {
        if found.is_empty() {
            break;
        }
        thread::sleep(READ_INTERVAL);
        found.retain(blocks);
    }
    found
}

/// Whether the process has a handler for SIGTRAP.
pub(crate) fn catches(status: &Status) -> bool {
    status.caught & TRAP != 0
}

/// Whether it is a thread of the probe.
pub(crate) fn is_ours(pid: Pid, tid: Tid) -> bool {
    threads::name(pid, tid).is_some_and(|name| name.starts_with(OURS))
}

/// What it is called, without anything that a terminal would obey.
pub(crate) fn name(pid: Pid, tid: Tid) -> Option<String> {
    Some(threads::name(pid, tid)?.escape_debug().to_string())
}
