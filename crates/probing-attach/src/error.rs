//! Errors of an attach, with their hints.

use std::io;
use std::time::Duration;

use probing_process::access::permission;
use probing_process::error::ProcessError;
use probing_process::procfs::status::Status;
use probing_proto::process::Pid;

/// The source did not run to its end. Nothing of it runs later, unless the error says so.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("process {pid} is already traced by process: {tracer}")]
    AlreadyTraced { pid: Pid, tracer: Pid },
    #[error("cannot attach to process {pid}: {what}")]
    NotSupported { pid: Pid, what: Unsupported },
    #[error("process is stopped: {pid}")]
    Stopped { pid: Pid },
    /// The source waited for the GIL until the deadline and was taken back: it will not run.
    #[error("could not run Python in process {pid} within {} ms: {seen}", waited.as_millis())]
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
    #[error("source is longer than {limit} bytes: {len}")]
    SourceTooLong { len: usize, limit: usize },
}

/// What we have no way into.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    #[error("Python {}.{} is older than 3.10", version.0, version.1)]
    OldPython { version: (u8, u8) },
    #[error("attaching by ptrace was never tested on this architecture: {name}")]
    Untried { name: &'static str },
    #[error("its C library is not supported: {name}")]
    Libc { name: &'static str },
    #[error("it runs with a shadow stack (CET)")]
    ShadowStack,
    #[error("its vector registers need more than the reserved space: {size} bytes")]
    VectorState { size: usize },
    #[error("it has no code to return by: {what}")]
    Gadget { what: &'static str },
    #[error("it may not be given new code (a seccomp filter, or a security module)")]
    NewCode,
    #[error("its filter of system calls (seccomp) kills it for one that we need, number: {number}")]
    Filter { number: i64 },
    #[error(
        "it has a filter of system calls (seccomp) that may kill it, and that only root can read"
    )]
    UnknownFilter,
    #[error("it is not initialised, or already shutting down")]
    NotInitialized,
}

impl AttachError {
    /// What the reader can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Process(error) => return error.hint(),
            Self::AlreadyTraced { tracer, .. } => {
                return Some(format!(
                    "a process has one tracer at most: end process {tracer} (gdb, strace, py-spy …) first"
                ));
            }
            Self::Stopped { pid } => {
                return Some(format!(
                    "resume it (`kill -CONT {pid}`), or attach to the stopped process with --force"
                ));
            }
            Self::NotSupported { what, .. } => match what {
                Unsupported::OldPython { .. } => "Python 3.10 or newer is needed",
                Unsupported::NotInitialized => "try again in a moment",
                Unsupported::Untried { .. } => {
                    "start the program with PROBING=1 instead; to try on a process that may crash, use \
                     --force, and please report the result"
                }
                Unsupported::UnknownFilter => {
                    "let root attach (sudo), or start the program with PROBING=1; if the filter only answers errors, \
                     --force is safe"
                }
                Unsupported::NewCode | Unsupported::Filter { .. } => {
                    "start the program with PROBING=1 instead"
                }
                _ => "start the program with PROBING=1 instead, and please report this",
            },
            Self::Busy { .. } => {
                "some thread keeps the GIL: see its stack with `probing backtrace`, wait, or use \
                 --force (runs inside the blocked thread: may hang or crash the program)"
            }
            Self::NoThread { .. } => "try again",
            Self::Unfinished { .. } => "the code was not interrupted and will end by itself",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// Turns the kernel's refusal to do `what` into its reason.
pub(crate) fn explained(pid: Pid, what: &'static str, source: io::Error) -> AttachError {
    let error = permission::explain(pid, what, source);
    let denied = matches!(error, ProcessError::NotPermitted { .. });
    match Status::of(pid).and_then(|status| status.tracer()) {
        Some(tracer) if denied => AttachError::AlreadyTraced { pid, tracer },
        _ => error.into(),
    }
}

/// Gives a bare I/O error its place.
pub(crate) trait During<T> {
    fn during(self, pid: Pid, what: &'static str) -> Result<T, AttachError>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, pid: Pid, what: &'static str) -> Result<T, AttachError> {
        self.map_err(|source| match source.raw_os_error() {
            Some(libc::ESRCH) => ProcessError::Ended { pid }.into(),
            _ => ProcessError::Io { pid, what, source }.into(),
        })
    }
}
