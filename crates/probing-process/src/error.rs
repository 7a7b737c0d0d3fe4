//! Errors of reading a process, with their hints.

use std::io;
use std::path::PathBuf;

use probing_proto::process::Pid;

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("no such process: {pid}")]
    NoSuchProcess { pid: Pid },
    #[error("not a process but a thread of process {process}: {pid}")]
    IsThread { pid: Pid, process: Pid },
    #[error("not permitted to read process {pid}: {reason}")]
    NotPermitted {
        pid: Pid,
        reason: Denied,
        #[source]
        source: io::Error,
    },
    /// It is in the middle of `exec`.
    #[error("process has no memory now: {pid}")]
    WithoutMemory { pid: Pid },
    #[error("process {pid} is not a Python: {}", program.display())]
    NotPython { pid: Pid, program: PathBuf },
    #[error("process has ended: {pid}")]
    Ended { pid: Pid },
    #[error("cannot {what} in process {pid}")]
    Io {
        pid: Pid,
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

/// Who or what forbids it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("it belongs to user {uid}")]
    OtherUser { uid: u32 },
    #[error("kernel.yama.ptrace_scope is {value}")]
    PtraceScope { value: u8 },
    #[error("it is not dumpable (it changed users, or asked to be left alone)")]
    NotDumpable,
    #[error("it is a thread of the kernel")]
    KernelThread,
    #[error("the kernel does not say why (seccomp, a security module, or another user namespace)")]
    Unknown,
}

impl ProcessError {
    /// What the reader can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotPermitted { reason, .. } => reason.hint(),
            Self::IsThread { process, .. } => Some(format!("name the process: {process}")),
            Self::WithoutMemory { .. } => {
                Some("the process is becoming another program: try again".to_owned())
            }
            Self::NoSuchProcess { .. }
            | Self::NotPython { .. }
            | Self::Ended { .. }
            | Self::Io { .. } => None,
        }
    }
}

impl Denied {
    /// What may help now; and what always does, from the program's next start on.
    fn hint(&self) -> Option<String> {
        let now = match self {
            Self::OtherUser { uid } => format!("run as user {uid}, or with CAP_SYS_PTRACE"),
            Self::PtraceScope { value: 1 } => {
                "only parents may read a process here: run with sudo, or \
                 `sysctl kernel.yama.ptrace_scope=0`"
                    .to_owned()
            }
            Self::PtraceScope { value: 3 } => {
                "reading processes is off until the next boot".to_owned()
            }
            Self::PtraceScope { .. } | Self::NotDumpable => {
                "run with CAP_SYS_PTRACE, for instance with sudo".to_owned()
            }
            Self::KernelThread => return None,
            Self::Unknown => "in a container, allow ptrace: docker run --cap-add=SYS_PTRACE, or \
                 securityContext.capabilities.add: [SYS_PTRACE]"
                .to_owned(),
        };
        let whose = match self {
            Self::OtherUser { .. } => " for its own user and root",
            _ => "",
        };
        Some(format!(
            "{now}; a program that was started with PROBING=1 or `probing run` needs no ptrace{whose} \
             (see docs/permissions.md)"
        ))
    }
}
