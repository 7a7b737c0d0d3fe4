//! Where the probe of a process would be met.

use std::fs;
use std::path::PathBuf;

use probing_process::proc;
use probing_process::processes::Process;
use probing_proto::env::PROBING_DIR;
use probing_proto::paths::{self, NotPrivate, SOCKET};
use probing_proto::process::{Pid, ProcessKey};

use crate::private::{PrivateFolder, SocketFile};

/// The socket of the process's probe, or `None` when it has none.
pub(crate) fn socket_of(process: &Process) -> Result<Option<SocketFile>, NotPrivate> {
    for runtime_dir in folders(process) {
        let folder = match &runtime_dir {
            Place::Here(path) => PrivateFolder::open(path, process.uid),
            Place::InTarget(path) => PrivateFolder::in_target(process, path),
        };
        // None: no probe of this user has ever been there. An error: someone else's folder in the place where the
        // probe's should be is why there is none.
        let Some(folder) = folder? else { continue };
        if let Some(own) = folder.enter(&process.key().to_string())?
            && let Some(socket) = own.socket(SOCKET)?
        {
            return Ok(Some(socket));
        }
    }
    Ok(None)
}

/// A runtime folder, and whose files its path is about.
enum Place {
    Here(PathBuf),
    InTarget(PathBuf),
}

fn folders(process: &Process) -> Vec<Place> {
    let its_own = own_runtime_dir(process);
    let its_own = if its_own.is_relative() {
        Place::Here(proc(process.pid, "cwd").join(&its_own))
    } else if process.sees_other_files() {
        Place::InTarget(its_own)
    } else {
        Place::Here(its_own)
    };
    match PROBING_DIR.value() {
        Some(ours) if PROBING_DIR.value_in(&process.environ).is_none() => vec![
            Place::Here(paths::runtime_dir(process.own_uid, Some(ours))),
            its_own,
        ],
        _ => vec![its_own],
    }
}

/// Where the process's probe may be: where its own `PROBING_DIR` points, else where ours does, else the usual place.
pub(crate) fn runtime_dirs(process: &Process) -> Vec<PathBuf> {
    let places = folders(process).into_iter().map(|place| match place {
        Place::Here(path) => path,
        Place::InTarget(path) => {
            proc(process.pid, "root").join(path.strip_prefix("/").unwrap_or(&path))
        }
    });
    places.collect()
}

/// Where a probe that starts in the process makes its folder, as the process sees it.
pub(crate) fn own_runtime_dir(process: &Process) -> PathBuf {
    paths::runtime_dir(process.own_uid, PROBING_DIR.value_in(&process.environ))
}

/// The folder that the probe of a process of our own user left when it was killed.
pub(crate) fn left_by(pid: Pid) -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let runtime_dir = paths::runtime_dir(uid, PROBING_DIR.value());
    let entries = fs::read_dir(runtime_dir).ok()?.flatten();
    let is_its = |name: &str| name.parse().is_ok_and(|key: ProcessKey| key.pid == pid);
    let mut left = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_its));
    left.next().map(|entry| entry.path())
}
