//! Where the rings of a process are: a private folder in memory, which outlives the process.
//!
//! That is `rings` in the process's own folder when that is in memory, else a folder below `/dev/shm` to which `rings` is
//! a link. A file beside the rings is locked while their process lives, so that nobody sweeps the rings of a process
//! that it cannot see: locks are seen across containers that share the folder, processes are not.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use probing_proto::paths::{self, FOLDER_MODE, HOME_LINK, LOCK_FILE, NotPrivate, RING_EXTENSION};
use probing_proto::process::ProcessKey;
use probing_proto::tables::schema::Recorder;
use rustix::fs::{FlockOperation, OFlags, fcntl_lock, statfs, statvfs};
use rustix::io::fcntl_dupfd_cloexec;

/// File systems whose files are in memory: tmpfs and ramfs.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
const FILE_MODE: u32 = 0o600;
/// Somebody may be looking whether the lock is held, for a moment.
const ATTEMPTS: u32 = 100;
/// What is read of a description at most.
const MAX_DESCRIPTION: u64 = 1 << 20;
/// Characters of a table's name in that of its file, for people who look into the folder.
const NAME: usize = 64;

/// Why there is no folder for this user alone.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error(transparent)]
    NotPrivate(#[from] NotPrivate),
    #[error("cannot make the private folder {path}: {source}")]
    Unmakeable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl FolderError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NotPrivate(error) => error.hint(),
            Self::Unmakeable { .. } => {
                "set PROBING_DIR to a short path that you can write to, for the target and for `probing`".to_owned()
            }
        }
    }
}

/// Why there is no place for rings.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("cannot make {path}: {source}")]
    Unmakeable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("neither the runtime folder nor /dev/shm is in memory: {path}")]
    NotInMemory { path: PathBuf },
}

impl PlaceError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Folder(error) => error.hint(),
            Self::Unmakeable { .. } | Self::NotInMemory { .. } => {
                "set PROBING_DIR to a folder on a tmpfs that you can write to, for the target and for `probing`"
                    .to_owned()
            }
        }
    }
}

/// The folder of this process's rings, held while it lives.
#[derive(Debug)]
pub struct RingDir {
    folder: PathBuf,
    made: AtomicU32,
    _lock: Option<File>,
}

impl RingDir {
    /// Makes the folders of process `key`, which must be this one, and locks them.
    pub fn make(runtime_dir: &Path, key: ProcessKey) -> Result<Self, PlaceError> {
        let uid = rustix::process::geteuid().as_raw();
        make_private(runtime_dir, uid)?;
        let target_dir = paths::target_dir(runtime_dir, key);
        make_private(&target_dir, uid)?;
        let met_at = paths::rings_path(runtime_dir, key);
        let folder = if is_in_memory(&target_dir) {
            make_private(&met_at, uid)?;
            met_at
        } else {
            let folder = in_shared_memory(uid, key)?;
            link(&target_dir, &folder.join(HOME_LINK))?;
            link(&folder, &met_at)?;
            folder
        };
        let lock = lock(&folder.join(LOCK_FILE))?;
        Ok(Self {
            folder,
            made: AtomicU32::new(0),
            _lock: lock,
        })
    }

    /// Where the next ring goes.
    pub fn next_path(&self, table: &str) -> PathBuf {
        let name = name_in_path(table);
        loop {
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            let path = self
                .folder
                .join(format!("{number:04}-{name}.{RING_EXTENSION}"));
            // What this process recorded as another program, before an `exec`, stays.
            if fs::symlink_metadata(&path).is_err() {
                return path;
            }
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Memory that is free there.
    pub fn free_bytes(&self) -> u64 {
        free_bytes(&self.folder)
    }
}

fn name_in_path(table: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '_'
        }
    };
    table.chars().take(NAME).map(plain).collect()
}

/// The table of a ring, as far as its path tells: the name is a short and plain one.
pub(crate) fn table_in_path(path: &Path) -> Option<&str> {
    let (number, name) = path.file_stem()?.to_str()?.split_once('-')?;
    number.parse::<u32>().is_ok().then_some(name)
}

/// Whether a ring's path is one for this table.
pub(crate) fn is_path_of(path: &Path, table: &str) -> bool {
    table_in_path(path).is_some_and(|name| name.eq_ignore_ascii_case(&name_in_path(table)))
}

/// What is free where the folder is.
pub fn free_bytes(folder: &Path) -> u64 {
    match statvfs(folder) {
        // Without a limit it says 0 of 0.
        Ok(stat) if stat.f_blocks == 0 => u64::MAX,
        Ok(stat) => stat.f_bavail.saturating_mul(stat.f_frsize),
        Err(_) => 0,
    }
}

