//! Why a process could not be entered, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use probing_proto::process::Pid;

/// The source did not run to its end. Nothing of it runs later, unless the error says so.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("no such process: {pid}")]
    NoSuchProcess { pid: Pid },
    #[error("not a process but a thread of process {process}: {pid}")]
    IsThread { pid: Pid, process: Pid },
    #[error("not permitted to enter process {pid}: {reason}")]
    NotPermitted {
        pid: Pid,
        reason: Denied,
        #[source]
        source: io::Error,
    },
    #[error("process {pid} is already traced by process: {tracer}")]
    AlreadyTraced { pid: Pid, tracer: Pid },
    #[error("process {pid} is not a Python: {}", program.display())]
    NotPython { pid: Pid, program: PathBuf },
    #[error("process {pid} cannot be entered: {what}")]
    NotSupported { pid: Pid, what: Unsupported },
    #[error("process is stopped: {pid}")]
    Stopped { pid: Pid },
    /// The source waited for the GIL until the deadline and was taken back: it will not run.
    #[error("no chance to run Python in process {pid} within {} ms: {seen}", waited.as_millis())]
    Busy {
        pid: Pid,
        waited: Duration,
        seen: String,
    },
    /// The source began before the deadline and is still running.
    #[error("still running in process {pid} after {} ms", waited.as_millis())]
    Unfinished { pid: Pid, waited: Duration },
    #[error("no thread of process {pid} could be used: {seen}")]
    NoThread { pid: Pid, seen: String },
    #[error("the code raised in process {pid}: {message}")]
    Raised { pid: Pid, message: String },
    #[error("process ended meanwhile: {pid}")]
    Ended { pid: Pid },
    #[error("source is longer than {limit} bytes: {len}")]
    SourceTooLong { len: usize, limit: usize },
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

/// What we have no way into.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    #[error("Python {}.{} is older than 3.10", version.0, version.1)]
    OldPython { version: (u8, u8) },
    #[error("entering by ptrace is not written for this machine: {name}")]
    Architecture { name: &'static str },
    #[error("its C library is not known to work: {name}")]
    Libc { name: &'static str },
    #[error("it runs with a shadow stack (CET)")]
    ShadowStack,
    #[error("its vector registers need more room than we reserve: {size} bytes")]
    VectorState { size: usize },
    #[error("no code to return by was found in it: {what}")]
    Gadget { what: &'static str },
    #[error("it is not initialised, or already shutting down")]
    NotInitialized,
}

impl AttachError {
    /// What the reader can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotPermitted { reason, .. } => return reason.hint(),
            Self::IsThread { process, .. } => return Some(format!("name the process: {process}")),
            Self::AlreadyTraced { tracer, .. } => {
                return Some(format!(
                    "only one debugger fits: end process {tracer} (gdb, strace, py-spy …) first"
                ));
            }
            Self::Stopped { pid } => {
                return Some(format!(
                    "let it go on (`kill -CONT {pid}`), or run inside it as it is with --force"
                ));
            }
            Self::NotSupported { what, .. } => match what {
                Unsupported::OldPython { .. } => "Python 3.10 or newer is needed",
                Unsupported::NotInitialized => "try again in a moment",
                Unsupported::Architecture { .. } => "start the program with PROBING=1 instead",
                _ => "start the program with PROBING=1 instead, and please report this",
            },
            Self::Busy { .. } => {
                "some thread keeps the GIL: look at its stack from outside, wait, or use --force \
                 (runs in the blocked thread itself: it may hang or crash the program)"
            }
            Self::NoThread { .. } => "try again: threads move on",
            Self::Unfinished { .. } => "it was not interrupted and will end by itself",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

impl Denied {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::OtherUser { uid } => {
                return Some(format!(
                    "run as user {uid}, or with CAP_SYS_PTRACE (see docs/permissions.md)"
                ));
            }
            Self::PtraceScope { value: 1 } => {
                "only parents may trace here: run with sudo, or `sysctl kernel.yama.ptrace_scope=0` \
                 (see docs/permissions.md)"
            }
            Self::PtraceScope { value: 3 } => {
                "tracing is off until the next boot: start the program with PROBING=1 instead"
            }
            Self::PtraceScope { .. } | Self::NotDumpable => {
                "run with CAP_SYS_PTRACE, for instance with sudo (see docs/permissions.md)"
            }
            Self::KernelThread => return None,
            Self::Unknown => {
                "in a container, allow ptrace: docker run --cap-add=SYS_PTRACE, or \
                 securityContext.capabilities.add: [SYS_PTRACE] (see docs/permissions.md)"
            }
        };
        Some(hint.to_owned())
    }
}

/// Gives a bare I/O error its place.
pub(crate) trait During<T> {
    fn during(self, pid: Pid, what: &'static str) -> Result<T, AttachError>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, pid: Pid, what: &'static str) -> Result<T, AttachError> {
        self.map_err(|source| match source.raw_os_error() {
            Some(libc::ESRCH) => AttachError::Ended { pid },
            _ => AttachError::Io { pid, what, source },
        })
    }
}
