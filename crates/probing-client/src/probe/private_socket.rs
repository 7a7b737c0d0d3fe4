//! Sockets in a user's private folder, reached through file descriptors: no link is followed, every owner is checked.
//!
//! The folder belongs to the user of a target, who may change it at any moment, and the client may be root. So a path is
//! resolved once, into a descriptor of the very file that was checked, and the client connects to that.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use probing_process::proc;
use probing_process::procfs::processes::Process;
use probing_proto::paths::{self, NotPrivate};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::probe::connection;

/// Names the file itself, whatever it is; nothing of it is read.
const NAME_ONLY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// A folder that only one user can enter.
#[derive(Debug)]
pub(crate) struct PrivateFolder {
    fd: File,
    /// For messages.
    path: PathBuf,
    uid: u32,
}

impl PrivateFolder {
    /// The folder at this path, which must be private to `uid`; `None` when there is none.
    pub(crate) fn open(path: &Path, uid: u32) -> Result<Option<Self>, NotPrivate> {
        let opened = rustix::fs::open(path, NAME_ONLY | OFlags::NOFOLLOW, Mode::empty());
        Self::checked(opened, path, uid)
    }

    /// The folder that the target calls so. Links on the way are those of the target, and end inside its root.
    pub(crate) fn in_target(process: &Process, path: &Path) -> Result<Option<Self>, NotPrivate> {
        let seen = proc(process.pid, "root").join(path.strip_prefix("/").unwrap_or(path));
        let opened = match open_in_target(process, path, OFlags::NOFOLLOW) {
            // Kernels before 5.6: links on the way may lead out, and the owner is checked all the same.
            Err(Errno::NOSYS | Errno::PERM) => {
                rustix::fs::open(&seen, NAME_ONLY | OFlags::NOFOLLOW, Mode::empty())
            }
            opened => opened,
        };
        Self::checked(opened, &seen, process.uid)
    }

    fn checked(
        opened: rustix::io::Result<OwnedFd>,
        path: &Path,
        uid: u32,
    ) -> Result<Option<Self>, NotPrivate> {
        let Ok(fd) = opened.map(File::from) else {
            return Ok(None);
        };
        let Ok(metadata) = fd.metadata() else {
            return Ok(None);
        };
        paths::check_private(path, &metadata, uid)?;
        let path = path.to_owned();
        Ok(Some(Self { fd, path, uid }))
    }

    /// A folder in it, which must belong to the same user and be no link.
    pub(crate) fn enter(&self, name: &str) -> Result<Option<Self>, NotPrivate> {
        let path = self.path.join(name);
        let Some((fd, metadata)) = opened_in(self.fd.as_fd(), OsStr::new(name)) else {
            return Ok(None);
        };
        if metadata.is_symlink() {
            return Err(NotPrivate::Symlink { path });
        }
        if !metadata.is_dir() {
            return Err(NotPrivate::NotAFolder { path });
        }
        let (owner, expected) = (metadata.uid(), self.uid);
        if owner != expected {
            return Err(NotPrivate::Foreign {
                path,
                owner,
                expected,
            });
        }
        let uid = self.uid;
        Ok(Some(Self { fd, path, uid }))
    }

    /// A path that means this very folder as long as this lives, whatever is put into its place.
    pub(crate) fn held_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// A socket in it, which must belong to the same user and be no link.
    pub(crate) fn socket(&self, name: &str) -> Result<Option<SocketFile>, NotPrivate> {
        let found = SocketFile::in_folder(self.fd.as_fd(), OsStr::new(name), &self.path)?;
        match found {
            Some(socket) if socket.owner != self.uid => Err(NotPrivate::ForeignSocket {
                path: socket.path,
                owner: socket.owner,
                expected: self.uid,
            }),
            found => Ok(found),
        }
    }
}

/// A socket's file, held so that it stays this one.
#[derive(Debug)]
pub(crate) struct SocketFile {
    fd: File,
    path: PathBuf,
    owner: u32,
}

