//! Facts about an ended process from its core file.
//!
//! Its stacks are not read: that is other tools' work.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Of its notes this much is looked at: who it was stands first.
const MAX_NOTES_BYTES: usize = 1 << 20;
const CORE: u64 = 4;
const NOTES: u64 = 4;
const PRSTATUS: u64 = 1;
const PRPSINFO: u64 = 3;

/// A process that has ended, as its core file tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CoreFileInfo {
    pid: Option<u32>,
    /// With its arguments, at most 80 bytes.
    command: Option<String>,
    signal: Option<u32>,
}

impl CoreFileInfo {
    /// `None` if the file is no core file of a 64-bit process (or no file at all).
    pub(crate) fn by(path: &Path) -> Option<Self> {
        let file = File::open(path).ok().filter(is_regular)?;
        let header = read(&file, 0, 64)?;
        // 64 bits, little-endian.
        if !header.starts_with(b"\x7fELF\x02\x01") || number(&header, 16, 2)? != CORE {
            return None;
        }
        let (at, size, count) = (
            number(&header, 32, 8)?,
            number(&header, 54, 2)?,
            number(&header, 56, 2)?,
        );
        let mut left = Self::default();
        for index in 0..count {
            let segment = read(&file, at.checked_add(index * size)?, 56)?;
            if number(&segment, 0, 4)? == NOTES {
                let length = number(&segment, 32, 8)?.min(MAX_NOTES_BYTES as u64) as usize;
                let notes = read(&file, number(&segment, 8, 8)?, length);
                left.learn(&notes.unwrap_or_default());
            }
        }
        Some(left)
    }

    /// Notes are: lengths of name and contents, kind, name, contents; each padded to four bytes.
    fn learn(&mut self, mut notes: &[u8]) {
        while let (Some(name), Some(length), Some(kind)) = (
            number(notes, 0, 4),
            number(notes, 4, 4),
            number(notes, 8, 4),
        ) {
            let start = 12 + (name as usize).next_multiple_of(4);
            let end = start.saturating_add(length as usize);
            let Some(contents) = notes.get(start..end) else {
                return;
            };
            match kind {
                // The first is the thread that brought it down.
                PRSTATUS if self.signal.is_none() => {
                    self.signal = number(contents, 12, 2).map(|signal| signal as u32);
                }
                PRPSINFO => {
                    self.pid = number(contents, 24, 4).map(|pid| pid as u32);
                    let words = contents.get(56..136).unwrap_or_default();
                    let words = words.split(|byte| *byte == 0).next().unwrap_or_default();
                    let words = String::from_utf8_lossy(words).trim().to_owned();
                    self.command = Some(words).filter(|words| !words.is_empty());
                }
                _ => {}
            }
            notes = notes.get(end.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|data| data.is_file())
}

fn read(file: &File, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// A little-endian number of this size.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    )
}

impl fmt::Display for CoreFileInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}")?,
            None => f.write_str("a process")?,
        }
        if let Some(command) = &self.command {
            write!(f, " ({command})")?;
        }
        match self.signal {
            Some(signal @ 1..) => write!(f, ", ended by {}", signal_name(signal)),
            // By `gcore`, for instance.
            _ => Ok(()),
        }
    }
}

fn signal_name(signal: u32) -> String {
    let name = match signal {
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        11 => "SIGSEGV",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn note(kind: u8, contents: &[u8]) -> Vec<u8> {
        let length = (contents.len() as u32).to_le_bytes();
        let mut note = vec![5, 0, 0, 0];
        note.extend(length);
        note.extend([kind, 0, 0, 0]);
        note.extend(b"CORE\0\0\0\0");
        note.extend(contents);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    #[test]
    fn notes_tell_who_it_was() {
        let mut status = [0; 336];
        status[12] = 11;
        let mut info = [0; 136];
        info[24..26].copy_from_slice(&4242_u16.to_le_bytes());
        info[56..71].copy_from_slice(b"python train.py");
        let mut left = CoreFileInfo::default();
        left.learn(&[note(1, &status), note(3, &info), note(1, &[9; 336])].concat());
        assert_eq!(
            left.to_string(),
            "process 4242 (python train.py), ended by SIGSEGV"
        );
    }

    proptest! {
        #[test]
        fn any_notes_are_survived(notes in prop::collection::vec(any::<u8>(), 0..200)) {
            CoreFileInfo::default().learn(&notes);
        }
    }
}
