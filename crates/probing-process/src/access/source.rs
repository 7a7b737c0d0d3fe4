//! The source of facts about a process: `/proc` and its memory, or the process itself.
//!
//! Where what is known of a process comes from: `/proc` and its memory as they are seen from here, or someone else
//! who can see them, which is the process itself.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use probing_proto::process::Pid;

use crate::access::permission;
use crate::elf::Bytes;
use crate::error::ProcessError;
use crate::memory::{Memory, ProcessMemory, Range};
use crate::procfs::maps::Mapping;
use crate::{proc, python};

/// What the kernel says of a process, in the files of its `/proc`.
pub trait Kernel {
    /// Its id, as one of those by which its threads are known here.
    fn pid(&self) -> Pid;

    /// `maps`, `task/4243/stat`
    fn read_file(&self, name: &str) -> io::Result<Vec<u8>>;

    /// What is in a folder: `task`.
    fn names(&self, folder: &str) -> io::Result<Vec<String>>;

    /// A file as text. Names and paths in it are the program's, so it may hold any bytes.
    fn text(&self, name: &str) -> Option<String> {
        let bytes = self.read_file(name).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The files that a process runs.
pub trait Files {
    /// The file behind a mapping.
    fn contents(&self, mapping: &Mapping) -> Option<Box<dyn Bytes>>;

    /// The path of its program, as it sees it; `None` when nobody tells.
    fn program(&self) -> Option<PathBuf>;
}

/// All that reading a process needs.
pub trait Source: Memory + Kernel + Files + fmt::Debug + Send {
    /// Whether its threads can be held, and their registers be had.
    fn may_hold(&self) -> bool;

    /// What kept a file of the process from being read.
    fn explain(&self, what: &'static str, source: io::Error) -> ProcessError;
}

impl Kernel for Pid {
    fn pid(&self) -> Pid {
        *self
    }

    fn read_file(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(proc(*self, name))
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(proc(*self, folder))?;
        let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        Ok(entries.filter_map(name).collect())
    }
}

impl Files for Pid {
    fn contents(&self, mapping: &Mapping) -> Option<Box<dyn Bytes>> {
        let file = python::open(*self, mapping)?;
        Some(Box::new(file))
    }

    fn program(&self) -> Option<PathBuf> {
        fs::read_link(proc(*self, "exe")).ok()
    }
}

impl<K: Kernel + ?Sized> Kernel for &K {
    fn pid(&self) -> Pid {
        (**self).pid()
    }

    fn read_file(&self, name: &str) -> io::Result<Vec<u8>> {
        (**self).read_file(name)
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        (**self).names(folder)
    }
}

impl<F: Files + ?Sized> Files for &F {
    fn contents(&self, mapping: &Mapping) -> Option<Box<dyn Bytes>> {
        (**self).contents(mapping)
    }

    fn program(&self) -> Option<PathBuf> {
        (**self).program()
    }
}

/// A process as it is seen from here.
#[derive(Debug)]
pub struct ExternalProcess {
    pid: Pid,
    memory: ProcessMemory,
}

impl ExternalProcess {
    /// Asks the kernel for permission.
    pub fn open(pid: Pid) -> Result<Self, ProcessError> {
        permission::check(pid)?;
        let memory = ProcessMemory::open(pid)
            .map_err(|source| permission::explain(pid, "open the memory", source))?;
        Ok(Self { pid, memory })
    }
}

impl Memory for ExternalProcess {
    fn read_many(&self, ranges: &[Range]) -> Vec<Option<Vec<u8>>> {
        self.memory.read_many(ranges)
    }
}

impl Kernel for ExternalProcess {
    fn pid(&self) -> Pid {
        self.pid
    }

    fn read_file(&self, name: &str) -> io::Result<Vec<u8>> {
        self.pid.read_file(name)
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        self.pid.names(folder)
    }
}

impl Files for ExternalProcess {
    fn contents(&self, mapping: &Mapping) -> Option<Box<dyn Bytes>> {
        self.pid.contents(mapping)
    }

    fn program(&self) -> Option<PathBuf> {
        self.pid.program()
    }
}

impl Source for ExternalProcess {
    fn may_hold(&self) -> bool {
        true
    }

    fn explain(&self, what: &'static str, source: io::Error) -> ProcessError {
        permission::explain(self.pid, what, source)
    }
}
