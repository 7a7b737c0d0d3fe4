//! Attaches the probe to a process without preparation.
//!
//! The library comes from beside this command, never from the target's environment. A target that sees other files
//! than we do (a container), or may not read ours (another user), gets a copy in its own private folder, which goes
//! when the probe goes.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use probing_attach::{AttachError, Report, Strategy};
use probing_process::access::foreign_files::ForeignDir;
use probing_process::proc;
use probing_process::procfs::processes::Process;
use probing_proto::agent::AttachedByAgent;
use probing_proto::paths::{self, NotPrivate};

use crate::error::{ClientError, LocalError};
use crate::probe::package::{self, PROBE};
use crate::probe::socket_path;
use crate::stacks;
use crate::stacks::access::Subject;

/// Source that starts the probe, once it is told where the library is.
const LOADER: &str = "probing/_boot/_probing_load.py";
/// The library's name where it is copied to.
const COPY: &str = "_probe.abi3.so";

/// Starts the probe in `process`.
pub(crate) fn attach(
    process: &Process,
    options: &probing_attach::Options,
) -> Result<Report, ClientError> {
    let package = package::package_dir()?;
    let unreadable = |source| ClientError::Local(LocalError::PackageUnreadable { source });
    let loader = fs::read_to_string(package.join(LOADER)).map_err(unreadable)?;
    let library = package.join(PROBE);
    if reads_our_files(process) {
        return run(process, &loader, &library, options);
    }
    let bytes = fs::read(&library).map_err(unreadable)?;
    let copy = Copy::make(process, &bytes)?;
    let report = run(process, &loader, &copy.path, options);
    if report.is_err() {
        copy.remove();
    }
    report
}

fn run(
    process: &Process,
    loader: &str,
    library: &Path,
    options: &probing_attach::Options,
) -> Result<Report, ClientError> {
    let source = format!(
        "{loader}\nstart({}, {})\ndel start\n",
        python_text(library.as_os_str()),
        process.key().start_ticks
    );
    probing_attach::run(process.pid, &source, options).map_err(|error| explained(process, error))
}

/// A process that cannot run Python now: says who holds the GIL, and where.
fn explained(process: &Process, error: AttachError) -> ClientError {
    let busy = matches!(error, AttachError::Busy { .. });
    let subject = Subject::Process(Box::new(process.clone()));
    let holder = busy.then(|| stacks::gil_holder(&subject));
    match holder.flatten() {
        Some(holder) => ClientError::Local(LocalError::GilHeld { error, holder }),
        None => ClientError::Local(LocalError::Attach(error)),
    }
}

fn reads_our_files(process: &Process) -> bool {
    !process.sees_other_files() && process.uid == rustix::process::geteuid().as_raw()
}

/// A Python expression whose value is this path, whatever bytes it holds.
fn python_text(path: &OsStr) -> String {
    let mut hex = String::new();
    for byte in path.as_bytes() {
        // Writing to a String does not fail.
        write!(hex, "{byte:02x}").ok();
    }
    format!("bytes.fromhex('{hex}').decode('utf-8', 'surrogateescape')")
}

/// The library in the target's private folder.
struct Copy {
    folder: ForeignDir,
    /// As the target sees it.
    path: PathBuf,
}

impl Copy {
    /// Makes the folders as the target's probe would, and the file in them. The place is under the target's control and
    /// we may be root, so all of it goes through [`ForeignDir`].
    fn make(process: &Process, library: &[u8]) -> Result<Self, ClientError> {
        let (mut refused, mut failed) = (Vec::new(), None);
        for runtime_dir in socket_path::own_runtime_dirs(process) {
            match Self::make_in(&runtime_dir, process, library) {
                Err(ClientError::Local(LocalError::NotPrivate(error))) => refused.push(error),
                Err(error) => failed = failed.or(Some(error)),
                made => return made,
            }
        }
        Err(match (NotPrivate::with_all(refused), failed) {
            (Some(error), _) => error.into(),
            (None, Some(error)) => error,
            (None, None) => ClientError::Local(LocalError::NoSuchProcess { pid: process.pid }),
        })
    }

    fn make_in(runtime_dir: &Path, process: &Process, library: &[u8]) -> Result<Self, ClientError> {
        let place =
            proc(process.pid, "root").join(runtime_dir.strip_prefix("/").unwrap_or(runtime_dir));
        let failed = |source: io::Error| {
            ClientError::Local(LocalError::NotCopied {
                place: place.clone(),
                source,
            })
        };
        let parent = runtime_dir.parent().unwrap_or(Path::new("/"));
        let parent = ForeignDir::in_root_of(process.pid, parent).map_err(failed)?;
        let name = runtime_dir.file_name().unwrap_or_default();
        let runtime = private_folder(&parent, name, &place)?;
        let key = process.key().to_string();
        let folder = private_folder(&runtime, OsStr::new(&key), &place.join(&key))?;
        // Left by an attempt that was killed half-way.
        folder.remove_file(COPY).ok();
        let written = folder
            .make_file(COPY, 0o700)
            .and_then(|mut file| file.write_all(library));
        written.map_err(failed)?;
        Ok(Self {
            folder,
            path: paths::target_dir(runtime_dir, process.key()).join(COPY),
        })
    }

    /// Takes it out again when nobody came to use it. The folder goes with the process.
    fn remove(&self) {
        self.folder.remove_file(COPY).ok();
    }
}

/// The folder `name` in `parent`, made if it is not there; refused unless only its user can enter it.
fn private_folder(
    parent: &ForeignDir,
    name: &OsStr,
    shown: &Path,
) -> Result<ForeignDir, ClientError> {
    let failed = |source: io::Error| {
        ClientError::Local(LocalError::NotCopied {
            place: shown.to_owned(),
            source,
        })
    };
    let folder = match parent.make_folder(name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match parent.folder(name) {
            Err(error) if is_link(&error) => {
                let path = shown.to_owned();
                return Err(NotPrivate::Symlink { path }.into());
            }
            folder => folder.map_err(failed)?,
        },
        made => made.map_err(failed)?,
    };
    let stat = folder.stat().map_err(failed)?;
    paths::check_private_mode(shown, (stat.st_mode, stat.st_uid), parent.user().uid)?;
    Ok(folder)
}

fn is_link(error: &io::Error) -> bool {
    matches!(
        error
            .raw_os_error()
            .map(rustix::io::Errno::from_raw_os_error),
        Some(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR)
    )
}

/// What an agent tells of an attach that it made.
pub(crate) fn by_agent(told: &AttachedByAgent) -> Option<Report> {
    let strategies = [
        Strategy::RemoteExec,
        Strategy::NewThread,
        Strategy::PendingCall,
        Strategy::Hijack,
    ];
    let mut strategies = strategies.into_iter();
    let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    Some(Report {
        strategy: strategies.find(|strategy| strategy.to_string() == told.strategy)?,
        python: told.python,
        paused: seconds(told.paused_seconds),
        took: seconds(told.took_seconds),
    })
}
