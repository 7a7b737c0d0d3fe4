//! Looks at a process before it is read, and finds out why the kernel said no.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use probing_proto::process::{Pid, Stat};

use crate::error::{Denied, StackError};

/// Refuses what is no process at all.
pub(crate) fn check(pid: Pid) -> Result<(), StackError> {
    let status = read(&format!("/proc/{pid}/status"));
    let process = status.as_deref().and_then(|text| field(text, "Tgid"));
    match process.and_then(|words| words.parse().ok().map(Pid)) {
        None => Err(StackError::NoSuchProcess { pid }),
        Some(process) if process != pid => Err(StackError::IsThread { pid, process }),
        Some(_) => Ok(()),
    }
}

/// A process without memory: one of the kernel's own, one that has ended, or one in the middle of `exec`.
pub(crate) fn without_memory(pid: Pid) -> StackError {
    let line = read(&format!("/proc/{pid}/stat")).unwrap_or_default();
    match Stat::parse(&line) {
        Some(_) if is_kernels_own(&line) => StackError::NotPermitted {
            pid,
            reason: Denied::KernelThread,
            source: io::Error::from_raw_os_error(libc::EPERM),
        },
        Some(stat) if !stat.is_dead() => StackError::NotInitialized {
            pid,
            missing: "memory",
        },
        _ => StackError::Ended { pid },
    }
}

/// Whether a line of `/proc/<pid>/stat` has the flag `PF_KTHREAD`.
fn is_kernels_own(stat: &str) -> bool {
    const KERNEL_THREAD: u32 = 0x0020_0000;
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let flags = fields.and_then(|fields| fields.split_ascii_whitespace().nth(6)?.parse().ok());
    flags.is_some_and(|flags: u32| flags & KERNEL_THREAD != 0)
}

/// Turns the kernel's refusal to do `what` into its reason.
pub(crate) fn explain(pid: Pid, what: &'static str, source: io::Error) -> StackError {
    let Some(status) = read(&format!("/proc/{pid}/status")) else {
        return StackError::Ended { pid };
    };
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => StackError::NotPermitted {
            pid,
            reason: reason(pid, &status),
            source,
        },
        Some(libc::ESRCH) => StackError::Ended { pid },
        _ => StackError::Io { pid, what, source },
    }
}

fn reason(pid: Pid, status: &str) -> Denied {
    let ours = fs::metadata("/proc/self").map(|data| data.uid()).ok();
    let owner = fs::metadata(format!("/proc/{pid}/maps")).map(|data| data.uid());
    // Uid: real, effective, saved, file system.
    let theirs =
        field(status, "Uid").and_then(|words| words.split_ascii_whitespace().nth(3)?.parse().ok());
    let scope =
        read("/proc/sys/kernel/yama/ptrace_scope").and_then(|text| text.trim().parse().ok());
    match (ours, theirs) {
        _ if read(&format!("/proc/{pid}/stat")).is_some_and(|stat| is_kernels_own(&stat)) => {
            Denied::KernelThread
        }
        (Some(ours), Some(uid)) if ours != 0 && ours != uid => Denied::OtherUser { uid },
        // The kernel gives the files of such a process to root.
        (_, Some(uid)) if owner.is_ok_and(|owner| owner != uid) => Denied::NotDumpable,
        _ => match scope {
            Some(value) if value > 0 => Denied::PtraceScope { value },
            _ => Denied::Unknown,
        },
    }
}

/// The value of one line of a status file.
pub(crate) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(str::trim)
}

pub(crate) fn read(path: &str) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_a_status_is_found() {
        let text = "Name:\tpy\nTgid:\t42\nUid:\t1\t2\t3\t4\n";
        assert_eq!(field(text, "Tgid"), Some("42"));
        assert_eq!(field(text, "Uid"), Some("1\t2\t3\t4"));
        assert_eq!(field(text, "Gid"), None);
    }

    #[test]
    fn a_thread_of_the_kernel_has_a_flag() {
        assert!(is_kernels_own("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0"));
        assert!(!is_kernels_own("42 (a) b) S 1 42 1 0 -1 4194560 1 0"));
    }

    #[test]
    fn what_does_not_exist_is_said_so() {
        let no_one = Pid(u32::MAX / 2);
        assert!(matches!(check(no_one), Err(StackError::NoSuchProcess { pid }) if pid == no_one));
    }
}
