//! Paths: one runtime folder per user, in it one folder per process.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::process::ProcessKey;

/// Mode of every folder below (and including) the runtime folder.
pub const FOLDER_MODE: u32 = 0o700;
/// Mode of the socket. The folder already keeps others out; this is the second door.
pub const SOCKET_MODE: u32 = 0o600;

/// How many folders stand in for one whose name another user has taken.
const SPARE_FOLDERS: u32 = 9;

/// The folders that may hold the targets of user `uid`, in the order in which a probe tries them: it uses the first that
/// it can make or that is private to its user, and clients look into all that are. `chosen` is the value of `PROBING_DIR`,
/// if any: then there is no other.
///
/// Made from the user alone and not from `XDG_RUNTIME_DIR`: a service, a container or a cron job has another
/// value of that than the shell from which one looks at it, and then the two would never meet. Anybody can take a name in
/// `/tmp`. Nobody can take one in `/run/user/UID`, but a container has no such folder and a logout removes it, so it is the
/// last.
pub fn runtime_dirs(uid: u32, chosen: Option<OsString>) -> Vec<PathBuf> {
    if let Some(chosen) = chosen {
        return vec![PathBuf::from(chosen)];
    }
    let mut folders = with_spares(&format!("/tmp/probing-{uid}"));
    folders.push(PathBuf::from(format!("/run/user/{uid}/probing")));
    folders
}

fn with_spares(usual: &str) -> Vec<PathBuf> {
    let spares = (1..=SPARE_FOLDERS).map(|number| PathBuf::from(format!("{usual}-{number}")));
    [PathBuf::from(usual)].into_iter().chain(spares).collect()
}

/// The folder of one process: its socket, and whatever it records.
pub fn target_dir(runtime_dir: &Path, key: ProcessKey) -> PathBuf {
    runtime_dir.join(key.to_string())
}

/// The name of a probe's socket in [`target_dir`].
pub const SOCKET: &str = "probe.sock";

/// The socket on which the probe of one process listens. Bound by the probe, dialled by clients.
pub fn socket_path(runtime_dir: &Path, key: ProcessKey) -> PathBuf {
    target_dir(runtime_dir, key).join(SOCKET)
}

/// Where the rings of one process are met: a folder, or a link to one of [`memory_dirs`] when the runtime folder is on a disk.
pub fn rings_path(runtime_dir: &Path, key: ProcessKey) -> PathBuf {
    target_dir(runtime_dir, key).join(RINGS)
}

/// Who records there: a [`crate::store::Recorder`].
pub fn recorder_path(runtime_dir: &Path, key: ProcessKey) -> PathBuf {
    target_dir(runtime_dir, key).join(RECORDER)
}

/// The folders in memory that may hold the rings of user `uid`'s processes whose runtime folder is on a disk, in the order
/// in which a probe tries them.
pub fn memory_roots(uid: u32) -> Vec<PathBuf> {
    with_spares(&format!("/dev/shm/probing-{uid}"))
}

/// Where the rings of one process may be when its runtime folder is on a disk.
pub fn memory_dirs(uid: u32, key: ProcessKey) -> Vec<PathBuf> {
    let roots = memory_roots(uid).into_iter();
    roots.map(|root| root.join(key.to_string())).collect()
}

/// The name of a file in the runtime folder: since which boot a process of our own is known to survive debug registers.
pub const DEBUG_REGISTERS: &str = "debug-registers";

/// The name of [`agents_dir`] in the runtime folder.
pub const AGENTS: &str = "agents";

/// What the agents of a user have in common: the token that lets in, the certificate, who did what.
pub fn agents_dir(runtime_dir: &Path) -> PathBuf {
    runtime_dir.join(AGENTS)
}

/// The tokens that let in, and as what. Made by the first agent, read by commands of the same user.
pub fn token_path(runtime_dir: &Path) -> PathBuf {
    agents_dir(runtime_dir).join("token")
}

/// What the agent on `port` says of itself: an [`crate::agent::AgentState`].
pub fn agent_state_path(runtime_dir: &Path, port: u16) -> PathBuf {
    agents_dir(runtime_dir).join(format!("{port}.json"))
}

/// Locked by the agent on `port` while it lives.
pub fn agent_lock_path(runtime_dir: &Path, port: u16) -> PathBuf {
    agents_dir(runtime_dir).join(format!("{port}.lock"))
}

/// The socket on which the agent on `port` serves its own user and root. Commands on its machine speak to it here, never
/// over TCP: the folder and the peer's credentials prove who listens.
pub fn agent_socket_path(runtime_dir: &Path, port: u16) -> PathBuf {
    agents_dir(runtime_dir).join(agent_socket_name(port))
}

/// The name of that socket in [`agents_dir`].
pub fn agent_socket_name(port: u16) -> String {
    format!("{port}.sock")
}

/// The certificates of agents elsewhere, as they were when they were first met. The values are those of
/// `XDG_STATE_HOME` and `HOME`.
pub fn known_agents_path(state_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    Some(state_dir(state_home, home)?.join("known_agents"))
}

