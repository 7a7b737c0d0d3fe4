//! Errors of targets that are files: captures, and core files, which are none.

use std::path::PathBuf;

use probing_capture::CaptureError;
use probing_proto::process::Pid;

/// Why a file cannot stand for a process.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error("a capture of process {pid} can be read but runs no code: {}", path.display())]
    NotAlive { pid: Pid, path: PathBuf },
    #[error("a core file of {left}, not a process: {}", path.display())]
    CoreFile {
        path: PathBuf,
        /// The process that left it, in words.
        left: String,
    },
}

impl FileError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Capture(error) => error.hint().map(str::to_owned),
            Self::NotAlive { path, .. } => {
                let path = path.display();
                Some(format!(
                    "`probing -t {path} backtrace --all --locals` and `probing -t {path} query` show what it holds"
                ))
            }
            Self::CoreFile { path, .. } => {
                let path = path.display();
                Some(format!(
                    "this version reads living processes only; for Python stacks use `pystack core {path}`, \
                     for native ones `gdb -c {path}`"
                ))
            }
        }
    }
}
