//! Runs source by the door that Python 3.14 has for this (PEP 768), without stopping anything.
//!
//! We write the name of a script into main's thread state and set the flag at which main looks between two
//! bytecodes: what `sys.remote_exec` does. Main sees it only while it runs Python, so it is tried only then.

pub(crate) mod exchange_dir;

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread;
use std::time::{Duration, Instant};

use probing_process::procfs::threads::{self, SyscallState, Tid};
use probing_process::{proc, read_text};
use probing_proto::process::Pid;

use crate::error::AttachError;
use crate::injection::inject::Target;
use crate::injection::tracee::nap;
use crate::remote_exec::exchange_dir::Question;

/// How long main may take to come by.
const PICKUP_TIMEOUT: Duration = Duration::from_millis(50);
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
struct RemoteDebuggerSupport {
    main: Tid,
    eval_breaker: u64,
    pending: u64,
    script: u64,
    script_room: u64,
}

/// `None`: not this way. The target is as it was.
pub(crate) fn run(target: &Target<'_>, source: &str) -> Result<Option<()>, AttachError> {
    let Some(door) = RemoteDebuggerSupport::find(target) else {
        return Ok(None);
    };
    let Some(_turn) = take_turn(target.pid) else {
        return Ok(None);
    };
    // Someone else's script waits, or main does.
    if door.is_asked(target) || SyscallState::of(target.pid, door.main) != SyscallState::Running {
        return Ok(None);
    }
    let Some(question) = Question::ask(target.pid, source) else {
        return Ok(None);
    };
    target.steps.pass();
    if !has_free_files(target.pid) || door.ask(target, &question).is_err() {
        return Ok(None);
    }
    target.steps.pass();
    let asked = Instant::now();
    while asked.elapsed() < PICKUP_TIMEOUT && !question.is_taken() {
        thread::sleep(nap(asked.elapsed()));
    }
    if !question.is_taken() {
        // The flag first, so that main does not look for a script that is gone.
        if target
            .memory
            .write(door.pending, &0u32.to_le_bytes())
            .is_err()
            || question.take_back()
        {
            return Ok(None);
        }
    }
    question.answer(target).map(Some)
}

/// Whether the target can open some more files. Python prints an error of its own if it cannot open the script, and
/// that would be on the program's stderr.
fn has_free_files(pid: Pid) -> bool {
    /// For the script, what it opens, and what the program opens meanwhile.
    const MIN_FREE_FILES: u64 = 32;
    let limits = read_text(pid, "limits").unwrap_or_default();
    let of_files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let limit = of_files.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    let limit: u64 = limit.unwrap_or(u64::MAX); // "unlimited"
    let open = fs::read_dir(proc(pid, "fd")).map(Iterator::count);
    open.is_ok_and(|open| limit.saturating_sub(open as u64) >= MIN_FREE_FILES)
}

/// There is one slot for a script: two who write to it at once would mix their paths. A name that is bound once
/// and that the kernel frees when we end, without a file.
fn take_turn(pid: Pid) -> Option<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("probing-attach-{pid}")).ok()?;
    UnixDatagram::bind_addr(&name).ok()
}

impl RemoteDebuggerSupport {
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

    fn ask(&self, target: &Target<'_>, question: &Question) -> io::Result<()> {
        let memory = &target.memory;
        let path = format!("{}\0", question.script());
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
