//! The agent's files in the private folder: what it says of itself, and the lock that says whose port it is.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use probing_proto::agent::AgentState;
use probing_proto::env::PROBING_DIR;
use probing_proto::paths;
use probing_store::make_private;
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
        let runtime_dir = paths::runtime_dir(uid, PROBING_DIR.value());
        make_private(&runtime_dir, uid)?;
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
    }
}
