//! Errors of processes of this machine: finding, reading and attaching to them.

use std::io;
use std::path::PathBuf;

use probing_attach::AttachError;
use probing_process::error::ProcessError;
use probing_proto::paths::NotPrivate;
use probing_proto::process::Pid;
use probing_stacks::StackError;
use probing_watchpoint::{NotBytes, WatchpointError};

use crate::error::ClientError;

/// Why a process of this machine cannot be reached, read or attached to.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    #[error("no such process: {pid}")]
    NoSuchProcess { pid: Pid },
    #[error("process has ended; its parent has not collected its status yet: {pid}")]
    Zombie { pid: Pid },
    #[error("process has ended; its probe left a folder behind: {}", folder.display())]
    LeftFolder { pid: Pid, folder: PathBuf },
    #[error("not a Python process: {pid} ({command})")]
    NotPython { pid: Pid, command: String },
    #[error("process belongs to another user (uid {uid}): {pid}")]
    OtherUser { pid: Pid, uid: u32 },
    #[error("the probe of process {pid} is gone, only its socket is left: {socket}")]
    DeadSocket { pid: Pid, socket: PathBuf },
    #[error("nobody listens at socket: {socket}")]
    NobodyListens { socket: PathBuf },
    #[error("the socket leads to another process: {why}: {}", socket.display())]
    OtherProbe { socket: PathBuf, why: String },
    #[error(transparent)]
    NotPrivate(#[from] NotPrivate),
    #[error("process is stopped by a signal and cannot answer: {pid}")]
    Stopped { pid: Pid },
    #[error("cannot connect to {socket}: {source}")]
    NotConnected {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the Python package `probing` was not found beside this command")]
    NoPackage,
    #[error("cannot read the Python package: {source}")]
    PackageUnreadable {
        #[source]
        source: io::Error,
    },
    #[error("cannot copy the probe into the target's folder {place}: {source}")]
    NotCopied {
        place: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Attach(AttachError),
    /// Python cannot run in the process, and this is why.
    #[error("{error}; {holder}")]
    GilHeld { error: AttachError, holder: String },
    #[error(transparent)]
    Stacks(#[from] StackError),
    #[error(transparent)]
    NotBytes(#[from] NotBytes),
    #[error(transparent)]
    Watchpoint(#[from] WatchpointError),
    /// What was to be watched has no place, and this is why.
    #[error("{why}")]
    NoStorage { why: String },
    /// It may not be read from outside, and its probe cannot be asked.
    #[error("{refusal}; and its probe cannot be asked: {probe}")]
    NeitherWay {
        refusal: StackError,
        probe: Box<ClientError>,
    },
    #[error("the process behind this socket cannot be seen from here: {}", socket.display())]
    Unseen { socket: PathBuf },
}

impl LocalError {
    /// Whether it is that the process does not live any more.
    pub fn is_end(&self) -> bool {
        matches!(
            self,
            Self::NoSuchProcess { .. }
                | Self::Zombie { .. }
                | Self::LeftFolder { .. }
                | Self::Watchpoint(WatchpointError::Ended { .. })
                | Self::Stacks(StackError::Process(
                    ProcessError::Ended { .. } | ProcessError::NoSuchProcess { .. }
                ))
        )
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Zombie { .. } => "a process that has ended has no stacks",
            Self::LeftFolder { .. } => {
                "it was killed, or exited at once; `probing list` removes what dead processes left"
            }
            Self::NoSuchProcess { .. } | Self::NotPython { .. } => {
                "`probing list` shows the processes that can be looked at"
            }
            Self::OtherUser { .. } => "run `probing` as that user, or as root",
            Self::DeadSocket { .. } => {
                "the process has become another program; `probing list` removes what dead probes left"
            }
            Self::OtherProbe { .. } => {
                "nothing was sent; remove that socket, or set PROBING_DIR to a folder of your own for the target"
            }
            Self::NobodyListens { .. } => "`probing list` shows the processes whose probes listen",
            Self::Stopped { pid } => return Some(format!("resume it with: kill -CONT {pid}")),
            Self::NoPackage => {
                "install it with `pip install .` in a checkout of Probing, or set PROBING_PACKAGE to the folder that contains it"
            }
            Self::NotCopied { .. } => {
                "the target needs a writable folder: start it with PROBING_DIR set to one"
            }
            Self::NoStorage { .. } => {
                "name a tensor or an array, as in model.fc1.weight, weight[3, 5], memoryview(data)[8:]; or any bytes: --addr"
            }
            Self::Unseen { .. } => {
                "it runs in another container: run `probing` in there, or on the host"
            }
            Self::NotPrivate(error) => return Some(error.hint()),
            Self::Attach(error) | Self::GilHeld { error, .. } => return error.hint(),
            Self::Stacks(error) => return error.hint(),
            Self::NotBytes(error) => return error.hint(),
            Self::Watchpoint(error) => return error.hint(),
            Self::NeitherWay { refusal, probe } => return probe.hint().or_else(|| refusal.hint()),
            Self::NotConnected { .. } | Self::PackageUnreadable { .. } => return None,
        };
        Some(hint.to_owned())
    }
}
