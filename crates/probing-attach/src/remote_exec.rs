//! Runs source by the door that Python 3.14 has for this (PEP 768), without stopping anything.
//!
//! We write the name of a script into main's thread state and set the flag at which main looks between two
//! bytecodes: what `sys.remote_exec` does. Main sees it only while it runs Python, so it is tried only then.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use probing_process::error::ProcessError;
use probing_process::proc;
use probing_process::status::Status;
use probing_process::threads::{self, Place, Tid};
use probing_proto::process::Pid;

use crate::error::AttachError;
use crate::inject::Target;
use crate::tracee::nap;
use crate::wrapper;

/// How long main may take to come by.
const PATIENCE: Duration = Duration::from_millis(50);
/// Offsets in the table at the start of `_PyRuntime` are known for this version only.
const VERSION: (u8, u8) = (3, 14);
/// Bits of the eval breaker that we set: signals, pending calls, exceptions set from outside, and "please stop",
/// which is ours.
///
/// More than ours, because another thread may set one of them while we write, and we must not undo it: looking
/// for something that is not there costs main nothing.
const LOOK: u8 = 0b10_1110;
/// The bit that asks main to give up the GIL. Never written: if nobody waits for the GIL, main would wait for
/// someone to take it, for ever. Who wants it asks again after 5 ms.
const GIVE_UP_GIL: u8 = 1;

/// Where in the table an offset stands.
mod at {
    pub(super) const VERSION: usize = 8;
    pub(super) const FREE_THREADED: usize = 16;
    pub(super) const THREADS_MAIN: usize = 80;
    pub(super) const NATIVE_THREAD_ID: usize = 224;
    pub(super) const EVAL_BREAKER: usize = 712;
    pub(super) const SUPPORT: usize = 720;
    pub(super) const ENABLED: usize = 728;
    pub(super) const PENDING: usize = 736;
    pub(super) const SCRIPT: usize = 744;
    pub(super) const SCRIPT_ROOM: usize = 752;
    pub(super) const END: usize = 760;
}

/// Addresses of main's words, and which thread it is.
#[derive(Debug)]
struct Door {
    main: Tid,
    eval_breaker: u64,
    pending: u64,
    script: u64,
    script_room: u64,
}

/// `None`: not this way. The target is as it was.
pub(crate) fn run(target: &Target<'_>, source: &str) -> Result<Option<()>, AttachError> {
    let Some(door) = Door::find(target) else {
        return Ok(None);
    };
    let Some(_turn) = take_turn(target.pid) else {
        return Ok(None);
    };
    // Someone else's script waits, or main does.
    if door.is_asked(target) || Place::of(target.pid, door.main) != Place::Running {
        return Ok(None);
    }
    let Some(folder) = Folder::create(target.pid, source) else {
        return Ok(None);
    };
    target.steps.pass();
    if door.ask(target, &folder).is_err() {
        return Ok(None);
    }
    target.steps.pass();
    let asked = Instant::now();
    while asked.elapsed() < PATIENCE && !folder.is_taken() {
        thread::sleep(nap(asked.elapsed()));
    }
    if !folder.is_taken() {
        // The flag first, so that main does not look for a script that is gone.
        if target
            .memory
            .write(door.pending, &0u32.to_le_bytes())
            .is_err()
            || folder.take_back()
        {
            return Ok(None);
        }
    }
    folder.answer(target).map(Some)
}

/// There is one slot for a script: two who write to it at once would mix their paths. A name that is bound once
/// and that the kernel frees when we end, without a file.
fn take_turn(pid: Pid) -> Option<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("probing-attach-{pid}")).ok()?;
    UnixDatagram::bind_addr(&name).ok()
}

