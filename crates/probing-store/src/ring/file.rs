//! The file of a ring: made, and made larger, by its writer.
//!
//! Memory is reserved before it is touched. A sparse file on a full file system would be a SIGBUS in the middle of the
//! program; a reservation that fails is an error that can be handled.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

const MODE: u32 = 0o600;
/// File numbers below belong to the program's standard streams, open or not.
const FIRST_NUMBER: i32 = 3;
/// Signals may interrupt a reservation, which is then undone.
const ATTEMPTS: u32 = 1000;

#[derive(Debug)]
pub(crate) struct RingFile {
    file: File,
    identity: (u64, u64),
    path: PathBuf,
}

impl RingFile {
    /// Makes a file that nobody takes for a ring until [`RingFile::publish`].
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let unready = path.with_extension("unready");
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(MODE)
            .custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32)
            .open(&unready)?;
        let file = File::from(fcntl_dupfd_cloexec(&opened, FIRST_NUMBER)?);
        let metadata = file.metadata()?;
        Ok(Self {
            identity: (metadata.dev(), metadata.ino()),
            file,
            path: path.to_owned(),
        })
    }

    /// Gives it its name.
    pub(crate) fn publish(&self) -> io::Result<()> {
        fs::rename(self.path.with_extension("unready"), &self.path)
    }

    /// Takes it away again; it was not published.
    pub(crate) fn discard(self) {
        fs::remove_file(self.path.with_extension("unready")).ok();
    }

    /// Reserves memory for a part of it.
    pub(crate) fn reserve(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.allocate(FallocateFlags::empty(), offset, bytes)
    }

    /// Gives the memory of a part of it back, which must not be touched any more. It reads as zeros.
    pub(crate) fn release(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.allocate(flags, offset, bytes)
    }

    fn allocate(&self, flags: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        // A program that closes all files it does not know may have given our number to one of its own.
        let metadata = self.file.metadata()?;
        if (metadata.dev(), metadata.ino()) != self.identity {
            return Err(io::ErrorKind::NotFound.into());
        }
        for _ in 0..ATTEMPTS {
            match fallocate(&self.file, flags, offset, bytes) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
        Err(Errno::INTR.into())
    }
}

impl AsFd for RingFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
