//! The proof that a process of our own survives debug registers on this machine. It is given once a boot.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use probing_proto::env::PROBING_DIR;
use probing_proto::paths;
use probing_proto::process::Pid;
use probing_store::make_private;
use probing_watchpoint::WatchpointError;

/// A file of its own kind: anything longer was not written here.
const MAX_LENGTH: usize = 256;

/// Proves it, unless it has been proven since the machine was started.
pub(crate) fn prove_once(target: Pid) -> Result<(), WatchpointError> {
    let remembered = remembered();
    let proven = proven();
    let is_known = remembered.as_ref().is_some_and(|path| {
        fs::read(path).is_ok_and(|text| text.len() < MAX_LENGTH && text == proven.as_bytes())
    });
    if is_known {
        return Ok(());
    }
    probing_watchpoint::prove(target)?;
    if let Some(path) = remembered {
        // Where it cannot be remembered it is proven again the next time.
        drop(remember(path, &proven));
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

/// In the runtime folder, which nobody else can write to.
fn remembered() -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let runtime_dir = paths::runtime_dir(uid, PROBING_DIR.value());
    make_private(&runtime_dir, uid).ok()?;
    Some(paths::debug_registers_path(&runtime_dir))
}

/// Written aside and renamed, so that nobody reads half of it.
fn remember(path: PathBuf, proven: &str) -> std::io::Result<()> {
    let aside = path.with_extension(std::process::id().to_string());
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = options
        .open(&aside)
        .and_then(|mut file| file.write_all(proven.as_bytes()))
        .and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        fs::remove_file(&aside).ok();
    }
    written
}
