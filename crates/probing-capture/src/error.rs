//! Why a capture cannot be written or read.

use std::io;
use std::path::PathBuf;

use probing_proto::capture::FORMAT;
use zip::result::ZipError;

#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("cannot open {}", path.display())]
    NotOpened {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("not a capture: {} ({why})", path.display())]
    NotACapture { path: PathBuf, why: String },
    #[error("{} has format {theirs}; this command reads {FORMAT}", path.display())]
    OtherFormat { path: PathBuf, theirs: u32 },
    #[error("{} is damaged: {part}: {why}", path.display())]
    Damaged {
        path: PathBuf,
        part: String,
        why: String,
    },
    #[error("cannot write {}", path.display())]
    NotWritten {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl CaptureError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotACapture { .. } => Some(
                "`probing -t PID capture -o x.probe` writes one; `unzip -l` shows what a file holds",
            ),
            Self::OtherFormat { .. } => {
                Some("open it with the version that wrote it, or a newer one")
            }
            Self::Damaged { .. } => Some("the copy may be incomplete"),
            Self::NotOpened { .. } | Self::NotWritten { .. } => None,
        }
    }
}

/// The error behind an error of the archive, when it is one of the file system.
pub(crate) fn as_io(error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
