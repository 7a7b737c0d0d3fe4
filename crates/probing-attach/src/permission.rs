//! Looks at a process before it is touched, and finds out why the kernel said no.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use probing_proto::process::Pid;

use crate::error::{AttachError, Denied};
use crate::threads::{self, Tid};

/// What the status file of a process (or thread) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) process: Pid,
    /// The thread's id in its own pid namespace.
    pub(crate) id_inside: i32,
    /// The kernel names the thread that traces, not its process.
    tracer_thread: Option<Pid>,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// One bit for each signal that is blocked.
    pub(crate) blocked: u64,
}

impl Status {
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        Self::parse(&read(&format!("/proc/{pid}/status"))?)
    }

    pub(crate) fn of_thread(pid: Pid, tid: Tid) -> Option<Self> {
        Self::parse(&read(&format!("/proc/{pid}/task/{tid}/status"))?)
    }

    pub(crate) fn tracer(&self) -> Option<Pid> {
        let thread = self.tracer_thread?;
        Some(Self::of(thread).map_or(thread, |tracer| tracer.process))
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|value| value.split_ascii_whitespace())
        };
        // Uid and Gid: real, effective, saved, file system. The file system's own one owns new files.
        let last = |name| field(name)?.nth(3)?.parse().ok();
        Some(Self {
            process: Pid(field("Tgid")?.next()?.parse().ok()?),
            id_inside: field("NSpid").or(field("Pid"))?.last()?.parse().ok()?,
            tracer_thread: field("TracerPid")?
                .next()?
                .parse()
                .ok()
                .filter(|pid| *pid != 0)
                .map(Pid),
            uid: last("Uid")?,
            gid: last("Gid")?,
            blocked: u64::from_str_radix(field("SigBlk")?.next()?, 16).ok()?,
        })
    }
}

/// Refuses what is no process at all.
pub(crate) fn check(pid: Pid) -> Result<Status, AttachError> {
    let status = Status::of(pid).ok_or(AttachError::NoSuchProcess { pid })?;
    if status.process != pid {
        let process = status.process;
        return Err(AttachError::IsThread { pid, process });
    }
    Ok(status)
}

/// A process without memory: one of the kernel's own, or one that has ended.
pub(crate) fn without_memory(pid: Pid) -> AttachError {
    match threads::stat(pid, Tid::main_of(pid)) {
        Some(stat) if !stat.is_dead() => AttachError::NotPermitted {
            pid,
            reason: Denied::KernelThread,
            source: io::Error::from_raw_os_error(libc::EPERM),
        },
        _ => AttachError::Ended { pid },
    }
}

/// Turns the kernel's EPERM, EACCES or ESRCH into its reason.
pub(crate) fn explain(pid: Pid, source: io::Error) -> AttachError {
    let denied = matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES));
    let Some(status) = Status::of(pid) else {
        return AttachError::NoSuchProcess { pid };
    };
    if !denied {
        return match source.raw_os_error() {
            Some(libc::ESRCH) => AttachError::Ended { pid },
            _ => AttachError::Io {
                pid,
                what: "trace",
                source,
            },
        };
    }
    if let Some(tracer) = status.tracer() {
        return AttachError::AlreadyTraced { pid, tracer };
    }
    AttachError::NotPermitted {
        pid,
        reason: reason(pid, status),
        source,
    }
}

fn reason(pid: Pid, status: Status) -> Denied {
    let ours = fs::metadata("/proc/self").map(|data| data.uid());
    let owner = fs::metadata(format!("/proc/{pid}/maps")).map(|data| data.uid());
    let scope =
        read("/proc/sys/kernel/yama/ptrace_scope").and_then(|text| text.trim().parse().ok());
    let is_kernel = read(&format!("/proc/{pid}/maps")).is_some_and(|maps| maps.is_empty());
    if is_kernel {
        Denied::KernelThread
    } else if ours.is_ok_and(|uid| uid != 0 && uid != status.uid) {
        Denied::OtherUser { uid: status.uid }
    } else if owner.is_ok_and(|uid| uid != status.uid) {
        // The kernel gives the files of such a process to root.
        Denied::NotDumpable
    } else {
        match scope {
            Some(value) if value > 0 => Denied::PtraceScope { value },
            _ => Denied::Unknown,
        }
    }
}

fn read(path: &str) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let text = "Name:\tpy\nTgid:\t42\nPid:\t43\nTracerPid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nNSpid:\t43\t2\nSigBlk:\t0000000000000005\n";
        let status = Status::parse(text).unwrap();
        assert_eq!(
            (status.process, status.tracer_thread),
            (Pid(42), Some(Pid(7)))
        );
        assert_eq!(status.id_inside, 2);
        assert_eq!((status.uid, status.gid, status.blocked), (4, 8, 5));
        assert_eq!(Status::parse("Name:\tpy\n"), None);
    }

    #[test]
    fn what_does_not_exist_is_said_so() {
        let no_one = Pid(u32::MAX / 2);
        assert!(matches!(check(no_one), Err(AttachError::NoSuchProcess { pid }) if pid == no_one));
    }
}