/// Says in a process's folder who records, for those who look when it is gone, or when there was no place for rings.
pub fn describe(runtime_dir: &Path, recorder: &Recorder) -> Result<(), PlaceError> {
    let key = ProcessKey {
        pid: recorder.pid,
        start_ticks: recorder.start_ticks,
    };
    let path = paths::recorder_path(runtime_dir, key);
    let unready = path.with_extension("unready");
    let write = || -> io::Result<()> {
        let text = serde_json::to_vec_pretty(recorder)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&unready)?;
        file.write_all(&text)?;
        fs::rename(&unready, &path)
    };
    write().map_err(|source| PlaceError::Unmakeable {
        path: path.clone(),
        source,
    })
}

/// Who says that it records there; `None` when nobody does who can be understood.
pub fn read_recorder(path: &Path) -> Option<Recorder> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
        .open(path)
        .ok()?;
    let mut text = Vec::new();
    file.take(MAX_DESCRIPTION).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Whether files in the folder are in memory.
pub fn is_in_memory(folder: &Path) -> bool {
    statfs(folder).is_ok_and(|stat| IN_MEMORY.contains(&stat.f_type))
}

/// Whether a living process holds the rings in `folder`, wherever it lives.
pub fn is_held(folder: &Path) -> bool {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
        .open(folder.join(LOCK_FILE));
    // A shared lock, which is let go at once by closing the file.
    opened.is_ok_and(|file| fcntl_lock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

/// Makes a folder that only its owner can enter, or checks that it is one.
pub fn make_private(path: &Path, uid: u32) -> Result<(), FolderError> {
    let not_made = |source| FolderError::Unmakeable {
        path: path.to_owned(),
        source,
    };
    match DirBuilder::new().mode(FOLDER_MODE).create(path) {
        // The process's umask may have taken bits away.
        Ok(()) => {
            fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE)).map_err(not_made)?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(not_made(error)),
    }
    let metadata = fs::symlink_metadata(path).map_err(not_made)?;
    Ok(paths::check_private(path, &metadata, uid)?)
}

/// Makes the first runtime folder of user `uid` that can be had, or checks that it is private. `chosen` is the value of
/// `PROBING_DIR`, if any.
pub fn make_runtime_dir(uid: u32, chosen: Option<OsString>) -> Result<PathBuf, FolderError> {
    make_first(paths::runtime_dirs(uid, chosen), uid)
}

/// Makes the first of several folders that can be made private to `uid`.
fn make_first(folders: Vec<PathBuf>, uid: u32) -> Result<PathBuf, FolderError> {
    let (mut refused, mut unmakeable) = (Vec::new(), None);
    for path in folders {
        match make_private(&path, uid) {
            Ok(()) => return Ok(path),
            Err(FolderError::NotPrivate(error)) => refused.push(error),
            Err(error) => unmakeable = unmakeable.or(Some(error)),
        }
    }
    Err(match (NotPrivate::with_all(refused), unmakeable) {
        (Some(error), _) => error.into(),
        (None, Some(error)) => error,
        (None, None) => FolderError::Unmakeable {
            path: PathBuf::new(),
            source: io::ErrorKind::NotFound.into(),
        },
    })
}

/// This boot's number; zeros where the kernel does not tell.
pub(crate) fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

fn in_shared_memory(uid: u32, key: ProcessKey) -> Result<PathBuf, PlaceError> {
    let roots = paths::memory_roots(uid);
    let is_elsewhere = |root: &&PathBuf| !root.parent().is_some_and(is_in_memory);
    if let Some(root) = roots.iter().find(is_elsewhere) {
        return Err(PlaceError::NotInMemory { path: root.clone() });
    }
    let folder = make_first(roots, uid)?.join(key.to_string());
    make_private(&folder, uid)?;
    Ok(folder)
}

/// Makes a link, or checks that it is there.
fn link(to: &Path, at: &Path) -> Result<(), PlaceError> {
    let absolute = std::path::absolute(to).unwrap_or_else(|_| to.to_owned());
    let made = match symlink(&absolute, at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::read_link(at).is_ok_and(|there| there == absolute) {
                return Ok(());
            }
            fs::remove_file(at).and_then(|()| symlink(&absolute, at))
        }
        made => made,
    };
    made.map_err(|source| PlaceError::Unmakeable {
        path: at.to_owned(),
        source,
    })
}

/// Locks the file for as long as this process lives. Such a lock is not inherited by children.
fn lock(path: &Path) -> Result<Option<File>, PlaceError> {
    let open = || -> io::Result<File> {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path)?;
        // Away from the numbers of the standard streams. Closing the first handle costs no lock: there is none yet.
        Ok(File::from(fcntl_dupfd_cloexec(&opened, 3)?))
    };
    let file = open().map_err(|source| PlaceError::Unmakeable {
        path: path.to_owned(),
        source,
    })?;
    for _ in 0..ATTEMPTS {
        match fcntl_lock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(_) => thread::yield_now(),
        }
    }
    // Without a lock its pid still says that it lives, to those who can see it.
    Ok(None)
}
