//! Writes a capture.
//!
//! Its file is there when all of it is: until then it has another name.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use probing_proto::capture::{Excerpt, MANIFEST, Manifest, SOURCES, STACKS, TASKS};
use probing_proto::report::{BacktraceReport, TasksReport};
use serde::Serialize;
use tempfile::{NamedTempFile, TempPath};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::error::{CaptureError, as_io};
use crate::table_entry;

/// A capture that is being written. Dropped before its end, it leaves nothing behind.
#[derive(Debug)]
pub struct CaptureWriter {
    path: PathBuf,
    unfinished: TempPath,
    archive: ZipWriter<BufWriter<File>>,
}

impl CaptureWriter {
    /// Begins a file that only its user may read: values of variables are in it.
    pub fn create(path: &Path) -> Result<Self, CaptureError> {
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let not_written = |source| CaptureError::NotWritten {
            path: path.to_owned(),
            source,
        };
        let file = NamedTempFile::new_in(folder).map_err(not_written)?;
        let (file, unfinished) = file.into_parts();
        Ok(Self {
            path: path.to_owned(),
            unfinished,
            archive: ZipWriter::new(BufWriter::new(file)),
        })
    }

    pub fn stacks(&mut self, stacks: &BacktraceReport) -> Result<(), CaptureError> {
        self.json(STACKS, stacks)
    }

    pub fn tasks(&mut self, tasks: &TasksReport) -> Result<(), CaptureError> {
        self.json(TASKS, tasks)
    }

    pub fn sources(&mut self, sources: &[Excerpt]) -> Result<(), CaptureError> {
        self.json(SOURCES, sources)
    }

    /// A table, written by `write` as a stream of Arrow's.
    pub fn table<T, E: From<CaptureError>>(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
    ) -> Result<T, E> {
        let began = self.begin(&table_entry(name));
        began.map_err(|source| self.not_written(source))?;
        write(&mut self.archive)
    }

    /// Makes it a capture of its name.
    pub fn finish(mut self, manifest: &Manifest) -> Result<(), CaptureError> {
        self.json(MANIFEST, manifest)?;
        let Self {
            path,
            unfinished,
            archive,
        } = self;
        let written = archive.finish().map_err(as_io).and_then(|mut file| {
            file.flush()?;
            unfinished.persist(&path).map_err(|error| error.error)
        });
        written.map_err(|source| CaptureError::NotWritten { path, source })
    }

    fn json(&mut self, entry: &str, value: &(impl Serialize + ?Sized)) -> Result<(), CaptureError> {
        let written = self.begin(entry).and_then(|()| {
            serde_json::to_writer(&mut self.archive, value).map_err(io::Error::from)
        });
        written.map_err(|source| self.not_written(source))
    }

    fn begin(&mut self, entry: &str) -> io::Result<()> {
        // A table may be larger than the old format of archives allows.
        let options = SimpleFileOptions::default().large_file(true);
        self.archive.start_file(entry, options).map_err(as_io)
    }

    fn not_written(&self, source: io::Error) -> CaptureError {
        CaptureError::NotWritten {
            path: self.path.clone(),
            source,
        }
    }
}
