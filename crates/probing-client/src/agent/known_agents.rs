//! The certificates of agents, as they were when they were first met: a line for each, `host:port sha256:…`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use probing_proto::env::{HOME, XDG_STATE_HOME};
use probing_proto::paths;

use crate::agent::cert_pinning::Fingerprint;
use crate::agent::endpoint::Endpoint;

/// The file; none where there is no place for it.
pub(crate) fn path() -> Option<PathBuf> {
    paths::known_agents_path(XDG_STATE_HOME.value(), HOME.value())
}

/// What is remembered of an agent. The last line counts.
pub(crate) fn fingerprint(endpoint: &Endpoint) -> Option<Fingerprint> {
    let text = fs::read_to_string(path()?).ok()?;
    let name = endpoint.to_string();
    let of_it = |line: &str| {
        let (host, fingerprint) = line.split_once(' ')?;
        (host == name).then(|| fingerprint.parse().ok()).flatten()
    };
    text.lines().rev().find_map(of_it)
}

/// Remembers it; the file that it is in, if there is one.
pub(crate) fn remember(
    endpoint: &Endpoint,
    fingerprint: Fingerprint,
) -> io::Result<Option<PathBuf>> {
    let Some(path) = path() else {
        return Ok(None);
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path)?;
    // One write: lines of others who are met at the same time stay whole.
    file.write_all(format!("{endpoint} {fingerprint}\n").as_bytes())?;
    Ok(Some(path))
}