pub const RINGS: &str = "rings";
pub const RECORDER: &str = "store.json";

/// What outlives a process in its folder: the rows that it recorded, and who it was.
pub const LASTING: [&str; 2] = [RINGS, RECORDER];

/// A link in one of [`memory_dirs`] back to the process's folder. When that is gone, so is the reason to keep the rings.
pub const HOME_LINK: &str = "home";

/// A file beside the rings that their process keeps locked while it lives, wherever it lives.
pub const LOCK_FILE: &str = "lock";

/// How the names of rings end.
pub const RING_EXTENSION: &str = "ring";

/// Whose history: each prompt has its own, since each has a language of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    Python,
    Sql,
    Debugger,
}

/// Where a prompt keeps what was typed. `state_home` and `home` are the values of those variables.
pub fn history_file(
    history: History,
    state_home: Option<OsString>,
    home: Option<OsString>,
) -> Option<PathBuf> {
    let name = match history {
        History::Python => "history",
        History::Sql => "sql_history",
        History::Debugger => "debug_history",
    };
    Some(state_dir(state_home, home)?.join(name))
}

/// What commands remember of earlier ones.
fn state_dir(state_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let state = state_home
        .map(PathBuf::from)
        .or_else(|| home.map(|home| Path::new(&home).join(".local/state")))?;
    Some(state.join("probing"))
}

/// Why a folder is not one that only its owner can enter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotPrivate {
    #[error("not a folder: {path}")]
    NotAFolder { path: PathBuf },
    #[error("a symbolic link where a private folder belongs: {path}")]
    Symlink { path: PathBuf },
    #[error("private folder belongs to uid {owner}, not to uid {expected}: {path}")]
    Foreign {
        path: PathBuf,
        owner: u32,
        expected: u32,
    },
    #[error("private folder is open to others (mode {mode:03o}): {path}")]
    Open { path: PathBuf, mode: u32 },
    #[error(
        "another user has taken the names of all {count} private folders; uid {owner} has: {path}"
    )]
    AllTaken {
        path: PathBuf,
        owner: u32,
        count: usize,
    },
    #[error("a symbolic link where a socket belongs: {path}")]
    LinkedSocket { path: PathBuf },
    #[error("not a socket: {path}")]
    NotASocket { path: PathBuf },
    #[error("socket belongs to uid {owner}, not to uid {expected}: {path}")]
    ForeignSocket {
        path: PathBuf,
        owner: u32,
        expected: u32,
    },
}

impl NotPrivate {
    /// Why none of several folders can be used, by what is wrong with each; `None` when nothing is.
    pub fn with_all(mut refused: Vec<Self>) -> Option<Self> {
        let count = refused.len();
        if count < 2 {
            return refused.pop();
        }
        let path = refused.first()?.path().to_owned();
        let owner = fs::symlink_metadata(&path).map(|metadata| metadata.uid());
        Some(match owner {
            Ok(owner) => Self::AllTaken { path, owner, count },
            Err(_) => refused.swap_remove(0),
        })
    }

    /// The folder or socket that is refused.
    pub fn path(&self) -> &Path {
        match self {
            Self::NotAFolder { path }
            | Self::Symlink { path }
            | Self::Foreign { path, .. }
            | Self::Open { path, .. }
            | Self::AllTaken { path, .. }
            | Self::LinkedSocket { path }
            | Self::NotASocket { path }
            | Self::ForeignSocket { path, .. } => path,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NotAFolder { path }
            | Self::Symlink { path }
            | Self::Foreign { path, .. }
            | Self::AllTaken { path, .. }
            | Self::LinkedSocket { path }
            | Self::NotASocket { path }
            | Self::ForeignSocket { path, .. } => {
                format!(
                    "remove {}, or set PROBING_DIR to a folder of your own for the target and for `probing`",
                    path.display()
                )
            }
            Self::Open { path, .. } => format!("run: chmod 700 {}", path.display()),
        }
    }
}

/// Whether `path`, whose `symlink_metadata` is given, is a folder that only `uid` can enter.
pub fn check_private(path: &Path, metadata: &Metadata, uid: u32) -> Result<(), NotPrivate> {
    check_private_mode(path, (metadata.mode(), metadata.uid()), uid)
}

/// The same of a folder whose mode and owner are known.
pub fn check_private_mode(
    path: &Path,
    (mode, owner): (u32, u32),
    uid: u32,
) -> Result<(), NotPrivate> {
    const KIND: u32 = 0o170_000;
    const LINK: u32 = 0o120_000;
    const FOLDER: u32 = 0o040_000;
    let path = path.to_owned();
    if mode & KIND == LINK {
        Err(NotPrivate::Symlink { path })
    } else if mode & KIND != FOLDER {
        Err(NotPrivate::NotAFolder { path })
    } else if owner != uid {
        Err(NotPrivate::Foreign {
            path,
            owner,
            expected: uid,
        })
    } else if mode & 0o077 != 0 {
        let mode = mode & 0o777;
        Err(NotPrivate::Open { path, mode })
    } else {
        Ok(())
    }
}