impl SocketFile {
    /// The one that the user named, wherever that is. `None` when there is none.
    pub(crate) fn named(path: &Path) -> Result<Option<Self>, NotPrivate> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let flags = NAME_ONLY | OFlags::DIRECTORY;
        let Ok(fd) = rustix::fs::openat(CWD, folder, flags, Mode::empty()) else {
            return Ok(None);
        };
        let name = path.file_name().unwrap_or_default();
        Self::in_folder(fd.as_fd(), name, folder)
    }

    fn in_folder(
        folder: BorrowedFd<'_>,
        name: &OsStr,
        shown: &Path,
    ) -> Result<Option<Self>, NotPrivate> {
        let path = shown.join(name);
        let Some((fd, metadata)) = opened_in(folder, name) else {
            return Ok(None);
        };
        if metadata.is_symlink() {
            return Err(NotPrivate::LinkedSocket { path });
        }
        if !metadata.file_type().is_socket() {
            return Err(NotPrivate::NotASocket { path });
        }
        let owner = metadata.uid();
        Ok(Some(Self { fd, path, owner }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }

    /// Connects to this very socket, whatever stands at its path by now.
    pub(crate) fn dial(&self) -> io::Result<UnixStream> {
        let fd = self.fd.as_raw_fd();
        connection::dial(Path::new(&format!("/proc/self/fd/{fd}")))
    }
}

fn opened_in(folder: BorrowedFd<'_>, name: &OsStr) -> Option<(File, std::fs::Metadata)> {
    let flags = NAME_ONLY | OFlags::NOFOLLOW;
    let fd = File::from(rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?);
    let metadata = fd.metadata().ok()?;
    Some((fd, metadata))
}

/// Opens a file of the target by its path, resolving links as the target would.
pub(crate) fn open_in_target(
    process: &Process,
    path: &Path,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let root = proc(process.pid, "root");
    let root = rustix::fs::open(root, NAME_ONLY | OFlags::DIRECTORY, Mode::empty())?;
    let flags = NAME_ONLY | flags;
    rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_link_is_refused_wherever_it_stands() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        fs::create_dir_all(at("run/inner")).unwrap();
        fs::set_permissions(at("run"), Permissions::from_mode(0o700)).unwrap();
        let _listener = UnixListener::bind(at("run/inner/real.sock")).unwrap();
        symlink("real.sock", at("run/inner/link.sock")).unwrap();
        symlink("inner", at("run/linked")).unwrap();
        symlink("run", at("link")).unwrap();
        fs::write(at("run/inner/file"), "").unwrap();
        let uid = rustix::process::geteuid().as_raw();

        let run = PrivateFolder::open(&at("run"), uid).unwrap().unwrap();
        let inner = run.enter("inner").unwrap().unwrap();
        let socket = inner.socket("real.sock").unwrap().unwrap();
        // It stays this one, also when something else takes its name.
        fs::rename(at("run/inner/real.sock"), at("run/inner/moved.sock")).unwrap();
        symlink("/nowhere", at("run/inner/real.sock")).unwrap();
        socket.dial().unwrap();

        let refused = PrivateFolder::open(&at("link"), uid).unwrap_err();
        assert!(matches!(refused, NotPrivate::Symlink { .. }), "{refused}");
        let refused = run.enter("linked").unwrap_err();
        assert!(matches!(refused, NotPrivate::Symlink { .. }), "{refused}");
        let refused = inner.socket("link.sock").unwrap_err();
        assert!(matches!(refused, NotPrivate::LinkedSocket { .. }));
        let refused = inner.socket("file").unwrap_err();
        assert!(matches!(refused, NotPrivate::NotASocket { .. }));
        let refused = SocketFile::named(&at("run/inner/link.sock")).unwrap_err();
        assert!(matches!(refused, NotPrivate::LinkedSocket { .. }));
        assert!(inner.socket("none.sock").unwrap().is_none());
        let refused = PrivateFolder::open(&at("run"), uid + 1).unwrap_err();
        assert!(matches!(refused, NotPrivate::Foreign { .. }), "{refused}");
    }
}
