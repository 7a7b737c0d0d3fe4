//! Where the probe of a process would be met.

use std::fs;
use std::path::{Path, PathBuf};

use probing_process::proc;
use probing_process::procfs::processes::Process;
use probing_proto::env::PROBING_DIR;
use probing_proto::paths::{self, NotPrivate, SOCKET};
use probing_proto::process::{Pid, ProcessKey};

use crate::probe::private_socket::{PrivateFolder, SocketFile};

/// The socket of the process's probe, or `None` when it has none.
pub(crate) fn socket_of(process: &Process) -> Result<Option<SocketFile>, NotPrivate> {
    for own in own_folders(process)? {
        if let Some(socket) = own.socket(SOCKET)? {
            return Ok(Some(socket));
        }
    }
    Ok(None)
}

/// The folders that the process's probe has made, or another program of its user.
pub(crate) fn own_folders(process: &Process) -> Result<Vec<PrivateFolder>, NotPrivate> {
    let mut own = Vec::new();
    for folder in private_folders(process, folders(process))? {
        own.extend(entered(&folder, process)?);
    }
    Ok(own)
}

/// Those of the folders that are there and private to the process's user. Somebody else's in the place of every one of
/// them is why there is no probe, and an error.
fn private_folders(
    process: &Process,
    places: Vec<RuntimeDir>,
) -> Result<Vec<PrivateFolder>, NotPrivate> {
    let (mut private, mut refused, mut is_free) = (Vec::new(), Vec::new(), false);
    for place in places {
        match place.open(process) {
            Ok(Some(folder)) => private.push(folder),
            // No probe of this user has ever been there.
            Ok(None) => {
                is_free |= place
                    .seen_from_here(process)
                    .parent()
                    .is_some_and(Path::is_dir);
            }
            Err(error) => refused.push(error),
        }
    }
    match NotPrivate::with_all(refused) {
        Some(error) if private.is_empty() && !is_free => Err(error),
        _ => Ok(private),
    }
}

/// The folder in memory that the process's rings are in when its own is on a disk.
pub(crate) fn memory_folder(process: &Process) -> Result<Option<PrivateFolder>, NotPrivate> {
    let roots = paths::memory_roots(process.own_uid).into_iter();
    let roots = roots
        .map(|root| RuntimeDir::absolute(process, root))
        .collect();
    for root in private_folders(process, roots)? {
        if let Some(folder) = entered(&root, process)? {
            return Ok(Some(folder));
        }
    }
    Ok(None)
}

/// The folder of the process in one of its user's.
fn entered(folder: &PrivateFolder, process: &Process) -> Result<Option<PrivateFolder>, NotPrivate> {
    for key in process.keys() {
        if let Some(own) = folder.enter(&key.to_string())? {
            return Ok(Some(own));
        }
    }
    Ok(None)
}

/// A runtime folder, and whose files its path is about.
enum RuntimeDir {
    OnHost(PathBuf),
    InTarget(PathBuf),
}

impl RuntimeDir {
    /// A path as the process sees it.
    fn absolute(process: &Process, path: PathBuf) -> Self {
        if process.sees_other_files() {
            Self::InTarget(path)
        } else {
            Self::OnHost(path)
        }
    }

    /// The folder, if it is there; an error unless it is private to the process's user.
    fn open(&self, process: &Process) -> Result<Option<PrivateFolder>, NotPrivate> {
        match self {
            Self::OnHost(path) => PrivateFolder::open(path, process.uid),
            Self::InTarget(path) => PrivateFolder::in_target(process, path),
        }
    }

    fn seen_from_here(&self, process: &Process) -> PathBuf {
        match self {
            Self::OnHost(path) => path.clone(),
            Self::InTarget(path) => {
                proc(process.pid, "root").join(path.strip_prefix("/").unwrap_or(path))
            }
        }
    }
}

fn folders(process: &Process) -> Vec<RuntimeDir> {
    let its_own = own_runtime_dirs(process).into_iter().map(|path| {
        if path.is_relative() {
            RuntimeDir::OnHost(proc(process.pid, "cwd").join(&path))
        } else {
            RuntimeDir::absolute(process, path)
        }
    });
    let ours = match PROBING_DIR.value() {
        Some(ours) if PROBING_DIR.value_in(&process.environ).is_none() => {
            paths::runtime_dirs(process.own_uid, Some(ours))
        }
        _ => Vec::new(),
    };
    ours.into_iter()
        .map(RuntimeDir::OnHost)
        .chain(its_own)
        .collect()
}

/// Private folders in which the process's probe may be: where its own `PROBING_DIR` points, else where ours does, else the
/// usual ones.
pub(crate) fn runtime_dirs(process: &Process) -> Vec<PathBuf> {
    let mut places = folders(process);
    // What another user has put there is nothing that the process has said.
    places.retain(|place| matches!(place.open(process), Ok(Some(_))));
    let places = places.into_iter();
    places.map(|place| place.seen_from_here(process)).collect()
}

/// Where a probe that starts in the process makes its folder, as the process sees it: the first of these that it can have.
pub(crate) fn own_runtime_dirs(process: &Process) -> Vec<PathBuf> {
    paths::runtime_dirs(process.own_uid, PROBING_DIR.value_in(&process.environ))
}

/// The private folders of our own user that are there, each checked to be one.
pub(crate) fn our_runtime_dirs() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let mut folders = paths::runtime_dirs(uid, PROBING_DIR.value());
    folders.retain(|folder| {
        let metadata = fs::symlink_metadata(folder);
        metadata.is_ok_and(|metadata| paths::check_private(folder, &metadata, uid).is_ok())
    });
    folders
}

/// The folder that the probe of a process of our own user left when it was killed.
pub(crate) fn left_by(pid: Pid) -> Option<PathBuf> {
    let entries = our_runtime_dirs().into_iter().map(fs::read_dir);
    let entries = entries.flatten().flatten().flatten();
    let is_its = |name: &str| name.parse().is_ok_and(|key: ProcessKey| key.pid == pid);
    let mut left = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_its));
    left.next().map(|entry| entry.path())
}
