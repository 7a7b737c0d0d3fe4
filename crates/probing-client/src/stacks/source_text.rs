//! Source files by the names that a target reports, which may be devices, pipes or files of the kernel.
//!
//! Source files by the names that a target gives them, which may be any: devices, pipes, files of the kernel that
//! never end, file systems whose server does not answer.
//!
//! Only regular files are read that the target itself may read, without waiting, at most as much as they say they have, and
//! by a thread that is left behind when a file system keeps it too long.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use probing_process::access::foreign_files;
use probing_process::procfs::processes::Process;
use probing_proto::process::Pid;

use crate::archive;

/// Larger files hold no source that anybody wrote.
const MAX_SOURCE: u64 = 8 << 20;
/// What comes after them is not shown.
const MAX_LINES: usize = 400_000;
/// Of all files of one reader, in bytes.
const MAX_TEXT: usize = 64 << 20;
/// Of folders inside an archive.
const MAX_FOLDERS: usize = 32;
/// For all files of one reader.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Whose files they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pid: Pid,
    /// A path means another file to it than to us.
    sees_other_files: bool,
    is_ours: bool,
}

impl Owner {
    pub(crate) fn of(process: &Process) -> Self {
        Self {
            pid: process.pid,
            sees_other_files: process.sees_other_files(),
            is_ours: process.uid == rustix::process::geteuid().as_raw(),
        }
    }

    fn open(self, path: &Path) -> io::Result<File> {
        match foreign_files::open_plain(self.pid, path) {
            // It may not be looked into, but is of our own user: it has no less rights than we have.
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied
                    && path.is_absolute()
                    && self.is_ours
                    && !self.sees_other_files =>
            {
                foreign_files::open_plain(Pid(std::process::id()), path)
            }
            opened => opened,
        }
    }
}

/// Reads files of one process one after the other.
#[derive(Debug)]
pub(crate) struct SourceReader {
    owner: Owner,
    worker: Option<Worker>,
    /// What is left for waiting. With none of it nothing more is read.
    left: Duration,
    /// What is left for texts, in bytes.
    room: usize,
}

#[derive(Debug)]
struct Worker {
    asked: Sender<PathBuf>,
    told: Receiver<String>,
}

impl SourceReader {
    pub(crate) fn of(owner: Owner) -> Self {
        Self {
            owner,
            worker: None,
            left: READ_TIMEOUT,
            room: MAX_TEXT,
        }
    }

    /// What stands in a file; nothing when it is no readable file, or cannot be read in time.
    pub(crate) fn read(&mut self, path: &Path) -> String {
        if self.left.is_zero() {
            return String::new();
        }
        let worker = self.worker.take().or_else(|| Worker::start(self.owner));
        let Some(worker) = worker else {
            return String::new();
        };
        let began = Instant::now();
        let asked = worker.asked.send(path.to_owned()).ok();
        let told = asked.and_then(|()| worker.told.recv_timeout(self.left).ok());
        self.left = self.left.saturating_sub(began.elapsed());
        match told {
            Some(text) => {
                self.worker = Some(worker);
                let room = self.room.checked_sub(text.len());
                self.room = room.unwrap_or(0);
                room.map_or_else(String::new, |_| text)
            }
            None => String::new(),
        }
    }
}

impl Worker {
    /// Its thread ends with the reader, or when the file that keeps it lets go.
    fn start(owner: Owner) -> Option<Self> {
        let (asked, paths) = mpsc::channel::<PathBuf>();
        let (tell, told) = mpsc::channel();
        let work = move || {
            for path in paths {
                if tell.send(text_of(owner, &path)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("sources".to_owned());
        thread.spawn(work).ok()?;
        Some(Self { asked, told })
    }
}

fn text_of(owner: Owner, path: &Path) -> String {
    let bytes = bytes_of(owner, path).unwrap_or_default();
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if let Some((end, _)) = text.match_indices('\n').nth(MAX_LINES) {
        text.truncate(end);
    }
    text
}

fn bytes_of(owner: Owner, path: &Path) -> Option<Vec<u8>> {
    let file = match owner.open(path) {
        // A file where a folder should be may be an archive that the program runs from.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return archive_member(owner, path);
        }
        file => file.ok()?,
    };
    let length = file.metadata().ok()?.len();
    // Files of the kernel say that they are empty: what may wait for ever (/proc/kmsg) is not read at all.
    if length > MAX_SOURCE {
        return None;
    }
    let mut bytes = Vec::with_capacity(length as usize);
    file.take(length).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// What stands in a file inside a zip archive, such as `app.pyz/pkg/module.py`.
fn archive_member(owner: Owner, path: &Path) -> Option<Vec<u8>> {
    let mut archives = path.ancestors().skip(1).take(MAX_FOLDERS);
    let (archive, file) =
        archives.find_map(|archive| Some((archive, owner.open(archive).ok()?)))?;
    let name = path.strip_prefix(archive).ok()?;
    archive::member(&file, name.as_os_str().as_bytes(), MAX_SOURCE)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn what_is_no_plain_file_is_neither_read_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, source) = (folder.path().join("pipe"), folder.path().join("a.py"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        std::fs::write(&source, "x = 1\n").unwrap();
        let mut reader = SourceReader::of(Owner {
            pid: Pid(std::process::id()),
            sees_other_files: false,
            is_ours: true,
        });
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
