//! Where the probe of a process would be met, and sweeping what the dead left there.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use probing_process::proc;
use probing_process::processes::{self, Process};
use probing_proto::env::PROBING_DIR;
use probing_proto::paths::{self, NotPrivate};
use probing_proto::process::{Pid, ProcessKey};

use crate::connection;

/// A folder without a socket may be one that a probe is just making.
const TIME_TO_BIND: Duration = Duration::from_mins(1);

/// The socket of the process's probe, or `None` when it has none.
pub(crate) fn socket_of(process: &Process) -> Result<Option<PathBuf>, NotPrivate> {
    for runtime_dir in runtime_dirs(process) {
        // No such folder: no probe of this user has ever been there.
        let Ok(metadata) = fs::symlink_metadata(&runtime_dir) else {
            continue;
        };
        let private = paths::check_private(&runtime_dir, &metadata, process.uid);
        let socket = paths::socket_path(&runtime_dir, process.key());
        if private.is_ok() && socket.exists() {
            return Ok(Some(socket));
        }
        // Someone else's folder in the place where the probe's should be is why there is none.
        private?;
    }
    Ok(None)
}

/// Where the process's probe may be: where its own `PROBING_DIR` points, else where ours does, else the usual place.
pub(crate) fn runtime_dirs(process: &Process) -> Vec<PathBuf> {
    let its_own = own_runtime_dir(process);
    let seen_from_here = if its_own.is_relative() {
        proc(process.pid, "cwd").join(&its_own)
    } else if process.sees_other_files() {
        proc(process.pid, "root").join(its_own.strip_prefix("/").unwrap_or(&its_own))
    } else {
        its_own
    };
    match PROBING_DIR.value() {
        Some(ours) if PROBING_DIR.value_in(&process.environ).is_none() => {
            vec![
                paths::runtime_dir(process.own_uid, Some(ours)),
                seen_from_here,
            ]
        }
        _ => vec![seen_from_here],
    }
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

/// Removes the folders of our own user's processes that are gone.
pub(crate) fn sweep() {
    let uid = rustix::process::geteuid().as_raw();
    let runtime_dir = paths::runtime_dir(uid, PROBING_DIR.value());
    let Ok(metadata) = fs::symlink_metadata(&runtime_dir) else {
        return;
    };
    if paths::check_private(&runtime_dir, &metadata, uid).is_err() {
        return;
    }
    for entry in fs::read_dir(&runtime_dir).into_iter().flatten().flatten() {
        if let Some(key) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            && is_left_behind(&runtime_dir, key)
        {
            // Someone else may sweep, too.
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// A process we cannot see may live in a container that shares this folder: then its probe takes connections.
fn is_left_behind(runtime_dir: &Path, key: ProcessKey) -> bool {
    if processes::is_alive(key) {
        return false;
    }
    match connection::dial(&paths::socket_path(runtime_dir, key)) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            is_older_than(&paths::target_dir(runtime_dir, key), TIME_TO_BIND)
        }
        Ok::<UnixStream, _>(_) | Err(_) => false,
    }
}

fn is_older_than(path: &Path, age: Duration) -> bool {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|changed| {
        SystemTime::now()
            .duration_since(changed)
            .is_ok_and(|since| since > age)
    })
}
