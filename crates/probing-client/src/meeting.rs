//! Where the probe of a process would be met.

use std::fs;
use std::path::PathBuf;

use probing_process::proc;
use probing_process::processes::Process;
use probing_proto::env::PROBING_DIR;
use probing_proto::paths::{self, NotPrivate};
use probing_proto::process::{Pid, ProcessKey};

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
