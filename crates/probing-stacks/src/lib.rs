//! Reads the Python stacks of a process from outside: from its memory alone, without code in it, without stopping it.
//!
//! The story, in the order of the files: the memory map (`maps`) leads to the interpreter (`elf`, `interpreter`) and to
//! what is known of its structures (`layout`). From there on only memory is read, many pieces in one system call
//! (`memory`): the list of threads (`threads`), their frames (`frames`), and what code these run (`code`, `lines`).
//! A thread that runs changes its frames while they are read; `settle` tells a true stack from a torn one.
//! What the kernel knows of each thread is added (`tasks`).
//!
//! *Invariant:* nothing is ever written to the target.
//!
//! *Invariant:* whatever the target's memory holds, reading it ends, with bounded memory and without a panic.

mod code;
mod elf;
mod error;
mod frames;
mod interpreter;
mod layout;
mod lines;
mod maps;
mod memory;
mod permission;
mod settle;
mod snapshot;
mod tasks;
mod threads;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use probing_proto::process::Pid;

pub use crate::error::{Denied, StackError};
pub use crate::snapshot::Reader;
pub use crate::tasks::State;

/// How to read.
#[derive(Debug, Clone)]
pub struct Options {
    /// Deeper stacks are cut: the innermost frames remain.
    pub max_depth: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_depth: 100_000 }
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
}

/// One thread that Python knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadStack {
    /// The kernel's id, as we see it. `None` if it cannot be found out (musl before Python 3.11, a damaged target).
    pub tid: Option<u32>,
    /// `threading.get_ident()`
    pub ident: u64,
    /// The kernel's name for it, at most 15 bytes.
    pub name: Option<String>,
    pub is_main: bool,
    /// 0 is the main interpreter.
    pub interpreter: i64,
    pub state: State,
    pub holds_gil: bool,
    pub waits_for_gil: bool,
    /// It moved each time it was read: `frames` are those that stayed, the innermost ones are missing.
    pub torn: bool,
    /// Outer frames are missing: more than asked for, or unreadable.
    pub cut: bool,
    /// Innermost first.
    pub frames: Vec<Frame>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The qualified name from 3.11 on.
    pub func: Arc<str>,
    /// As the compiler was told: perhaps relative, perhaps no file at all (`<string>`).
    pub file: Arc<Path>,
    /// The line being executed. `None` for instructions that belong to no line.
    pub line: Option<u32>,
    /// C called the interpreter for this frame.
    pub is_entry: bool,
}

/// Reads the Python stacks of every thread of `pid`.
pub fn read(pid: Pid, options: &Options) -> Result<Snapshot, StackError> {
    Reader::open(pid)?.read(options)
}
