//! Files below a target's root, and in folders that another user controls: the only way to read, write, remove or list them.
//!
//! Whoever controls a folder can put a link where we expect a file, and swap the two while we look. So a path is
//! resolved once, inside the target's root and without following any link, and gives a file descriptor. From there on
//! only names in that folder are used, never a path; nothing follows a link; and the kernel checks every access as the
//! target's own ([`Identity`]), even if we are root.
//!
//! *Invariant:* no file is ever given away (`chown`), and nothing is touched that the target could not touch itself.

mod identity;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use probing_proto::process::Pid;
use rustix::fs::{AtFlags, Dir as Entries, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

pub use self::identity::Identity;
use crate::proc;
use crate::procfs::processes;

/// A folder of a million names is somebody's joke.
const MAX_NAMES: usize = 100_000;
/// How deep below a folder its contents are removed.
const MAX_DEPTH: usize = 8;
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A folder by its file descriptor, and as whom it is used.
#[derive(Debug)]
pub struct ForeignDir {
    fd: OwnedFd,
    user: Identity,
}

impl ForeignDir {
    /// The folder at the absolute `path` as process `pid` sees it; there must be no link on the way.
    pub fn in_root_of(pid: Pid, path: &Path) -> io::Result<Self> {
        let user = Identity::of(pid).ok_or(io::ErrorKind::NotFound)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(proc(pid, "root"), flags, Mode::empty())?;
        let assumed = user.assume()?;
        let fd = open_below(
            &root,
            path,
            ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS,
        )?;
        drop(assumed);
        Ok(Self { fd, user })
    }

    /// A folder of our own user. Links on the way are as our user made them, but it must not be one itself.
    pub fn own(path: &Path) -> io::Result<Self> {
        Ok(Self {
            fd: rustix::fs::open(path, FOLDER, Mode::empty())?,
            user: Identity::own(),
        })
    }

    /// As whom it is used.
    pub fn user(&self) -> &Identity {
        &self.user
    }

    /// Does something in this folder as its user.
    fn act<T>(
        &self,
        name: &OsStr,
        action: impl FnOnce(&OwnedFd) -> Result<T, Errno>,
    ) -> io::Result<T> {
        let is_name =
            !matches!(name.as_bytes(), b"" | b"." | b"..") && !name.as_bytes().contains(&b'/');
        if !is_name {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let assumed = self.user.assume()?;
        let result = action(&self.fd);
        drop(assumed);
        Ok(result?)
    }

    /// A folder in it.
    pub fn folder(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = name.as_ref();
        let fd = self.act(name, |fd| {
            rustix::fs::openat(fd, name, FOLDER, Mode::empty())
        })?;
        let user = self.user.clone();
        Ok(Self { fd, user })
    }

    /// Makes a folder in it that only its user can enter; fails if something is there. What comes back may have been
    /// put in its place, but then by the same user: it is checked to be a folder of theirs that only they can enter.
    pub fn make_folder(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = name.as_ref();
        self.act(name, |fd| rustix::fs::mkdirat(fd, name, Mode::RWXU))?;
        let made = self.folder(name)?;
        let stat = made.stat()?;
        let is_ours = stat.st_uid == self.user.uid && !others_may_enter(&stat);
        let taken = io::Error::from(io::ErrorKind::PermissionDenied);
        is_ours.then_some(made).ok_or(taken)
    }

    /// Makes a file in it, to be written and read, that only its user can read; fails if something is there.
    pub fn make_file(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (name, mode) = (name.as_ref(), Mode::from_raw_mode(mode));
        Ok(self
            .act(name, |fd| rustix::fs::openat(fd, name, flags, mode))?
            .into())
    }

    /// Opens a plain file in it, to be written and read: no link, pipe or device.
    pub fn file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let name = name.as_ref();
        let fd = self.act(name, |fd| {
            rustix::fs::openat(fd, name, flags, Mode::empty())
        })?;
        plain(fd)
    }

    /// Whether there is anything of this name, be it a link that leads nowhere.
    pub fn has(&self, name: impl AsRef<OsStr>) -> bool {
        self.kind(name.as_ref()).is_ok()
    }

    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.act(to, |_| Ok(()))?;
        self.act(from, |fd| rustix::fs::renameat(fd, from, fd, to))
    }

    /// Removes what is not a folder: of a link, the link itself.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = name.as_ref();
        self.act(name, |fd| rustix::fs::unlinkat(fd, name, AtFlags::empty()))
    }

    /// Removes an empty folder.
    pub fn remove_folder(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = name.as_ref();
        self.act(name, |fd| {
            rustix::fs::unlinkat(fd, name, AtFlags::REMOVEDIR)
        })
    }

    /// Removes a folder with all that is in it, or anything else of this name. Nothing of this name is a success.
    pub fn remove_all(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        self.remove_to_depth(name.as_ref(), MAX_DEPTH)
    }

    fn remove_to_depth(&self, name: &OsStr, depth: usize) -> io::Result<()> {
        let gone = |removed: io::Result<()>| match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        match self.kind(name) {
            Err(error) => gone(Err(error)),
            Ok(FileType::Directory) if depth > 0 => {
                let inner = self.folder(name)?;
                for each in inner.names()? {
                    inner.remove_to_depth(&each, depth - 1)?;
                }
                gone(self.remove_folder(name))
            }
            Ok(_) => gone(self.remove_file(name)),
        }
    }

    fn kind(&self, name: &OsStr) -> io::Result<FileType> {
        let stat = self.act(name, |fd| {
            rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
        })?;
        Ok(FileType::from_raw_mode(stat.st_mode))
    }

    /// The names in it, at most [`MAX_NAMES`].
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let entries = Entries::read_from(&self.fd)?;
        let name = |entry: rustix::fs::DirEntry| {
            OsStr::from_bytes(entry.file_name().to_bytes()).to_owned()
        };
        let is_own = |name: &OsString| !matches!(name.as_bytes(), b"." | b"..");
        let names = entries.map_while(Result::ok).map(name).filter(is_own);
        Ok(names.take(MAX_NAMES).collect())
    }

    pub fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.fd)?)
    }

    /// How long ago something was last put into it or taken out.
    pub fn age(&self) -> Option<Duration> {
        let stat = self.stat().ok()?;
        let changed = UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_mtime).ok()?);
        SystemTime::now().duration_since(changed).ok()
    }
}

