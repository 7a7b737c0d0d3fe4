//! Errors between a command and its targets, split by cause, each with a hint.

mod agent;
mod capture;
mod local;
mod selection;

use std::io;
use std::path::Path;
use std::time::Duration;

use probing_capture::{Capture, CaptureError};
use probing_proto::agent::RefusalKind;
use probing_proto::message::{Failure, PROTOCOL};
use probing_proto::paths::NotPrivate;
use probing_proto::process::Pid;
use probing_proto::wire::WireError;
use probing_stacks::StackError;
use probing_watchpoint::{NotBytes, WatchpointError};

pub use self::agent::AgentError;
pub use self::capture::FileError;
pub use self::local::LocalError;
pub use self::selection::SelectionError;

/// Why a target could not be reached or did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The command line names no target, too many or the wrong ones.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// A process of this machine cannot be reached or read.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// An agent cannot be reached, or refused.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The target is a file.
    #[error(transparent)]
    File(#[from] FileError),
    #[error("no probe in process: {pid}")]
    NoProbe { pid: Pid },
    #[error("the probe did not answer within {patience:?}")]
    Silent { patience: Duration },
    /// The probe is there, and has dropped the request.
    #[error(
        "the probe did not answer within {patience:?}: the request was cancelled and changed nothing"
    )]
    GivenUp { patience: Duration },
    /// It had taken effect, or was about to, when it was cancelled.
    #[error("the probe did not answer within {patience:?}: the request may have taken effect")]
    Unfinished { patience: Duration },
    #[error("no answer within {patience:?}")]
    TooLong { patience: Duration },
    #[error("the connection to the target broke: {source}")]
    Broken {
        #[source]
        source: io::Error,
    },
    #[error("the target ended, or its probe was taken out, before it answered")]
    Gone,
    #[error("the target has ended: {pid}")]
    Ended { pid: Pid },
    #[error("the client disconnected before the code began")]
    HungUp,
    #[error("{}", .0.error)]
    Refused(Failure),
    /// The probe was reached and could not do it.
    #[error("{}", .0.error)]
    NotDone(Failure),
    #[error("the probe speaks protocol {theirs}, this command speaks {PROTOCOL}")]
    OtherProtocol { theirs: u32 },
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl ClientError {
    /// For what needs a process that lives.
    pub(crate) fn only_kept(path: &Path) -> Self {
        match Capture::open(path) {
            Ok(capture) => Self::File(FileError::NotAlive {
                pid: capture.manifest().pid,
                path: path.to_owned(),
            }),
            Err(error) => error.into(),
        }
    }

    /// Whether it is that the target does not live any more.
    pub fn is_end(&self) -> bool {
        match self {
            Self::Gone => true,
            Self::Local(error) => error.is_end(),
            Self::Agent(error) => error.has_kind(RefusalKind::Ended),
            _ => false,
        }
    }

    /// Whether it is that the target does not have the thread that was asked for.
    pub fn is_no_thread(&self) -> bool {
        match self {
            Self::Selection(error) => matches!(
                error,
                SelectionError::NoThread { .. } | SelectionError::NoMainThread
            ),
            Self::Agent(error) => error.has_kind(RefusalKind::NoThread),
            _ => false,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Selection(error) => return error.hint(),
            Self::Local(error) => return error.hint(),
            Self::Agent(error) => return error.hint(),
            Self::File(error) => return error.hint(),
            Self::Refused(failure) | Self::NotDone(failure) => return failure.hint.clone(),
            Self::NoProbe { .. } => {
                "`probing -t PID attach` brings one in; or start the program with PROBING=1 or `probing run -- …`"
            }
            Self::Silent { .. } => "`probing list` shows whether the process is stopped; try again",
            Self::GivenUp { .. } => {
                "a thread holds the GIL, or the machine is busy: `probing -t PID backtrace --all` shows where; try again"
            }
            Self::Unfinished { .. } => {
                "`probing -t PID breakpoints`, `trace --list` and `torch status` show what is on"
            }
            Self::TooLong { .. } => "the process may be stuck in the kernel: state D in `ps`",
            Self::OtherProtocol { .. } => {
                "use the `probing` command of the version that the target was started with"
            }
            Self::Broken { .. }
            | Self::Gone
            | Self::Ended { .. }
            | Self::HungUp
            | Self::Wire(_) => return None,
        };
        Some(hint.to_owned())
    }
}

impl From<NotPrivate> for ClientError {
    fn from(error: NotPrivate) -> Self {
        LocalError::from(error).into()
    }
}

impl From<StackError> for ClientError {
    fn from(error: StackError) -> Self {
        LocalError::from(error).into()
    }
}

impl From<NotBytes> for ClientError {
    fn from(error: NotBytes) -> Self {
        LocalError::from(error).into()
    }
}

impl From<WatchpointError> for ClientError {
    fn from(error: WatchpointError) -> Self {
        LocalError::from(error).into()
    }
}

impl From<CaptureError> for ClientError {
    fn from(error: CaptureError) -> Self {
        FileError::from(error).into()
    }
}
