//! Permission to read a process, and the reason of a refusal.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use probing_proto::process::{Pid, Stat};

use crate::error::{Denied, ProcessError};
use crate::procfs::status::Status;
use crate::{proc, read_text};

/// Refuses what is no process at all.
pub fn check(pid: Pid) -> Result<Status, ProcessError> {
    let status = Status::of(pid).ok_or(ProcessError::NoSuchProcess { pid })?;
    if status.process != pid {
        let process = status.process;
        return Err(ProcessError::IsThread { pid, process });
    }
    Ok(status)
}

/// A process without memory: one of the kernel's own, one that has ended, or one in the middle of `exec`.
pub fn without_memory(pid: Pid) -> ProcessError {
    let line = read_text(pid, "stat").unwrap_or_default();
    match Stat::parse(&line) {
        Some(_) if is_kernels_own(&line) => ProcessError::NotPermitted {
            pid,
            reason: Denied::KernelThread,
            source: io::Error::from_raw_os_error(libc::EPERM),
        },
        Some(stat) if !stat.is_dead() => ProcessError::WithoutMemory { pid },
        _ => ProcessError::Ended { pid },
    }
}

/// Turns the kernel's refusal to do `what` into its reason.
pub fn explain(pid: Pid, what: &'static str, source: io::Error) -> ProcessError {
    let Some(status) = Status::of(pid) else {
        return ProcessError::Ended { pid };
    };
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => ProcessError::NotPermitted {
            pid,
            reason: reason(pid, status),
            source,
        },
        Some(libc::ESRCH) => ProcessError::Ended { pid },
        _ => ProcessError::Io { pid, what, source },
    }
}

fn reason(pid: Pid, status: Status) -> Denied {
    let ours = fs::metadata("/proc/self").map(|data| data.uid());
    let owner = fs::metadata(proc(pid, "maps")).map(|data| data.uid());
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    if read_text(pid, "stat").is_some_and(|stat| is_kernels_own(&stat)) {
        Denied::KernelThread
    } else if ours.is_ok_and(|uid| uid != 0 && uid != status.uid) {
        Denied::OtherUser { uid: status.uid }
    } else if owner.is_ok_and(|uid| uid != status.uid) {
        // The kernel gives the files of such a process to root.
        Denied::NotDumpable
    } else {
        match scope.ok().and_then(|text| text.trim().parse().ok()) {
            Some(value) if value > 0 => Denied::PtraceScope { value },
            _ => Denied::Unknown,
        }
    }
}

/// Whether a line of `/proc/<pid>/stat` has the flag `PF_KTHREAD`.
fn is_kernels_own(stat: &str) -> bool {
    const KERNEL_THREAD: u32 = 0x0020_0000;
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let flags = fields.and_then(|fields| fields.split_ascii_whitespace().nth(6)?.parse().ok());
    flags.is_some_and(|flags: u32| flags & KERNEL_THREAD != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_the_kernel_has_a_flag() {
        assert!(is_kernels_own("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0"));
        assert!(!is_kernels_own("42 (a) b) S 1 42 1 0 -1 4194560 1 0"));
    }

    #[test]
    fn what_does_not_exist_is_said_so() {
        let no_one = Pid(u32::MAX / 2);
        assert!(matches!(check(no_one), Err(ProcessError::NoSuchProcess { pid }) if pid == no_one));
    }
}
