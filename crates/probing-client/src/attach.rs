//! Brings the probe into a process that nobody prepared.
//!
//! The library comes from beside this command, never from the target's environment. A target that sees other files
//! than we do (a container), or may not read ours (another user), gets a copy in its own private folder, which goes
//! when the probe goes.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use probing_attach::{AttachError, Report, Strategy};
use probing_process::proc;
use probing_process::processes::Process;
use probing_proto::agent::AttachedByAgent;
use probing_proto::paths::{self, FOLDER_MODE, NotPrivate};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::{Gid, Uid};

use crate::access::Subject;
use crate::error::ClientError;
use crate::meeting;
use crate::package::{self, PROBE};
use crate::private;
use crate::stacks;

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
    let unreadable = |source| ClientError::PackageUnreadable { source };
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
        "{loader}\nstart({})\ndel start\n",
        python_text(library.as_os_str())
    );
    probing_attach::run(process.pid, &source, options).map_err(|error| explained(process, error))
}

/// A process that cannot run Python now: says who holds the GIL, and where.
fn explained(process: &Process, error: AttachError) -> ClientError {
    let busy = matches!(error, AttachError::Busy { .. });
    let subject = Subject::Process(Box::new(process.clone()));
    let holder = busy.then(|| stacks::gil_holder(&subject));
    match holder.flatten() {
        Some(holder) => ClientError::GilHeld { error, holder },
        None => ClientError::Attach(error),
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
    folder: OwnedFd,
    /// As the target sees it.
    path: PathBuf,
}

impl Copy {
    /// Makes the folders as the target's probe would, and the file in them.
    ///
    /// The place is under the target's control and we may be root: nothing is followed out of the target's root, and
    /// every step goes from an open folder to a name in it that is not a link.
    fn make(process: &Process, library: &[u8]) -> Result<Self, ClientError> {
        let runtime_dir = meeting::own_runtime_dir(process);
        let place =
            proc(process.pid, "root").join(runtime_dir.strip_prefix("/").unwrap_or(&runtime_dir));
        let failed = |source: io::Error| ClientError::NotCopied {
            place: place.clone(),
            source,
        };
        let owner = Owner::of(process);
        let parent = runtime_dir.parent().unwrap_or(Path::new("/"));
        let parent = private::open_in_target(process, parent, OFlags::DIRECTORY);
        let parent = parent.map_err(|error| failed(error.into()))?;
        let name = runtime_dir.file_name().unwrap_or_default();
        let runtime = owner.private_folder(&parent, name, &place)?;
        let key = process.key().to_string();
        let folder = owner.private_folder(&runtime, OsStr::new(&key), &place.join(&key))?;
        owner.write(&folder, library).map_err(failed)?;
        Ok(Self {
            folder,
            path: paths::target_dir(&runtime_dir, process.key()).join(COPY),
        })
    }

    /// Takes it out again when nobody came to use it. The folder goes with the process.
    fn remove(&self) {
        rustix::fs::unlinkat(&self.folder, COPY, AtFlags::empty()).ok();
    }
}

/// Whom the files shall belong to.
struct Owner {
    uid: Uid,
    gid: Gid,
}

impl Owner {
    fn of(process: &Process) -> Self {
        Self {
            uid: Uid::from_raw(process.uid),
            gid: Gid::from_raw(process.gid),
        }
    }

    /// The folder `name` in `parent`, made if it is not there; refused unless only the owner can enter it.
    fn private_folder(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        shown: &Path,
    ) -> Result<OwnedFd, ClientError> {
        let failed = |source: rustix::io::Errno| ClientError::NotCopied {
            place: shown.to_owned(),
            source: source.into(),
        };
        let made = match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(FOLDER_MODE)) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(error) => return Err(failed(error)),
        };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
                let path = shown.to_owned();
                return Err(NotPrivate::Symlink { path }.into());
            }
            opened => opened.map_err(failed)?,
        };
        if made {
            rustix::fs::fchown(&folder, Some(self.uid), Some(self.gid)).map_err(failed)?;
        }
        let metadata =
            fs::File::from(
                folder
                    .try_clone()
                    .map_err(|source| ClientError::NotCopied {
                        place: shown.to_owned(),
                        source,
                    })?,
            )
            .metadata()
            .map_err(|source| ClientError::NotCopied {
                place: shown.to_owned(),
                source,
            })?;
        paths::check_private(shown, &metadata, self.uid.as_raw())?;
        Ok(folder)
    }

    fn write(&self, folder: &OwnedFd, library: &[u8]) -> io::Result<()> {
        // Left by an attempt that was killed half-way.
        rustix::fs::unlinkat(folder, COPY, AtFlags::empty()).ok();
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::File::from(rustix::fs::openat(
            folder,
            COPY,
            flags,
            Mode::from_raw_mode(0o700),
        )?);
        rustix::fs::fchown(&file, Some(self.uid), Some(self.gid))?;
        io::Write::write_all(&mut &file, library)
    }
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
