//! The process's private folder: made, checked, and removed again.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use probing_proto::env::PROBING_DIR;
use probing_proto::paths::{self, LASTING, SOCKET_MODE};
use probing_proto::process::ProcessKey;
use probing_store::{FolderError, make_private, make_runtime_dir};

/// Why there is no place to listen at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("cannot listen at {path}: {source}")]
    Unbindable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl DirectoryError {
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Folder(error) => error.hint(),
            Self::Unbindable { .. } => {
                "set PROBING_DIR to a short path that you can write to, for the target and for `probing`".to_owned()
            }
        }
    }
}

/// The folder of this process, with the socket in it.
#[derive(Debug)]
pub(crate) struct Directory {
    folder: PathBuf,
    listener: UnixListener,
}

impl Directory {
    /// Makes the folder and listens in it.
    pub(crate) fn open(key: ProcessKey) -> Result<Self, DirectoryError> {
        let uid = rustix::process::geteuid().as_raw();
        let runtime_dir = make_runtime_dir(uid, PROBING_DIR.value())?;
        let folder = paths::target_dir(&runtime_dir, key);
        make_private(&folder, uid)?;
        let socket = paths::socket_path(&runtime_dir, key);
        let listener = listen(&socket).map_err(|source| DirectoryError::Unbindable {
            path: socket,
            source,
        })?;
        Ok(Self { folder, listener })
    }

    pub(crate) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Removes the process's folder and what is in it (an attached library, too) but recorded rows. Other folders beside it
    /// are not ours.
    pub(crate) fn remove(&self) {
        // Things may be gone already; there is nobody to tell.
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if !LASTING.iter().any(|name| entry.file_name() == *name) {
                fs::remove_file(entry.path()).ok();
            }
        }
        fs::remove_dir(&self.folder).ok();
    }
}

/// Listens at `path`, which appears when everything is ready: one who finds a socket that nobody listens at yet would take
/// the probe for dead. What an earlier probe of this process left there, or the program it was before `exec`, goes.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let unready = path.with_extension("unready");
    if let Err(error) = fs::remove_file(&unready)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let listener = UnixListener::bind(&unready)?;
    fs::set_permissions(&unready, Permissions::from_mode(SOCKET_MODE))?;
    listener.set_nonblocking(true)?;
    fs::rename(&unready, path)?;
    Ok(listener)
}
