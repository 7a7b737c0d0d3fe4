//! The folder of a capture, which gets its name when it is complete.
//!
//! It has another name until all of it is there: whoever ends this process meanwhile leaves nothing that is taken
//! for a capture, and what cannot be written leaves nothing at all.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use probing_proto::capture::EXTENSION;
use probing_proto::paths::FOLDER_MODE;
use serde_json::Value;

/// Names that are tried: processes of several containers may have one pid and one folder.
const ATTEMPTS: u32 = 100;

pub(crate) struct Folder {
    unfinished: PathBuf,
    path: PathBuf,
    is_whole: bool,
}

impl Folder {
    /// Makes a folder in another for a capture that is called so, or nearly so where that name is taken.
    pub(crate) fn begin(all: &Path, name: &str) -> io::Result<Self> {
        let mut folders = DirBuilder::new();
        folders.mode(FOLDER_MODE);
        folders.recursive(true).create(all)?;
        folders.recursive(false);
        for attempt in 1..=ATTEMPTS {
            let name = match attempt {
                1 => name.to_owned(),
                _ => format!("{name}-{attempt}"),
            };
            let [path, unfinished] =
                [EXTENSION, "unfinished"].map(|end| all.join(format!("{name}.{end}")));
            if fs::symlink_metadata(&path).is_ok() {
                continue;
            }
            match folders.create(&unfinished) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made?;
                    return Ok(Self {
                        unfinished,
                        path,
                        is_whole: false,
                    });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Where a part of it is, until it is whole.
    pub(crate) fn part(&self, name: &str) -> PathBuf {
        self.unfinished.join(name)
    }

    pub(crate) fn write(&self, name: &str, part: serde_json::Result<Value>) -> io::Result<()> {
        let mut file = OpenOptions::new();
        let file = file.write(true).create_new(true).mode(0o600);
        let mut file = file.open(self.part(name))?;
        file.write_all(&serde_json::to_vec(&part?)?)?;
        // A file system that is far away says only now that it is full.
        file.sync_data()
    }

    /// Makes it a capture; where it is.
    pub(crate) fn finish(mut self) -> io::Result<PathBuf> {
        fs::rename(&self.unfinished, &self.path)?;
        self.is_whole = true;
        Ok(self.path.clone())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_whole {
            // What cannot be removed keeps its name.
            fs::remove_dir_all(&self.unfinished).ok();
        }
    }
}
