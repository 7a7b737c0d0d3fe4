//! Source files by the names that a target gives them, which may be any: devices, pipes, files of the kernel that never
//! end, file systems whose server does not answer.
//!
//! Only regular files are read, without waiting, at most as much as they say they have, and by a thread that is left
//! behind when a file system keeps it too long.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

/// Larger files hold no source that anybody wrote.
const MAX_SOURCE: u64 = 8 << 20;
/// For all files of one reader.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads files one after the other.
#[derive(Debug)]
pub(crate) struct SourceReader {
    worker: Option<Worker>,
    /// What is left for waiting. With none of it nothing more is read.
    left: Duration,
}

#[derive(Debug)]
struct Worker {
    asked: Sender<PathBuf>,
    told: Receiver<String>,
}

impl Default for SourceReader {
    fn default() -> Self {
        Self {
            worker: None,
            left: READ_TIMEOUT,
        }
    }
}

impl SourceReader {
    /// What stands in a file; nothing when it is no readable file, or cannot be read in time.
    pub(crate) fn read(&mut self, path: &Path) -> String {
        if self.left.is_zero() {
            return String::new();
        }
        let Some(worker) = self.worker.take().or_else(Worker::start) else {
            return String::new();
        };
        let began = Instant::now();
        let asked = worker.asked.send(path.to_owned()).ok();
        let told = asked.and_then(|()| worker.told.recv_timeout(self.left).ok());
        self.left = self.left.saturating_sub(began.elapsed());
        match told {
            Some(text) => {
                self.worker = Some(worker);
                text
            }
            None => String::new(),
        }
    }
}

impl Worker {
    /// Its thread ends with the reader, or when the file that keeps it lets go.
    fn start() -> Option<Self> {
        let (asked, paths) = mpsc::channel::<PathBuf>();
        let (tell, told) = mpsc::channel();
        let work = move || {
            for path in paths {
                if tell.send(text_of(&path)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("sources".to_owned());
        thread.spawn(work).ok()?;
        Some(Self { asked, told })
    }
}

fn text_of(path: &Path) -> String {
    let bytes = bytes_of(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn bytes_of(path: &Path) -> Option<Vec<u8>> {
    // A pipe is not waited for, a terminal does not become ours.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let length = file.metadata().ok().filter(Metadata::is_file)?.len();
    // Files of the kernel say that they are empty: what may wait for ever (/proc/kmsg) is not read at all.
    if length > MAX_SOURCE {
        return None;
    }
    let mut bytes = Vec::with_capacity(length as usize);
    file.take(length).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn what_is_no_plain_file_is_neither_read_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, source) = (folder.path().join("pipe"), folder.path().join("a.py"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        std::fs::write(&source, "x = 1\n").unwrap();
        let mut reader = SourceReader::default();
        assert_eq!(reader.read(&source), "x = 1\n");
        for path in [
            &pipe,
            Path::new("/proc/kmsg"),
            Path::new("/dev/zero"),
            folder.path(),
            Path::new("/none"),
        ] {
            assert_eq!(reader.read(path), "", "{}", path.display());
        }
        assert_eq!(reader.read(&source), "x = 1\n");
    }
}
