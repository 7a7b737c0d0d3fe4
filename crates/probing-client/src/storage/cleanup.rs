//! The cleanup after ended processes: sockets at once, recorded rows by age and size.
//!
//! What goes is dead beyond doubt: no process of that pid and start time here, nobody who takes connections or holds the
//! lock beside the rings. Somebody else may sweep at the same time, and may be killed half-way: each step leaves
//! something that the next sweep knows how to go on with.

use std::cmp::Reverse;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime};

use probing_process::access::foreign_files::ForeignDir;
use probing_process::procfs::processes;
use probing_proto::paths::{self, HOME_LINK, LASTING};
use probing_proto::process::ProcessKey;

use crate::probe::connection;
use crate::probe::socket_path;
use crate::storage::recording::{Recording, keys_in};

/// A folder without a socket may be one that a probe is just making.
const TIME_TO_BIND: Duration = Duration::from_mins(1);

/// How long, and how much of, what the dead have recorded is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Since the last row.
    pub age: Duration,
    /// Of all together; the oldest go first.
    pub bytes: u64,
}

impl Limits {
    /// What every `probing list` keeps to.
    pub const USUAL: Self = Self {
        age: Duration::from_hours(24),
        bytes: 256 << 20,
    };
    /// Nothing is kept.
    pub const NOTHING: Self = Self {
        age: Duration::ZERO,
        bytes: 0,
    };
}

/// Removes what our own user's processes that are gone left, but recorded rows within the usual limits.
pub(crate) fn sweep() {
    let uid = rustix::process::geteuid().as_raw();
    for runtime_dir in socket_path::our_runtime_dirs() {
        for key in keys_in(&runtime_dir) {
            if is_left_behind(&runtime_dir, key) {
                bury(&runtime_dir, key);
            }
        }
    }
    for recording in beyond(Limits::USUAL) {
        // Tried again by the next one.
        remove(&recording).ok();
    }
    sweep_homeless(uid);
    probing_attach::sweep_dead();
}

/// What the dead have recorded that is beyond the limits, oldest first.
pub fn beyond(limits: Limits) -> Vec<Recording> {
    let now = SystemTime::now();
    let mut dead: Vec<(SystemTime, u64, Recording)> = Recording::of_the_dead()
        .into_iter()
        .map(|recording| (recording.last_change(), recording.bytes(), recording))
        .collect();
    dead.sort_by_key(|(last, ..)| Reverse(*last));
    let mut kept = 0_u64;
    let mut beyond: Vec<Recording> = dead
        .into_iter()
        .filter_map(|(last, bytes, recording)| {
            kept = kept.saturating_add(bytes);
            let age = now.duration_since(last).unwrap_or_default();
            (age >= limits.age || kept > limits.bytes).then_some(recording)
        })
        .collect();
    beyond.reverse();
    beyond
}

/// Removes what a dead process has recorded, and its folder. That of a living one stays: false.
pub fn remove(recording: &Recording) -> io::Result<bool> {
    if recording.is_held() {
        return Ok(false);
    }
    remove_own(&recording.rings)?;
    remove_own(&recording.folder)?;
    Ok(true)
}

/// Removes a folder of ours with all that is in it.
fn remove_own(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    match own_private(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        parent => parent?.remove_all(name),
    }
}

/// A folder of ours that nobody else can enter, and so nobody else can put links into.
pub(crate) fn own_private(path: &Path) -> io::Result<ForeignDir> {
    let folder = ForeignDir::own(path)?;
    let stat = folder.stat()?;
    paths::check_private_mode(path, (stat.st_mode, stat.st_uid), folder.user().uid)
        .map_err(io::Error::other)?;
    Ok(folder)
}

/// Removes a dead process's folder, and what is in it but recorded rows. Someone else may sweep, too.
fn bury(runtime_dir: &Path, key: ProcessKey) {
    let folder = paths::target_dir(runtime_dir, key);
    if !paths::rings_path(runtime_dir, key).exists() {
        remove_own(&folder).ok();
        return;
    }
    let Ok(folder) = own_private(&folder) else {
        return;
    };
    for name in folder.names().unwrap_or_default() {
        if !LASTING.iter().any(|lasting| name == *lasting) {
            folder.remove_file(name).ok();
        }
    }
}

/// Rings in shared memory whose process's folder is gone: nobody would find them any more.
fn sweep_homeless(uid: u32) {
    let roots = paths::memory_roots(uid).into_iter();
    let folders = roots.flat_map(|root| {
        let keys = keys_in(&root).into_iter();
        keys.map(move |key| (root.join(key.to_string()), key))
    });
    for (folder, key) in folders {
        let Ok(home) = fs::read_link(folder.join(HOME_LINK)) else {
            continue;
        };
        if fs::symlink_metadata(home).is_err()
            && !processes::is_alive(key)
            && !probing_store::is_held(&folder)
            && is_older_than(&folder, TIME_TO_BIND)
        {
            remove_own(&folder).ok();
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
