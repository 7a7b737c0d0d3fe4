//! Errors of reading stacks, with their hints.

use probing_process::error::ProcessError;
use probing_proto::process::Pid;

#[derive(Debug, thiserror::Error)]
pub enum StackError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("stacks of Python {}.{} cannot be read, in process: {pid}", version.0, version.1)]
    NotSupported { pid: Pid, version: (u8, u8) },
    /// It starts, ends, or its memory is not what a Python's should be.
    #[error("no {missing} found in process: {pid}")]
    NotInitialized { pid: Pid, missing: &'static str },
    #[error("tasks of a Python without a GIL cannot be read, in process: {pid}")]
    NoTasks { pid: Pid },
}

impl StackError {
    /// What the reader can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Process(error) => error.hint(),
            Self::NotSupported { .. } => {
                Some("Python 3.10 to 3.14 can be read from outside".to_owned())
            }
            Self::NotInitialized { .. } => {
                Some("it may be starting or ending: try again in a moment".to_owned())
            }
            Self::NoTasks { .. } => Some("`probing backtrace --all` shows its threads".to_owned()),
        }
    }
}
