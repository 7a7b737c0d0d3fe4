//! Reads the memory of this process for a client: any address, without a fault, without the interpreter.
//!
//! Nobody outside may have the right to, but a process always may look at itself. The kernel is asked to do it: bytes are
//! written to a pipe and read back, and where there are none the write fails and not the process. Other ways
//! (`process_vm_readv`, `/proc/self/mem`) are refused to some processes, or answered with death by a filter of theirs.
#![expect(unsafe_code, reason = "gives addresses of any kind to the kernel")]

use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};

use probing_proto::message::Failure;
use probing_proto::message::reads::{MAX_RANGES, MAX_READ, Pieces};

use crate::process::fork_child::ClosedInChildren;

/// Every pipe has room for so much: the write never waits.
const PAGE: usize = 4096;

/// The bytes at these addresses, each whole or not at all, one after the other in this order.
pub(crate) fn read(ranges: &[(u64, usize)]) -> Result<(Pieces, Vec<u8>), Failure> {
    let wanted = ranges
        .iter()
        .try_fold(0_usize, |sum, (_, len)| sum.checked_add(*len));
    if ranges.len() > MAX_RANGES || wanted.is_none_or(|wanted| wanted > MAX_READ) {
        let limits = format!("more than {MAX_RANGES} ranges or {MAX_READ} bytes in one read");
        return Err(Failure::new(limits));
    }
    let mut pipe =
        Pipe::new().map_err(|error| Failure::new(format!("cannot make a pipe: {error}")))?;
    let (mut lengths, mut bytes) = (Vec::with_capacity(ranges.len()), Vec::new());
    for (address, len) in ranges {
        let before = bytes.len();
        let is_there = pipe.copy(*address, *len, &mut bytes);
        if !is_there {
            bytes.truncate(before);
        }
        lengths.push(is_there.then_some(*len));
    }
    Ok((Pieces { lengths }, bytes))
}

struct Pipe {
    // Before the ends: the numbers are forgotten before they are closed.
    _closed_in_children: [ClosedInChildren; 2],
    reader: PipeReader,
    writer: PipeWriter,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self {
            _closed_in_children: [
                ClosedInChildren::new(reader.as_fd()),
                ClosedInChildren::new(writer.as_fd()),
            ],
            reader,
            writer,
        })
    }

    /// Copies so many bytes to the end of `bytes`; false if they are not all there.
    fn copy(&mut self, mut address: u64, mut len: usize, bytes: &mut Vec<u8>) -> bool {
        let mut page = [0; PAGE];
        while len > 0 {
            let step = len.min(PAGE - address as usize % PAGE);
            let written = self.write(address, step);
            let copied = &mut page[..written];
            if self.reader.read_exact(copied).is_err() || written < step {
                return false;
            }
            bytes.extend_from_slice(copied);
            let Some(next) = address.checked_add(step as u64) else {
                return false;
            };
            (address, len) = (next, len - step);
        }
        true
    }

    /// How much of it the kernel could take.
    fn write(&self, address: u64, len: usize) -> usize {
        let from = std::ptr::without_provenance::<libc::c_void>(address as usize);
        // SAFETY: the kernel looks at the address for us. Where nothing can be read it says so; what changes meanwhile
        // is copied as it is found. Nothing of ours is borrowed.
        let written = unsafe { libc::write(self.writer.as_raw_fd(), from, len) };
        usize::try_from(written).unwrap_or(0)
    }
}
