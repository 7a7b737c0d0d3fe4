//! The process's private folder: made, checked, and removed again.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use probing_proto::env::PROBING_DIR;
use probing_proto::paths::{self, FOLDER_MODE, NotPrivate, SOCKET_MODE};
use probing_proto::process::ProcessKey;

/// Why there is no place to listen at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error(transparent)]
    NotPrivate(#[from] NotPrivate),
    #[error("cannot make the private folder {path}: {source}")]
    Unmakeable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
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
            Self::NotPrivate(error) => error.hint(),
            Self::Unmakeable { .. } | Self::Unbindable { .. } => {
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
        let runtime_dir = paths::runtime_dir(uid, PROBING_DIR.value());
        make_private(&runtime_dir, uid)?;
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

    /// Removes the process's folder and all in it (an attached library, too). Other folders beside it are not ours.
    pub(crate) fn remove(&self) {
        // It may be gone already; there is nobody to tell.
        fs::remove_dir_all(&self.folder).ok();
    }
}

fn make_private(path: &Path, uid: u32) -> Result<(), DirectoryError> {
    let not_made = |source| DirectoryError::Unmakeable {
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
