//! Another process's memory, through `/proc/<pid>/mem`.
//!
//! Writes go through page protections, as a debugger's do: that is how code gets into a page that is never
//! writable for the target itself.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

use probing_proto::process::Pid;

#[derive(Debug)]
pub(crate) struct Memory(File);

impl Memory {
    pub(crate) fn open(pid: Pid) -> io::Result<Self> {
        let path = format!("/proc/{pid}/mem");
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map(Self)
    }

    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, address)
    }

    pub(crate) fn read_vec(&self, address: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn read_u64(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }

    pub(crate) fn write_u64(&self, address: u64, value: u64) -> io::Result<()> {
        self.write(address, &value.to_le_bytes())
    }
}
