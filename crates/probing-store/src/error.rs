//! Why a ring cannot be read.

use std::io;
use std::path::PathBuf;

use probing_proto::tables::schema::SchemaError;

/// Why a file is not a ring that can be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot open {path}: {source}")]
    Unopenable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("not a regular file: {path}")]
    NotAFile { path: PathBuf },
    #[error("not a ring of recorded rows: {path}")]
    NotARing { path: PathBuf },
    #[error("a ring in the unknown format {version}: {path}")]
    Foreign { path: PathBuf, version: u32 },
    #[error("a ring with an invalid header: {path}")]
    BadHeader { path: PathBuf },
    #[error("a ring with an invalid schema: {path}: {source}")]
    BadSchema {
        path: PathBuf,
        #[source]
        source: SchemaError,
    },
}

impl OpenError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unopenable { .. } => "run `probing` as the user of the target, or as root",
            Self::Foreign { .. } => {
                "use the version of `probing` that the target was started with, or restart the target"
            }
            Self::NotAFile { .. }
            | Self::NotARing { .. }
            | Self::BadHeader { .. }
            | Self::BadSchema { .. } => {
                "remove the file if no target writes to it; other tables are not affected"
            }
        }
    }
}

/// Why rows cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read recorded rows of {table}: {source}")]
    Io {
        table: String,
        #[source]
        source: io::Error,
    },
    #[error("recorded rows of {table} are damaged: {what}")]
    Damaged { table: String, what: &'static str },
    #[error("the table {table} has no column number {column}")]
    NoColumn { table: String, column: usize },
}

impl ReadError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "run `probing` as the user of the target, or as root",
            Self::Damaged { .. } => {
                "something other than Probing has written into the files of this target; `probing clean` removes them once it has ended"
            }
            Self::NoColumn { .. } => "this is a defect of Probing",
        }
    }
}
