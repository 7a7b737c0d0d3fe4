//! A process from outside: its user, threads, maps, files, memory and Python.
//!
//! What a process is from outside: who it is and who may look at it (`processes`, `status`, `permission`), its
//! threads for the kernel (`threads`), what they have used (`usage`), what it has mapped (`maps`), the files behind
//! that (`elf`), the one that is its Python (`python`), and its memory (`memory`). All of this comes from `/proc`,
//! or from wherever else there is a `source`. Files that it controls are written, removed and listed through
//! `foreign`; `urgent` and `cpus` are for whoever stops one of its threads.
//!
//! Each fact about `/proc` stands here once. Nothing is executed or stopped, and nothing is written elsewhere.
//!
//! *Invariant:* whatever a file or a process holds, reading it ends, with bounded memory and without a panic.

pub mod access;
pub mod cpus;
pub mod elf;
pub mod error;
pub mod memory;
pub mod procfs;
pub mod python;

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use probing_proto::process::Pid;

/// A file of `/proc/<pid>`.
pub fn proc(pid: Pid, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// What such a file holds; `None` when it is not to be had.
fn read(pid: Pid, file: &str) -> Option<Vec<u8>> {
    let mut file = File::open(proc(pid, file)).ok()?;
    // Files of `/proc` do not say how long they are, and each read of them has its price.
    let mut bytes = Vec::with_capacity(4096);
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The same as text. Names and paths in it are the program's, so it may hold any bytes.
pub fn read_text(pid: Pid, file: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&read(pid, file)?).into_owned())
}
