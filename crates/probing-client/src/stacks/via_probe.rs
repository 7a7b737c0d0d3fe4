//! A process that is read through its own probe, because it may not be read from outside.
//!
//! The probe only hands out bytes, without the interpreter: what they mean is found out here, as for any other process.
//! So it works when the GIL is held, too.

use std::io;
use std::ops::Range as Addresses;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use probing_process::access::source::{Files, Kernel, Source};
use probing_process::elf::Bytes;
use probing_process::error::ProcessError;
use probing_process::memory::{Memory, Range};
use probing_process::procfs::maps::{self, Mapping};
use probing_proto::message::Call;
use probing_proto::message::reads::{FileCall, MAX_RANGES, MAX_READ};
use probing_proto::process::Pid;

use crate::error::ClientError;
use crate::probe::Probe;

/// No file of `/proc` is so long.
const MAX_FILE_BYTES: usize = 64 << 20;

/// A process by what its probe tells. Ids are those that it has for itself.
#[derive(Debug)]
pub(crate) struct ProbedProcess {
    pid: Pid,
    line: Arc<Line>,
    /// Memory that is no memory: to read it may do something.
    devices: Vec<Addresses<u64>>,
}

/// The connection, until it breaks: then there are no answers any more, and nobody waits for one.
#[derive(Debug)]
pub(crate) struct Line {
    probe: Mutex<Probe>,
    trouble: Mutex<Option<ClientError>>,
}

impl ProbedProcess {
    pub(crate) fn through(probe: Probe) -> Self {
        let pid = probe.hello().pid;
        let line = Arc::new(Line {
            probe: Mutex::new(probe),
            trouble: Mutex::default(),
        });
        let mut inside = Self {
            pid,
            line,
            devices: Vec::new(),
        };
        let maps = maps::read_maps(&inside).unwrap_or_default();
        let devices = maps.iter().filter(|mapping| is_device(mapping));
        inside.devices = devices.map(|mapping| mapping.start..mapping.end).collect();
        inside
    }

    pub(crate) fn line(&self) -> Arc<Line> {
        Arc::clone(&self.line)
    }

    fn is_memory(&self, (address, len): Range) -> bool {
        let end = address.saturating_add(len as u64);
        let is_outside = |device: &Addresses<u64>| end <= device.start || device.end <= address;
        self.devices.iter().all(is_outside)
    }
}

fn is_device(mapping: &Mapping) -> bool {
    let is_memory = |path: &str| path.starts_with("/dev/shm/") || path.starts_with("/dev/zero");
    mapping.path.starts_with("/dev/") && !is_memory(&mapping.path)
}

impl Line {
    fn ask(&self, call: Call) -> io::Result<Vec<Option<Vec<u8>>>> {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        match probe.read(call) {
            Ok(pieces) => Ok(pieces),
            // Only this was refused.
            Err(ClientError::NotDone(failure)) => Err(io::Error::other(failure.error)),
            Err(error) => {
                *trouble = Some(error);
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    /// What it broke by, once.
    pub(crate) fn trouble(&self) -> Option<ClientError> {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.take()
    }

    /// Part of a file; shorter at its end.
    fn part(&self, file: &str, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let file = file.to_owned();
        let mut pieces = self.ask(Call::File(FileCall { file, at, len }))?;
        let piece = pieces.pop().flatten();
        piece.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// So much of a file, or all that there is.
    fn file(&self, file: &str, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let step = (len - bytes.len()).min(MAX_READ);
            let part = self.part(file, at.saturating_add(bytes.len() as u64), step)?;
            if part.is_empty() {
                break;
            }
            bytes.extend(part);
        }
        Ok(bytes)
    }
}

impl Memory for ProbedProcess {
    fn read_many(&self, ranges: &[Range]) -> Vec<Option<Vec<u8>>> {
        let mut answers = Vec::with_capacity(ranges.len());
        while let Some(rest) = ranges.get(answers.len()..).filter(|rest| !rest.is_empty()) {
            let count = at_once(rest);
            if count == 0 {
                answers.push(self.read_large(rest[0]));
                continue;
            }
            let batch = &rest[..count];
            let asked = batch.iter().map(|range| {
                let (address, len) = *range;
                // Address 0 is nobody's.
                let address = if self.is_memory(*range) { address } else { 0 };
                (address, len)
            });
            let ranges = asked.collect();
            let read = self.line.ask(Call::Memory { ranges }).unwrap_or_default();
            if read.len() == count {
                answers.extend(read);
            } else {
                answers.extend(vec![None; count]);
            }
        }
        answers
    }
}

impl ProbedProcess {
    /// A range that is longer than one answer.
    fn read_large(&self, (mut address, mut len): Range) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        while len > 0 {
            let step = len.min(MAX_READ);
            bytes.extend(self.read(address, step)?);
            address = address.checked_add(step as u64)?;
            len -= step;
        }
        Some(bytes)
    }
}

/// How many of these ranges one request can ask for.
fn at_once(ranges: &[Range]) -> usize {
    let mut room = MAX_READ;
    let fits = |(_, len): &&Range| {
        let left = room.checked_sub(*len);
        room = left.unwrap_or(room);
        left.is_some()
    };
    ranges.iter().take(MAX_RANGES).take_while(fits).count()
}

impl Kernel for ProbedProcess {
    fn pid(&self) -> Pid {
        self.pid
    }

    fn read_file(&self, name: &str) -> io::Result<Vec<u8>> {
        self.line.file(name, 0, MAX_FILE_BYTES)
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        let names = self.line.part(folder, 0, MAX_READ)?;
        let names = String::from_utf8_lossy(&names);
        Ok(names.lines().map(str::to_owned).collect())
    }
}

/// A file whose code the process runs.
#[derive(Debug)]
struct MappedFile {
    line: Arc<Line>,
    path: String,
}

impl Bytes for MappedFile {
    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let bytes = self.line.file(&self.path, offset, len).ok()?;
        (bytes.len() == len).then_some(bytes)
    }
}

impl Files for ProbedProcess {
    fn contents(&self, mapping: &Mapping) -> Option<Box<dyn Bytes>> {
        Some(Box::new(MappedFile {
            line: self.line(),
            path: mapping.path.clone(),
        }))
    }

    /// Its probe does not tell; the names of its files say enough.
    fn program(&self) -> Option<PathBuf> {
        None
    }
}

impl Source for ProbedProcess {
    fn may_hold(&self) -> bool {
        false
    }

    fn explain(&self, what: &'static str, source: io::Error) -> ProcessError {
        let pid = self.pid;
        ProcessError::Io { pid, what, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_asked_for_at_once_as_an_answer_can_bring() {
        assert_eq!(at_once(&[(1, 8), (2, 8)]), 2);
        assert_eq!(at_once(&vec![(1, 1); MAX_RANGES + 1]), MAX_RANGES);
        assert_eq!(at_once(&[(1, MAX_READ), (2, 1)]), 1);
        assert_eq!(at_once(&[(1, MAX_READ + 1)]), 0);
        assert_eq!(at_once(&[(1, usize::MAX), (2, 1)]), 0);
    }
}
