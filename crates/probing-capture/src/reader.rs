//! Reads a capture.
//!
//! It may come from anybody: whatever its bytes are, reading ends, with bounded memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use probing_proto::capture::{Excerpt, FORMAT, MANIFEST, Manifest, RINGS, SOURCES, STACKS, TASKS};
use probing_proto::report::{BacktraceReport, TasksReport};
use serde::de::DeserializeOwned;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::error::CaptureError;
use crate::table_entry;

/// Of a part that is not a table, unpacked.
const MAX_JSON_BYTES: u64 = 256 << 20;
/// Of a table, unpacked. A process records less than that.
const MAX_TABLE_BYTES: u64 = 4 << 30;

/// A capture whose manifest has been read. The rest is read when it is asked for.
#[derive(Debug, Clone)]
pub struct Capture {
    path: PathBuf,
    manifest: Manifest,
}

impl Capture {
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let manifest = read_json(path, MANIFEST, |value: serde_json::Value| {
            let theirs = value.get("format").and_then(serde_json::Value::as_u64);
            match theirs {
                Some(theirs) if theirs != u64::from(FORMAT) => Err(CaptureError::OtherFormat {
                    path: path.to_owned(),
                    theirs: u32::try_from(theirs).unwrap_or(u32::MAX),
                }),
                _ => serde_json::from_value(value).map_err(|error| damaged(path, MANIFEST, &error)),
            }
        })?;
        Ok(Self {
            path: path.to_owned(),
            manifest,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where the rings are, of one that the process wrote itself. Files of Arrow's are the tables of the others.
    pub fn rings(&self) -> Option<PathBuf> {
        let is_folder = self.path.is_dir();
        is_folder.then(|| self.path.join(RINGS))
    }

    pub fn stacks(&self) -> Result<BacktraceReport, CaptureError> {
        read_json(&self.path, STACKS, Ok)
    }

    pub fn tasks(&self) -> Result<TasksReport, CaptureError> {
        read_json(&self.path, TASKS, Ok)
    }

    pub fn sources(&self) -> Result<Vec<Excerpt>, CaptureError> {
        read_json(&self.path, SOURCES, Ok)
    }

    /// Has `read` read a table of it.
    pub fn table<T>(
        &self,
        name: &str,
        read: impl FnOnce(&mut dyn Read) -> T,
    ) -> Result<T, CaptureError> {
        let entry = table_entry(name);
        let mut archive = archive(&self.path)?;
        let mut part = archive
            .by_name(&entry)
            .map_err(|error| damaged(&self.path, &entry, &error))?;
        Ok(read(&mut Bounded::new(&mut part, MAX_TABLE_BYTES)))
    }
}

fn archive(path: &Path) -> Result<ZipArchive<File>, CaptureError> {
    let file = File::open(path).map_err(|source| CaptureError::NotOpened {
        path: path.to_owned(),
        source,
    })?;
    ZipArchive::new(file).map_err(|error| not_a_capture(path, &error))
}

fn read_json<T: DeserializeOwned, U>(
    path: &Path,
    entry: &str,
    then: impl FnOnce(T) -> Result<U, CaptureError>,
) -> Result<U, CaptureError> {
    if path.is_dir() {
        return read_part(path, entry, then);
    }
    let mut archive = archive(path)?;
    let part = match archive.by_name(entry) {
        Ok(part) => part,
        Err(ZipError::FileNotFound) if entry == MANIFEST => {
            return Err(not_a_capture(path, &format!("it has no {MANIFEST}")));
        }
        Err(error) => return Err(damaged(path, entry, &error)),
    };
    let value = serde_json::from_reader(io::BufReader::new(Bounded::new(part, MAX_JSON_BYTES)));
    then(value.map_err(|error| damaged(path, entry, &error))?)
}

/// Of a capture that the process wrote itself: a folder with the same parts.
fn read_part<T: DeserializeOwned, U>(
    path: &Path,
    entry: &str,
    then: impl FnOnce(T) -> Result<U, CaptureError>,
) -> Result<U, CaptureError> {
    let part = match File::open(path.join(entry)) {
        Ok(part) => part,
        Err(error) if error.kind() == io::ErrorKind::NotFound && entry == MANIFEST => {
            return Err(not_a_capture(path, &format!("it has no {MANIFEST}")));
        }
        Err(error) => return Err(damaged(path, entry, &error)),
    };
    let value = serde_json::from_reader(io::BufReader::new(Bounded::new(part, MAX_JSON_BYTES)));
    then(value.map_err(|error| damaged(path, entry, &error))?)
}

fn not_a_capture(path: &Path, why: &impl ToString) -> CaptureError {
    CaptureError::NotACapture {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn damaged(path: &Path, part: &str, why: &impl ToString) -> CaptureError {
    CaptureError::Damaged {
        path: path.to_owned(),
        part: part.to_owned(),
        why: why.to_string(),
    }
}

/// Fails when there is more than there may be: a few bytes can unpack to more than any memory has.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Bounded<R> {
    fn new(inner: R, most: u64) -> Self {
        Self { inner, left: most }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let left = self.left.checked_sub(read as u64);
        self.left = left.ok_or_else(|| io::Error::other("it is too large"))?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use probing_proto::process::Pid;
    use proptest::prelude::*;

    use super::*;
    use crate::CaptureWriter;

    fn manifest() -> Manifest {
        Manifest {
            format: FORMAT,
            probing: "0.1.0".into(),
            taken_at_nanos: 1,
            reason: "asked for".into(),
            host: "node".into(),
            pid: Pid(7),
            rank: Some(3),
            python: "3.12".into(),
            command: vec!["python".into(), "train.py".into()],
            stops: Vec::new(),
            points: Vec::new(),
            tables: vec!["user.loss".into()],
            missing: Vec::new(),
        }
    }

    fn excerpt() -> Excerpt {
        Excerpt {
            file: "train.py".into(),
            first: 3,
            lines: vec!["loss = 1".into(), String::new()],
        }
    }

    fn written(path: &Path, manifest: &Manifest) {
        let mut writer = CaptureWriter::create(path).unwrap();
        writer.sources(&[excerpt()]).unwrap();
        let table = |out: &mut dyn io::Write| {
            out.write_all(b"rows")
                .map_err(|source| CaptureError::NotWritten {
                    path: path.to_owned(),
                    source,
                })
        };
        writer.table("user.loss", table).unwrap();
        writer.finish(manifest).unwrap();
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.probe");
        written(&path, &manifest());
        let capture = Capture::open(&path).unwrap();
        assert_eq!(capture.manifest(), &manifest());
        assert_eq!(capture.sources().unwrap(), [excerpt()]);
        let table = capture.table("user.loss", |rows| {
            let mut text = String::new();
            rows.read_to_string(&mut text).unwrap();
            text
        });
        assert_eq!(table.unwrap(), "rows");
        assert!(matches!(
            capture.stacks(),
            Err(CaptureError::Damaged { .. })
        ));
    }

    #[test]
    fn an_unfinished_one_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.probe");
        let mut writer = CaptureWriter::create(&path).unwrap();
        writer.sources(&[excerpt()]).unwrap();
        assert!(!path.exists());
        drop(writer);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn others_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.probe");
        let open = || Capture::open(&path).unwrap_err();
        assert!(matches!(open(), CaptureError::NotOpened { .. }));
        fs::write(&path, "no archive").unwrap();
        assert!(matches!(open(), CaptureError::NotACapture { .. }));
        zip::ZipWriter::new(File::create(&path).unwrap())
            .finish()
            .unwrap();
        assert!(matches!(open(), CaptureError::NotACapture { .. }));
        written(
            &path,
            &Manifest {
                format: 9,
                ..manifest()
            },
        );
        assert!(matches!(
            open(),
            CaptureError::OtherFormat { theirs: 9, .. }
        ));
    }

    #[test]
    fn what_unpacks_to_too_much_is_not_unpacked() {
        let zeros = io::repeat(0).take(100);
        let mut bounded = Bounded::new(zeros, 99);
        assert!(io::copy(&mut bounded, &mut io::sink()).is_err());
        let zeros = io::repeat(0).take(100);
        assert!(io::copy(&mut Bounded::new(zeros, 100), &mut io::sink()).is_ok());
    }

    proptest! {
        #[test]
        fn no_bytes_make_reading_fail_otherwise(at in 0usize..2000, with: u8, cut in 0usize..2000) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("x.probe");
            written(&path, &manifest());
            let mut bytes = fs::read(&path).unwrap();
            let (at, cut) = (at % bytes.len(), cut % (bytes.len() + 1));
            bytes[at] = with;
            bytes.truncate(cut.max(at));
            File::create(&path).unwrap().write_all(&bytes).unwrap();
            if let Ok(capture) = Capture::open(&path) {
                drop(capture.sources());
                drop(capture.stacks());
                drop(capture.table("user.loss", |rows| io::copy(rows, &mut io::sink()).is_ok()));
            }
        }
    }
}
