//! What the kernel adds about a thread: its id, and what it does.

use probing_process::access::source::Kernel;
use probing_process::procfs::status::Status;
use probing_process::procfs::threads::{self, SyscallState, Tid};

/// Length of the structure that holds the GIL, on every version and machine known.
const GIL: u64 = 208;

/// A thread for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) tid: u32,
    /// The id that the thread itself sees.
    pub(crate) inner: u32,
}

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// On a CPU, or waiting for one.
    Running,
    /// Asleep in a system call.
    Syscall {
        number: i64,
        name: Option<&'static str>,
    },
    /// Asleep otherwise: a page fault, or the kernel does not tell.
    Asleep,
    /// Held by SIGSTOP or a debugger.
    Stopped,
}

pub(crate) fn list_tasks(kernel: &dyn Kernel) -> Vec<Task> {
    let is_inside = Status::of(kernel).is_some_and(|status| status.id_inside != kernel.pid().0);
    let tasks = threads::thread_ids(kernel).unwrap_or_default();
    tasks
        .into_iter()
        .map(|tid| {
            let status = is_inside.then(|| Status::of_thread(kernel, tid)).flatten();
            Task {
                tid: tid.0,
                inner: status.map_or(tid.0, |status| status.id_inside),
            }
        })
        .collect()
}

/// Whether the process as a whole is held.
pub(crate) fn is_stopped(kernel: &dyn Kernel) -> bool {
    threads::stat(kernel, Tid::main_of(kernel.pid()))
        .is_some_and(|stat| stat.is_stopped() || stat.is_held())
}

/// Whether a thread there waits for this GIL.
pub(crate) fn waits_for(place: SyscallState, gil: u64) -> bool {
    matches!(place, SyscallState::Call { number, arguments: [first, ..], .. } if number == libc::SYS_futex
        && gil != 0 && (gil..gil.saturating_add(GIL)).contains(&first))
}

impl From<SyscallState> for State {
    fn from(place: SyscallState) -> Self {
        match place {
            SyscallState::Running => Self::Running,
            SyscallState::Call { number, .. } => Self::Syscall {
                number,
                name: place.call_name(),
            },
            SyscallState::Other => Self::Asleep,
        }
    }
}

#[cfg(test)]
mod tests {
    use probing_proto::process::Pid;

    use super::*;

    #[test]
    fn a_thread_waits_for_the_gil_whose_words_it_sleeps_on() {
        let futex = libc::SYS_futex;
        let line = format!("{futex} 0x7f40 0x189 0x0 0x9 0x0 0xffffffff 0x7f10 0x7f44\n");
        let place = SyscallState::parse(&line);
        assert!(waits_for(place, 0x7f40) && waits_for(place, 0x7f20));
        assert!(!waits_for(place, 0x7f41) && !waits_for(place, 0x7e00) && !waits_for(place, 0));
        let (number, name) = (futex, Some("futex"));
        assert_eq!(State::from(place), State::Syscall { number, name });
    }

    #[test]
    fn this_process_has_tasks() {
        let pid = Pid(std::process::id());
        let tasks = list_tasks(&pid);
        assert!(tasks.iter().any(|task| task.tid == pid.0));
        assert!(!is_stopped(&pid));
    }
}
