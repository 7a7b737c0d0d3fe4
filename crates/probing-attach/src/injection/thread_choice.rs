//! Which threads of a process to stop.
//!
//! Nothing here stops or slows one.

use std::io;
use std::time::Duration;

use probing_process::procfs::threads::{SyscallState, Tid, thread_ids};
use probing_process::read_text;
use probing_proto::process::Pid;

use crate::arch;

/// The number of a system call in which a thread holds no lock of libc and is not inside malloc.
pub(crate) fn safe_call(place: SyscallState) -> Option<i64> {
    match place {
        SyscallState::Call { number, .. } if arch::is_safe_call(number) => Some(number),
        _ => None,
    }
}

fn restart_cost(place: SyscallState) -> u8 {
    match place {
        SyscallState::Call {
            number, arguments, ..
        } => arch::restart_cost(number, arguments[3]),
        _ => u8::MAX,
    }
}

/// Threads in which a function may be called, the best first.
///
/// Main comes last: while a thread is stopped, signals sent to the process go to the others. Calls that answer
/// a stop with EINTR or that keep their end time in the kernel come after those that are simply called again.
pub(crate) fn callable(pid: Pid) -> io::Result<Vec<Tid>> {
    const MAX_CANDIDATES: usize = 8;
    let main = Tid::main_of(pid);
    let mut found = Vec::new();
    for tid in thread_ids(pid)?.into_iter().filter(|tid| *tid != main) {
        let place = SyscallState::of(pid, tid);
        if safe_call(place).is_some() {
            found.push((restart_cost(place), tid));
            if found.len() == MAX_CANDIDATES {
                break;
            }
        }
    }
    found.sort_unstable();
    let mut found: Vec<Tid> = found.into_iter().map(|(_, tid)| tid).collect();
    if safe_call(SyscallState::of(pid, main)).is_some() {
        found.push(main);
    }
    Ok(found)
}

/// How long a thread has had a CPU; nothing if the kernel does not tell.
pub(crate) fn cpu_time(pid: Pid, tid: Tid) -> Duration {
    let text = read_text(pid, &format!("task/{tid}/schedstat")).unwrap_or_default();
    let nanos = text.split_ascii_whitespace().next();
    Duration::from_nanos(nanos.and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}
