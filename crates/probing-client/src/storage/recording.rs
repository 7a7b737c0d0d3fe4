//! What processes have recorded: found while they live, and after.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use probing_capture::Capture;
use probing_process::proc;
use probing_process::procfs::processes::{self, Process};
use probing_proto::paths::{self, NotPrivate, RECORDER, RINGS};
use probing_proto::process::{Pid, ProcessKey};
use probing_proto::report::{DeadProcess, RecordedTable, UnreadableTable};
use probing_proto::tables::schema::Storage;
use probing_store::{Recorder, Store, Table};

use crate::error::ClientError;
use crate::probe::check_user;
use crate::probe::private_socket::PrivateFolder;
use crate::probe::socket_path;
use crate::storage::cleanup;

/// The rows that one process has recorded, wherever they are.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The process as it is seen from here; of a dead one, as it saw itself.
    pub pid: Pid,
    /// Its name in its folder: the pid as it saw itself, and when it started.
    pub key: ProcessKey,
    pub alive: bool,
    /// What it said of itself.
    pub recorder: Option<Recorder>,
    /// The folder of its rings, as seen from here.
    pub rings: PathBuf,
    /// Its own folder, as seen from here.
    pub folder: PathBuf,
    /// Of another user's process: what the two folders are, whatever that user puts into their place.
    _held: Option<Arc<[PrivateFolder; 2]>>,
}

impl Recording {
    /// Opens its tables.
    pub fn store(&self) -> io::Result<Store> {
        Store::open(&self.rings)
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> u64 {
        self.store().map_or(0, |store| store.bytes())
    }

    /// When its last row was recorded, or it began to record.
    pub fn last_change(&self) -> SystemTime {
        let last_row = self.store().ok().and_then(|store| {
            let last = |table: &Table| table.snapshot().ok()?.last_row_nanos();
            store.tables().iter().filter_map(last).max()
        });
        match last_row.map(u64::try_from) {
            Some(Ok(nanos)) => UNIX_EPOCH + Duration::from_nanos(nanos),
            _ => fs::symlink_metadata(&self.rings)
                .and_then(|metadata| metadata.modified())
                .unwrap_or(UNIX_EPOCH),
        }
    }

    pub fn rank(&self) -> Option<u32> {
        self.recorder.as_ref()?.rank
    }

    /// What is known of the process, when it has ended.
    pub fn report(&self) -> DeadProcess {
        let recorder = self.recorder.as_ref();
        let store = self.store().ok();
        let tables = store.as_ref().map(Store::tables).unwrap_or_default();
        let age = SystemTime::now().duration_since(self.last_change());
        let told = |table: &Table| RecordedTable {
            name: table.name().to_owned(),
            rows: table.snapshot().map_or(0, |snapshot| snapshot.rows()),
        };
        let unreadable = store.as_ref().map(Store::unreadable).unwrap_or_default();
        let mut unreadable: Vec<UnreadableTable> = unreadable
            .iter()
            .map(|file| UnreadableTable {
                name: file.table().to_owned(),
                error: file.words(),
                hint: file.error.hint().to_owned(),
            })
            .collect();
        // A table may be in several files.
        unreadable.sort_by(|one, other| one.error.cmp(&other.error));
        unreadable.dedup();
        DeadProcess {
            pid: self.pid,
            rank: self.rank(),
            python: recorder.and_then(|recorder| recorder.python.clone()),
            age_seconds: age.unwrap_or_default().as_secs(),
            bytes: self.bytes(),
            tables: tables.iter().map(told).collect(),
            unreadable,
            command: recorder
                .map(|recorder| recorder.command.clone())
                .unwrap_or_default(),
        }
    }

    /// What a living process has recorded; `None` when it has not.
    pub(crate) fn of_process(process: &Process) -> Result<Option<Self>, ClientError> {
        check_user(process)?;
        if process.uid != rustix::process::geteuid().as_raw() {
            return Self::of_other_user(process);
        }
        for runtime_dir in socket_path::runtime_dirs(process) {
            let seen = |path: PathBuf| {
                if process.sees_other_files() {
                    proc(process.pid, "root").join(path.strip_prefix("/").unwrap_or(&path))
                } else {
                    path
                }
            };
            let users = (process.uid, process.own_uid);
            for key in process.keys() {
                if let Some(rings) = rings_in(&runtime_dir, key, users, seen)? {
                    return Ok(Some(Self {
                        pid: process.pid,
                        alive: true,
                        ..Self::at(&runtime_dir, key, rings)
                    }));
                }
                if let Some(own) = Self::in_own_memory(&runtime_dir, key, process.uid) {
                    return Ok(Some(Self {
                        pid: process.pid,
                        alive: true,
                        ..own
                    }));
                }
            }
        }
        Ok(None)
    }

    /// What a process says of rows that have no folder: they are in its own memory, where nobody else reads them.
    fn in_own_memory(runtime_dir: &Path, key: ProcessKey, uid: u32) -> Option<Self> {
        let folder = paths::target_dir(runtime_dir, key);
        let metadata = fs::symlink_metadata(&folder).ok()?;
        paths::check_private(&folder, &metadata, uid).ok()?;
        let own = Self::at(runtime_dir, key, folder);
        let storage = &own.recorder.as_ref()?.storage;
        matches!(storage, Storage::Heap { .. }).then_some(own)
    }

    /// Another user controls the folders, so no link is followed on the way to what is read.
    fn of_other_user(process: &Process) -> Result<Option<Self>, ClientError> {
        for folder in socket_path::own_folders(process)? {
            let rings = match folder.enter(RINGS) {
                Err(NotPrivate::Symlink { .. }) => socket_path::memory_folder(process),
                entered => entered,
            };
            if let Some(rings) = rings? {
                return Ok(Some(Self {
                    pid: process.pid,
                    key: process.key(),
                    alive: true,
                    recorder: probing_store::read_recorder(&folder.held_path().join(RECORDER)),
                    rings: rings.held_path(),
                    folder: folder.held_path(),
                    _held: Some(Arc::new([folder, rings])),
                }));
            }
        }
        Ok(None)
    }

    /// What a process had recorded when it wrote a capture of itself; `None` for those that have their tables in files of Arrow's.
    pub(crate) fn of_capture(capture: &Capture) -> Option<Self> {
        let manifest = capture.manifest();
        let key = ProcessKey {
            pid: manifest.pid,
            start_ticks: 0,
        };
        Some(Self {
            pid: manifest.pid,
            key,
            alive: false,
            recorder: None,
            rings: capture.rings()?,
            folder: capture.path().to_owned(),
            _held: None,
        })
    }

    /// What processes of this user that are gone have recorded, in the order of their start.
    pub fn of_the_dead() -> Vec<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let runtime_dirs = socket_path::our_runtime_dirs();
        let mut dead: Vec<Self> = runtime_dirs
            .iter()
            .flat_map(|runtime_dir| {
                keys_in(runtime_dir)
                    .into_iter()
                    .map(move |key| (runtime_dir, key))
            })
            .filter_map(|(runtime_dir, key)| {
                let rings = rings_in(runtime_dir, key, (uid, uid), |path| path).ok()??;
                Some(Self::at(runtime_dir, key, rings))
            })
            .filter(|recording| !recording.is_held())
            .collect();
        dead.sort_by_key(|recording| recording.key.start_ticks);
        dead
    }

