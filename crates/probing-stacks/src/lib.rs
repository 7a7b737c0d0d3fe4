//! Reads the Python stacks of a process from outside: from its memory alone, without code in it, without stopping it.
//!
//! The story, in the order of the files: the memory map leads to the interpreter (`interpreter`) and to what is known
//! of its structures (`layout`). From there on only memory is read, many pieces in one system call: the list of threads
//! (`threads`), their frames (`frames`), and what code these run (`code`, `lines`).
//! A thread that runs changes its frames while they are read; `settle` tells a true stack from a torn one
//! and, if asked to, holds the thread (`stop`) while it is copied (`held`).
//! Tasks of asyncio are read much like threads (`asyncio`).
//! What the kernel knows of each thread is added (`tasks`), and what `threading` calls it (`names`), which is an
//! attribute of an object (`objects`). Local variables are read on request (`locals`), and so are native calls, which are
//! put between Python's frames (`native`).
//!
//! *Invariant:* nothing is ever written to the target's memory. The one thing that is ever set is a register of a
//! thread that was held just when it entered a system call that a stop makes fail: it makes that call again.
//!
//! *Invariant:* whatever the target's memory holds, reading it ends, with bounded memory and without a panic.

mod asyncio;
mod consistency;
mod error;
mod held;
#[cfg(test)]
mod hostile;
mod kernel_threads;
mod locals;
mod native;
mod python;
mod snapshot;
mod thread_hold;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use probing_process::access::permission;
use probing_process::memory;
use probing_process::procfs::maps;
use probing_proto::process::Pid;

pub use crate::asyncio::{AsyncTask, TaskState, Tasks, Wait, WaitKind};
pub use crate::error::StackError;
pub use crate::kernel_threads::State;
pub use crate::locals::{Local, LocalLimits};
pub use crate::snapshot::Reader;

/// How to read.
#[derive(Debug, Clone)]
pub struct Options {
    /// Deeper stacks are cut: the innermost frames remain.
    pub max_depth: usize,
    pub pause: Pause,
    /// Whether and how much of local variables is read.
    pub locals: Option<LocalLimits>,
    /// Native frames, too, and threads that Python does not know. A thread that runs is held for a copy of its stack.
    pub native: bool,
    /// Whether to show the probe's own threads, which run what clients ask for.
    pub probe_threads: bool,
}

/// What to do about a thread that never stands still while it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pause {
    /// Show the frames that stayed, and say so: [`Missing::Inner`].
    #[default]
    Never,
    /// Hold it (and only it) for some 100 microseconds. A system call that it happens to be in may end with EINTR where
    /// Linux does so for any debugger (epoll).
    Moving,
}

impl Pause {
    /// [`Pause::Moving`] where that was asked for.
    pub fn when_moving(is_asked: bool) -> Self {
        if is_asked { Self::Moving } else { Self::Never }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_depth: 100_000,
            pause: Pause::default(),
            locals: None,
            native: false,
            probe_threads: false,
        }
    }
}

/// The Python stacks of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Major and minor version.
    pub python: (u8, u8),
    /// Main first, older before younger.
    pub threads: Vec<ThreadStack>,
    pub took: Duration,
    /// How often a thread was read again because it moved meanwhile.
    pub retried: u32,
    /// The longest that a thread was held.
    pub paused: Duration,
    /// Threads of which no native frame could be read: they were let go before, each time.
    pub without_native: usize,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadStack {
    /// The kernel's id, as we see it. `None` if it cannot be found out (musl before Python 3.11, a damaged target).
    pub tid: Option<u32>,
    /// `threading.get_ident()`; 0 for a thread that Python does not know.
    pub ident: u64,
    /// What `threading` calls it, else what the kernel does (at most 15 bytes).
    pub name: Option<String>,
    /// Whether the end of the program does not wait for it; `None` when `threading` does not know it.
    pub daemon: Option<bool>,
    pub is_main: bool,
    /// Of the main thread: the `threading.Thread` whose function it runs all the same, in a greenlet of gevent's or in a child
    /// that this thread has forked.
    pub runs_thread: Option<String>,
    /// 0 is the main interpreter; -1 for a thread that Python does not know.
    pub interpreter: i64,
    pub state: State,
    pub gil: Gil,
    pub missing: FrameGap,
    /// Innermost first.
    pub frames: Vec<Frame>,
}

/// A thread at a moment that somebody else has caught.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caught {
    /// The kernel's id, as we see it.
    pub tid: u32,
    pub pc: u64,
    /// By the numbers that DWARF gives them.
    pub registers: Vec<u64>,
    /// Its stack, from the stack pointer on.
    pub stack: Vec<u8>,
}

/// What a thread has to do with the GIL of its interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gil {
    Holds,
    Waits,
    /// Neither: it sleeps or computes without it.
    Free,
}

/// What `frames` lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameGap {
    Nothing,
    /// The thread moved each time it was read: these are the frames that stayed.
    Inner,
    /// There are more than asked for, or they could not be read.
    Outer,
    /// Native ones: their calls could not be followed to the end. What is there is in its order.
    Native,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The qualified name from 3.11 on. Of a native function, its name or where it is: `0x1a2b in libfoo.so`.
    pub func: Arc<str>,
    /// As the compiler was told: perhaps relative, perhaps no file at all (`<string>`). Of native code, its library or
    /// program; empty for code that belongs to none.
    pub file: Arc<Path>,
    /// The line being executed. `None` for instructions that belong to no line, and for native code without debug
    /// information.
    pub line: Option<u32>,
    /// Of native code: the file that `line` is in.
    pub source_file: Option<Arc<Path>>,
    /// C called the interpreter for this frame.
    pub is_entry: bool,
    /// Where it lies in the target; 0 for a native one.
    pub(crate) address: u64,
    /// Those that are bound. `None` if they were not asked for, or the frame was left while they were read.
    pub locals: Option<Vec<Local>>,
    /// Locals beyond the limit.
    pub more_locals: usize,
    pub kind: FrameKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    Python,
    /// Where in its file the code is.
    Native {
        address: u64,
    },
}

/// Reads the Python stacks of every thread of `pid`.
pub fn read(pid: Pid, options: &Options) -> Result<Snapshot, StackError> {
    Reader::open(pid)?.read(options)
}
