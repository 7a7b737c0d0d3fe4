//! Another process's memory, to read and to write.
//!
//! Writes go through page protections, as a debugger's do: that is how code gets into a page that is never
//! writable for the target itself.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt as _;

use probing_process::memory::MemoryFile;
use probing_process::proc;
use probing_proto::process::Pid;

#[derive(Debug)]
pub(crate) struct Memory {
    reader: MemoryFile,
    writer: File,
}

impl Memory {
    pub(crate) fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self {
            reader: MemoryFile::open(pid)?,
            writer: OpenOptions::new().write(true).open(proc(pid, "mem"))?,
        })
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all_at(bytes, address)
    }

    pub(crate) fn write_u64(&self, address: u64, value: u64) -> io::Result<()> {
        self.write(address, &value.to_le_bytes())
    }
}

impl Deref for Memory {
    type Target = MemoryFile;

    fn deref(&self) -> &MemoryFile {
        &self.reader
    }
}
