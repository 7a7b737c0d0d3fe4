//! The agent's files in the runtime folder: its description, and the lock of its port.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use probing_proto::agent::AgentState;
use probing_proto::env::PROBING_DIR;
use probing_proto::paths::{self, SOCKET_MODE};
use probing_store::{make_private, make_runtime_dir};
use rustix::fs::{FlockOperation, flock};

use crate::error::AgentError;

#[derive(Debug, Clone)]
pub(crate) struct Folder {
    runtime_dir: PathBuf,
}

/// Whose port it is, until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Folder {
    pub(crate) fn open() -> Result<Self, AgentError> {
        let uid = rustix::process::geteuid().as_raw();
        let runtime_dir = make_runtime_dir(uid, PROBING_DIR.value())?;
        make_private(&paths::agents_dir(&runtime_dir), uid)?;
        Ok(Self { runtime_dir })
    }

    pub(crate) fn path(&self) -> PathBuf {
        paths::agents_dir(&self.runtime_dir)
    }

    pub(crate) fn token(&self) -> PathBuf {
        paths::token_path(&self.runtime_dir)
    }

    pub(crate) fn audit(&self) -> PathBuf {
        self.path().join("audit.log")
    }

    /// Takes the port among the agents of this user; none when another has it.
    pub(crate) fn lock(&self, port: u16) -> Result<Option<Lock>, AgentError> {
        let path = paths::agent_lock_path(&self.runtime_dir, port);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let file = file.map_err(|source| AgentError::File { path, source })?;
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        Ok(locked.is_ok().then_some(Lock { _file: file }))
    }

    /// Listens on the socket of the agent on that port, whose lock the caller has. What an earlier one left goes.
    pub(crate) fn listen(&self, port: u16) -> Result<UnixListener, AgentError> {
        let path = paths::agent_socket_path(&self.runtime_dir, port);
        let bound = || {
            fs::remove_file(&path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
            // By the folder's descriptor: the path of a socket has at most 107 bytes.
            let folder = File::open(self.path())?;
            let (fd, name) = (folder.as_raw_fd(), paths::agent_socket_name(port));
            let listener = UnixListener::bind(format!("/proc/self/fd/{fd}/{name}"))?;
            fs::set_permissions(&path, Permissions::from_mode(SOCKET_MODE))?;
            Ok(listener)
        };
        bound().map_err(|source| AgentError::File {
            path: path.clone(),
            source,
        })
    }

    /// What the agent on that port says of itself.
    pub(crate) fn state(&self, port: u16) -> Option<AgentState> {
        let bytes = fs::read(paths::agent_state_path(&self.runtime_dir, port)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Says it.
    pub(crate) fn set_state(&self, port: u16, state: &AgentState) -> Result<(), AgentError> {
        let path = paths::agent_state_path(&self.runtime_dir, port);
        let unready = path.with_extension(format!("new.{}", std::process::id()));
        let written = serde_json::to_vec(state)
            .map_err(io::Error::from)
            .and_then(|json| fs::write(&unready, json))
            .and_then(|()| fs::rename(&unready, &path));
        written.map_err(|source| AgentError::File { path, source })
    }

    /// Nobody is there any more. The lock's file stays: who removes it takes it from under another.
    pub(crate) fn clear_state(&self, port: u16) {
        fs::remove_file(paths::agent_state_path(&self.runtime_dir, port)).ok();
        fs::remove_file(paths::agent_socket_path(&self.runtime_dir, port)).ok();
    }
}
