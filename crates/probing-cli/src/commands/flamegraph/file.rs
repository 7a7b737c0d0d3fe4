//! Where the picture goes: a file that is there whole or not at all, a pipe, or standard output.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use probing_proto::text::visible;

use crate::arguments::FlamegraphFormat;
use crate::terminal;

#[derive(Debug)]
pub(super) enum File {
    Stdout,
    /// Written beside it, then renamed.
    Regular(PathBuf),
    /// A pipe or a device: it must stay what it is.
    Special(PathBuf),
}

pub(super) fn is_stdout(path: &Path) -> bool {
    path == "-"
}

impl File {
    /// Fails now rather than after the sampling if the file could not be written.
    pub(super) fn named(path: &Path) -> anyhow::Result<Self> {
        if is_stdout(path) {
            return Ok(Self::Stdout);
        }
        // What a link points to is replaced, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_new| path.to_owned());
        let cannot = || format!("cannot write {}", path.display());
        match fs::metadata(&path) {
            Ok(data) if data.is_dir() => {
                Err(io::Error::from(io::ErrorKind::IsADirectory)).with_context(cannot)
            }
            Ok(data) if !data.is_file() => Ok(Self::Special(path)),
            _ => {
                tempfile::tempfile_in(folder_of(&path)).with_context(cannot)?;
                Ok(Self::Regular(path))
            }
        }
    }

    pub(super) fn in_this_folder(name: &str, format: FlamegraphFormat) -> anyhow::Result<Self> {
        let ending = match format {
            FlamegraphFormat::Svg => "svg",
            FlamegraphFormat::Speedscope => "speedscope.json",
            FlamegraphFormat::Folded => "folded",
        };
        // A target may be named by a path.
        let name = visible::file_name(name);
        Self::named(Path::new(&format!("{name}.{ending}")))
    }

    pub(super) fn write(&self, text: &[u8]) -> anyhow::Result<()> {
        let (Self::Regular(path) | Self::Special(path)) = self else {
            return Ok(terminal::stdout().write_all(text)?);
        };
        let written = match self {
            Self::Regular(path) => replace(path, text),
            _ => fs::write(path, text),
        };
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    // As any new file; the umask takes its part.
    let permissions = fs::Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new()
        .prefix(".probing-")
        .permissions(permissions)
        .tempfile_in(folder_of(path))?;
    file.write_all(text)?;
    file.persist(path)?;
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::Regular(path) | Self::Special(path) => path.display().fmt(f),
        }
    }
}
