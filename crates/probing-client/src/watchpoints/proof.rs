//! The proof that a test process survives debug registers on this machine.
//!
//! It is given once a boot.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use probing_process::access::foreign_files::ForeignDir;
use probing_proto::env::PROBING_DIR;
use probing_proto::paths::DEBUG_REGISTERS;
use probing_proto::process::Pid;
use probing_store::make_runtime_dir;
use probing_watchpoint::WatchpointError;

/// A file of its own kind: anything longer was not written here.
const MAX_LENGTH: usize = 256;

/// Proves it, unless it has been proven since the machine was started.
pub(crate) fn prove_once(target: Pid) -> Result<(), WatchpointError> {
    let (folder, proven) = (own_folder(), proven());
    let is_known = folder.as_ref().is_some_and(|folder| {
        fs::read(folder.join(DEBUG_REGISTERS))
            .is_ok_and(|text| text.len() < MAX_LENGTH && text == proven.as_bytes())
    });
    if is_known {
        return Ok(());
    }
    probing_watchpoint::prove(target)?;
    if let Some(folder) = folder {
        // Where it cannot be remembered it is proven again the next time.
        drop(remember(&folder, &proven));
    }
    Ok(())
}

/// What has been proven: by this version, under this kernel, since this boot.
fn proven() -> String {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let boot = text("/proc/sys/kernel/random/boot_id");
    let kernel = text("/proc/sys/kernel/version");
    let (boot, kernel) = (boot.trim(), kernel.trim());
    format!("{} {boot} {kernel}\n", env!("CARGO_PKG_VERSION"))
}

/// The runtime folder, which nobody else can write to.
fn own_folder() -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    make_runtime_dir(uid, PROBING_DIR.value()).ok()
}

/// Written aside and renamed, so that nobody reads half of it.
fn remember(runtime_dir: &Path, proven: &str) -> io::Result<()> {
    let folder = ForeignDir::own(runtime_dir)?;
    let aside = format!("{DEBUG_REGISTERS}.{}", std::process::id());
    let written = folder
        .make_file(&aside, 0o600)
        .and_then(|mut file| file.write_all(proven.as_bytes()))
        .and_then(|()| folder.rename(&aside, DEBUG_REGISTERS));
    if written.is_err() {
        folder.remove_file(&aside).ok();
    }
    written
}