    /// What the last process with this pid has recorded, if it is gone.
    pub(crate) fn of_dead(pid: Pid) -> Option<Self> {
        let mut dead = Self::of_the_dead();
        dead.retain(|recording| recording.pid == pid);
        dead.pop()
    }

    /// Whether its process lives, here or where we cannot see it.
    pub(crate) fn is_held(&self) -> bool {
        processes::is_alive(self.key) || probing_store::is_held(&self.rings)
    }

    fn at(runtime_dir: &Path, key: ProcessKey, rings: PathBuf) -> Self {
        Self {
            pid: key.pid,
            key,
            alive: false,
            recorder: probing_store::read_recorder(&paths::recorder_path(runtime_dir, key)),
            rings,
            folder: paths::target_dir(runtime_dir, key),
            _held: None,
        }
    }
}

/// The processes that have a folder in a runtime folder of ours, which must be a private one.
pub(crate) fn keys_in(runtime_dir: &Path) -> Vec<ProcessKey> {
    let names = cleanup::own_private(runtime_dir).and_then(|folder| folder.names());
    let names = names.unwrap_or_default().into_iter();
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

/// The folder of a process's rings. A link is followed only to where it must point; `seen` tells where that is from here.
/// `users` are the process's as seen from here and as it sees itself.
fn rings_in(
    runtime_dir: &Path,
    key: ProcessKey,
    (uid, own_uid): (u32, u32),
    seen: impl Fn(PathBuf) -> PathBuf,
) -> Result<Option<PathBuf>, NotPrivate> {
    let met_at = paths::rings_path(runtime_dir, key);
    let Ok(metadata) = fs::symlink_metadata(&met_at) else {
        return Ok(None);
    };
    let folders = if metadata.is_symlink() {
        let folders = paths::memory_dirs(own_uid, key).into_iter();
        folders.map(seen).collect()
    } else {
        vec![met_at]
    };
    let mut refused = Vec::new();
    for folder in folders {
        let Ok(metadata) = fs::symlink_metadata(&folder) else {
            continue;
        };
        match paths::check_private(&folder, &metadata, uid) {
            Ok(()) => return Ok(Some(folder)),
            Err(error) => refused.push(error),
        }
    }
    NotPrivate::with_all(refused).map_or(Ok(None), Err)
}
