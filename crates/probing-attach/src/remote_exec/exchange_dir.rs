//! The folder through which a script in the target and we talk: `/tmp/probing-attach-<pid>-<time>` as the target sees it.
//!
//! It holds the script, and a file `ask` that we keep locked as long as we live and wait. Whoever renames that file first
//! decides: the script (it runs) or we (it does not). The answer is written into it.
//!
//! The folder is under the target's control, so all of this goes through [`ForeignDir`].

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use probing_process::access::foreign_files::{self, ForeignDir};
use probing_process::error::ProcessError;
use probing_process::proc;
use probing_process::procfs::status::Status;
use probing_proto::process::Pid;

use crate::error::AttachError;
use crate::injection::inject::Target;
use crate::injection::tracee::nap;
use crate::wrapper;

const TMP: &str = "/tmp";
const PREFIX: &str = "probing-attach-";
const SCRIPT: &str = "script";
const ASK: &str = "ask";
/// The file `ask` once the script has it.
const TAKEN: &str = "taken";
const TAKEN_BACK: &str = "taken-back";
/// All that is ever in the folder.
const FILES: [&str; 4] = [SCRIPT, ASK, TAKEN, TAKEN_BACK];
/// How long it takes at most to make the files in it.
const MAKING: Duration = Duration::from_secs(10);

/// A question to the target; its folder is removed when dropped.
#[derive(Debug)]
pub(crate) struct Question {
    tmp: ForeignDir,
    name: String,
    folder: ForeignDir,
    /// The file `ask`.
    file: File,
}

impl Question {
    /// Makes the folder and its files. `None`: that cannot be, for instance because `/tmp` is a link.
    pub(crate) fn ask(pid: Pid, source: &str) -> Option<Self> {
        let status = Status::of(pid)?;
        let now = SystemTime::UNIX_EPOCH.elapsed().ok()?.as_nanos();
        let tmp = ForeignDir::in_root_of(pid, Path::new(TMP)).ok()?;
        sweep(&tmp, Some(pid));
        let name = format!("{PREFIX}{pid}-{now:x}");
        let folder = tmp.make_folder(&name).ok()?;
        let script = wrapper::in_file(source, status.blocked, &format!("{TMP}/{name}"));
        let make_files = || -> io::Result<File> {
            let file = folder.make_file(ASK, 0o600)?;
            lock(&file)?;
            folder
                .make_file(SCRIPT, 0o600)?
                .write_all(script.as_bytes())?;
            Ok(file)
        };
        match make_files() {
            Ok(file) => Some(Self {
                tmp,
                name,
                folder,
                file,
            }),
            Err(_full) => {
                remove(&tmp, &name, &folder);
                None
            }
        }
    }

    /// The script, as the target sees it.
    pub(crate) fn script(&self) -> String {
        format!("{TMP}/{}/{SCRIPT}", self.name)
    }

    pub(crate) fn is_taken(&self) -> bool {
        !self.folder.has(ASK)
    }

    /// Exactly one of this and the script's rename succeeds.
    pub(crate) fn take_back(&self) -> bool {
        self.folder.rename(ASK, TAKEN_BACK).is_ok()
    }

    /// Waits until the script that has taken the question ends.
    pub(crate) fn answer(&self, target: &Target<'_>) -> Result<(), AttachError> {
        let pid = target.pid;
        let started = Instant::now();
        loop {
            if let Some(message) = self.read_answer() {
                return match message.as_str() {
                    "" => Ok(()),
                    _ => Err(AttachError::Raised { pid, message }),
                };
            }
            if !proc(pid, "").exists() {
                return Err(ProcessError::Ended { pid }.into());
            }
            if Instant::now() > target.deadline {
                let waited = target.started.elapsed();
                return Err(AttachError::Unfinished { pid, waited });
            }
            thread::sleep(nap(started.elapsed()));
        }
    }

    /// Through our own handle: what others may have put in its place is not read.
    fn read_answer(&self) -> Option<String> {
        let mut bytes = vec![0; 4096];
        let len = self.file.read_at(&mut bytes, 0).ok()?;
        let (first, text) = bytes.get(..len)?.split_first()?;
        (*first == wrapper::ANSWERED).then(|| String::from_utf8_lossy(text).into_owned())
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        remove(&self.tmp, &self.name, &self.folder);
    }
}

/// Removes what attaches that were killed left in our own user's `/tmp`, for targets that are gone.
pub fn sweep_dead() {
    if let Ok(tmp) = ForeignDir::own(Path::new(TMP)) {
        sweep(&tmp, None);
    }
}

/// Removes folders whose makers were killed: those for `target`, in which no script waits now, and those for processes
/// that are gone. Only folders of the user as whom `tmp` is used.
fn sweep(tmp: &ForeignDir, target: Option<Pid>) {
    for name in tmp.names().unwrap_or_default() {
        let Some(pid) = made_for(&name) else { continue };
        let Ok(folder) = tmp.folder(&name) else {
            continue;
        };
        let is_theirs = |folder: &ForeignDir| {
            let stat = folder.stat();
            stat.is_ok_and(|stat| stat.st_uid == tmp.user().uid)
        };
        if is_theirs(&folder)
            && is_abandoned(&folder)
            && (Some(pid) == target || foreign_files::is_nobodys(pid))
        {
            remove(tmp, &name, &folder);
        }
    }
}

/// The process that a folder of this name was made for.
fn made_for(name: &OsStr) -> Option<Pid> {
    let (pid, time) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    u128::from_str_radix(time, 16).ok()?;
    pid.parse().ok()
}

/// Nobody holds the lock; or there has been nothing to lock for longer than it takes to make it.
fn is_abandoned(folder: &ForeignDir) -> bool {
    match [ASK, TAKEN].iter().find_map(|name| folder.file(name).ok()) {
        Some(file) => lock(&file).is_ok(),
        None => folder.age().is_some_and(|age| age > MAKING),
    }
}

/// Removes only what we know of. What cannot be removed now, the script removes when it sees that we are gone.
fn remove(tmp: &ForeignDir, name: impl AsRef<OsStr>, folder: &ForeignDir) {
    for file in FILES {
        _ = folder.remove_file(file);
    }
    _ = tmp.remove_folder(name);
}

/// Belongs to this handle, not to the process: several threads may attach. The kernel gives it up when the handle
/// is closed, however this process ends.
#[expect(unsafe_code, reason = "record locks are a C interface")]
fn lock(file: &File) -> io::Result<()> {
    // SAFETY: all bits zero is a lock of the whole file; F_SETLK reads one such struct.
    let result = unsafe {
        let mut whole: libc::flock = std::mem::zeroed();
        whole.l_type = libc::F_WRLCK as _;
        libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole)
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_we_make_are_ours() {
        assert_eq!(
            made_for(OsStr::new("probing-attach-42-18f0")),
            Some(Pid(42))
        );
        for name in [
            "probing-attach-42",
            "probing-attach--1",
            "probing-attach-42-x",
            "other-42-1",
        ] {
            assert_eq!(made_for(OsStr::new(name)), None, "{name}");
        }
    }
}