impl Door {
    fn find(target: &Target<'_>) -> Option<Self> {
        let runtime = target.python.runtime?;
        let table = target.memory.read_vec(runtime, at::END).ok()?;
        let word = |at: usize| {
            let bytes = table.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let version = (
            (word(at::VERSION)? >> 24) as u8,
            (word(at::VERSION)? >> 16) as u8,
        );
        if version != VERSION || word(at::FREE_THREADED)? != 0 {
            return None;
        }
        let read = |address| target.memory.read_u64(address).ok();
        let interpreter = target.python.main_interpreter(&target.memory)?;
        let enabled = read(interpreter + word(at::ENABLED)?)? as u32;
        let thread = read(interpreter + word(at::THREADS_MAIN)?)?;
        let support = thread + word(at::SUPPORT)?;
        let main = read(thread + word(at::NATIVE_THREAD_ID)?)?;
        (enabled == 1 && thread != 0).then_some(())?;
        Some(Self {
            main: threads::by_id_inside(target.pid, u32::try_from(main).ok()?)?,
            eval_breaker: thread + word(at::EVAL_BREAKER)?,
            pending: support + word(at::PENDING)?,
            script: support + word(at::SCRIPT)?,
            script_room: word(at::SCRIPT_ROOM)?,
        })
    }

    fn is_asked(&self, target: &Target<'_>) -> bool {
        let mut pending = [0; 4];
        target.memory.read(self.pending, &mut pending).is_err() || pending != [0; 4]
    }

    fn ask(&self, target: &Target<'_>, folder: &Folder) -> io::Result<()> {
        let memory = &target.memory;
        let path = format!("{}/script\0", folder.inside);
        if path.len() as u64 > self.script_room || self.is_asked(target) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        memory.write(self.script, path.as_bytes())?;
        memory.write(self.pending, &1u32.to_le_bytes())?;
        // Only the lowest byte: the upper ones are a version number of the interpreter's.
        let mut breaker = [0];
        memory.read(self.eval_breaker, &mut breaker)?;
        memory.write(self.eval_breaker, &[(breaker[0] | LOOK) & !GIVE_UP_GIL])
    }
}

/// A private folder that the target can see, with the script and our question in it; removed when dropped.
#[derive(Debug)]
struct Folder {
    /// As we see it.
    path: PathBuf,
    /// As the target sees it.
    inside: String,
    /// `ask`, locked as long as we live and wait.
    question: File,
}

impl Folder {
    fn create(pid: Pid, source: &str) -> Option<Self> {
        let status = Status::of(pid)?;
        let now = SystemTime::UNIX_EPOCH.elapsed().ok()?.as_nanos();
        let name = format!("probing-attach-{pid}-");
        let outside = proc(pid, "root/tmp");
        sweep(&outside, &name);
        let inside = format!("/tmp/{name}{now:x}");
        let path = outside.join(format!("{name}{now:x}"));
        // Not recursive: if someone made it before us, it is not ours.
        fs::DirBuilder::new().mode(0o700).create(&path).ok()?;
        let script = wrapper::in_file(source, status.blocked, &inside);
        let fill = || -> io::Result<File> {
            let question = create(&path.join("ask"))?;
            lock(&question)?;
            let mut file = create(&path.join("script"))?;
            file.write_all(script.as_bytes())?;
            // We may be root; the target must be able to read, rename and remove. The folder last: until then
            // nobody else can have put something into it.
            let (uid, gid) = (Some(status.uid), Some(status.gid));
            std::os::unix::fs::fchown(&file, uid, gid)?;
            std::os::unix::fs::fchown(&question, uid, gid)?;
            std::os::unix::fs::chown(&path, uid, gid)?;
            Ok(question)
        };
        if let Ok(question) = fill() {
            return Some(Self {
                path,
                inside,
                question,
            });
        }
        remove(&path);
        None
    }

    fn is_taken(&self) -> bool {
        !self.path.join("ask").exists()
    }

    /// Exactly one of this and the script's rename succeeds.
    fn take_back(&self) -> bool {
        fs::rename(self.path.join("ask"), self.path.join("taken-back")).is_ok()
    }

    fn answer(&self, target: &Target<'_>) -> Result<(), AttachError> {
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

    /// Through our own handle: what others may have put in its place is not followed.
    fn read_answer(&self) -> Option<String> {
        let mut bytes = vec![0; 4096];
        let len = self.question.read_at(&mut bytes, 0).ok()?;
        let (first, text) = bytes.get(..len)?.split_first()?;
        (*first == wrapper::ANSWERED).then(|| String::from_utf8_lossy(text).into_owned())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes folders for the same target whose maker was killed.
fn sweep(outside: &Path, name: &str) {
    for entry in fs::read_dir(outside).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(name);
        if is_ours && is_abandoned(&entry.path()) {
            remove(&entry.path());
        }
    }
}

/// Nobody holds the lock; or there has been nothing to lock for longer than it takes to make it.
fn is_abandoned(folder: &Path) -> bool {
    let question = ["ask", "taken"].iter().find_map(|name| {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NOFOLLOW);
        options.open(folder.join(name)).ok()
    });
    match question {
        Some(question) => lock(&question).is_ok(),
        None => fs::symlink_metadata(folder)
            .and_then(|data| data.modified())
            .is_ok_and(|made| {
                made.elapsed()
                    .is_ok_and(|age| age > Duration::from_secs(10))
            }),
    }
}

/// Removes only what we know of. What cannot be removed now, the script removes when it sees that we are gone.
fn remove(path: &Path) {
    for name in ["script", "ask", "taken", "taken-back"] {
        _ = fs::remove_file(path.join(name));
    }
    _ = fs::remove_dir(path);
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Belongs to this handle, not to the process: several threads may attach. The kernel gives it up when the handle
/// is closed, however this process ends.
#[expect(unsafe_code, reason = "record locks are a C interface")]
fn lock(file: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
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