/// Opens a plain file as process `pid` sees it, to be read with no more rights than it has. Links are followed as it would
/// follow them: whatever they say, they stay below its root.
pub fn open_plain(pid: Pid, path: &Path) -> io::Result<File> {
    let user = Identity::of(pid).ok_or(io::ErrorKind::NotFound)?;
    let path = &absolute(pid, path)?;
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(proc(pid, "root"), folder, Mode::empty())?;
    // A pipe is not waited for, a terminal does not become ours.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let assumed = user.assume()?;
    let in_root = ResolveFlags::IN_ROOT;
    let opened = match rustix::fs::openat2(&folder, path, flags, Mode::empty(), in_root) {
        // Before Linux 5.6 a link in a container may lead astray, but to nothing that its user may not read.
        Err(Errno::NOSYS) => {
            let below = path.strip_prefix("/").unwrap_or(path);
            rustix::fs::openat(&folder, below, flags, Mode::empty())
        }
        opened => opened,
    };
    drop(assumed);
    plain(opened?)
}

/// A path below the root of process `pid`. The kernel tells its root and its working folder in the same way.
fn absolute(pid: Pid, path: &Path) -> io::Result<PathBuf> {
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    let root = fs::read_link(proc(pid, "root"))?;
    let folder = fs::read_link(proc(pid, "cwd"))?;
    // A working folder outside of the root has no path there.
    let below = folder.strip_prefix(root).ok();
    let below = below.ok_or(io::ErrorKind::NotFound)?;
    Ok(Path::new("/").join(below).join(path))
}

/// A file, if it is no pipe, device or folder.
fn plain(fd: OwnedFd) -> io::Result<File> {
    let stat = rustix::fs::fstat(&fd)?;
    let is_plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let other = io::Error::from(io::ErrorKind::InvalidInput);
    is_plain.then_some(fd.into()).ok_or(other)
}

fn others_may_enter(stat: &Stat) -> bool {
    Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO)
}

/// Opens a folder below `root` without following links.
fn open_below(root: &OwnedFd, path: &Path, resolve: ResolveFlags) -> io::Result<OwnedFd> {
    match rustix::fs::openat2(root, path, FOLDER, Mode::empty(), resolve) {
        // Before Linux 5.6, or where a filter of system calls does not know it.
        Err(Errno::NOSYS) => walk_below(root, path),
        opened => Ok(opened?),
    }
}

/// The same from name to name.
fn walk_below(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let mut folder = root.as_fd().try_clone_to_owned()?;
    for part in path.components() {
        folder = match part {
            Component::RootDir | Component::CurDir => continue,
            Component::Normal(name) => {
                rustix::fs::openat(&folder, name, FOLDER | OFlags::PATH, Mode::empty())?
            }
            // Where that leads depends on who moves folders meanwhile.
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        };
    }
    Ok(rustix::fs::openat(&folder, ".", FOLDER, Mode::empty())?)
}

/// Whether no process that we can see calls itself so, here or in a container.
pub fn is_nobodys(pid: Pid) -> bool {
    let calls_itself_so = |process: &processes::Process| process.own_pid == pid;
    !proc(pid, "").exists() && !processes::all_python().iter().any(calls_itself_so)
}
