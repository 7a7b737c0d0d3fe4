//! Samples: the records of the kernel about an event.
//!
//! It is believed as far as it is there.

use crate::Write;
use crate::machine::{NUMBERS, PROGRAM_COUNTER};

const LOST: u32 = 2;
const SAMPLE: u32 = 9;
/// The processor was in the kernel.
const IN_KERNEL: u16 = 1;
const MODES: u16 = 7;

/// What a record tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Write {
        pid: u32,
        write: Write,
    },
    /// The ring was full.
    Lost,
}

/// Its kind, its flags and its length.
pub(crate) fn header(bytes: &[u8]) -> Option<(u32, u16, usize)> {
    let (kind, rest) = bytes.split_first_chunk()?;
    let (misc, rest) = rest.split_first_chunk()?;
    let (size, _) = rest.split_first_chunk()?;
    Some((
        u32::from_ne_bytes(*kind),
        u16::from_ne_bytes(*misc),
        usize::from(u16::from_ne_bytes(*size)),
    ))
}

/// `None` for what says nothing to us.
pub(crate) fn parse(bytes: &[u8]) -> Option<Record> {
    let (kind, misc, size) = header(bytes)?;
    let rest = WordReader(bytes.get(8..size)?);
    match kind {
        LOST => Some(Record::Lost),
        SAMPLE => sample(rest, misc & MODES == IN_KERNEL),
        _ => None,
    }
}

fn sample(mut rest: WordReader<'_>, by_kernel: bool) -> Option<Record> {
    let _instruction = rest.next()?;
    let ids = rest.next()?.to_ne_bytes();
    let (pid, tid) = ids.split_at(4);
    let number = |bytes: &[u8]| Some(u32::from_ne_bytes(bytes.try_into().ok()?));
    let (pid, tid) = (number(pid)?, number(tid)?);
    let at_nanos = rest.next()?;
    let has_registers = rest.next()? != 0;
    let mut registers = vec![0; NUMBERS.len()];
    if has_registers {
        for place in NUMBERS {
            registers[*place] = rest.next()?;
        }
    }
    let room = rest.next()? as usize;
    let stack = rest.0.get(..room)?;
    // How much of the room was filled stands behind it.
    let filled = match room {
        0 => 0,
        _ => WordReader(rest.0.get(room..)?).next()? as usize,
    };
    Some(Record::Write {
        pid,
        write: Write {
            tid,
            at_nanos,
            by_kernel,
            pc: registers[PROGRAM_COUNTER],
            stack: stack.get(..filled)?.to_vec(),
            registers: {
                registers.truncate(PROGRAM_COUNTER);
                registers
            },
        },
    })
}

/// Numbers of 8 bytes, one after the other.
struct WordReader<'a>(&'a [u8]);

impl WordReader<'_> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
        let size = (8 + words.len() * 8) as u16;
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    fn whole() -> Vec<u64> {
        let mut words = vec![0x1000, 7 | (9 << 32), 55, 2];
        words.extend((0..NUMBERS.len() as u64).map(|bit| 100 + bit));
        words.extend([16, 1, 2, 8]);
        words
    }

    #[test]
    fn a_write_is_read_with_its_registers_and_the_stack_that_was_there() {
        let Some(Record::Write { pid, write }) = parse(&record(SAMPLE, 2, &whole())) else {
            panic!("no write");
        };
        assert_eq!((pid, write.tid, write.at_nanos), (7, 9, 55));
        assert!(!write.by_kernel);
        assert_eq!(write.stack, 1_u64.to_ne_bytes());
        let counter = NUMBERS.iter().position(|place| *place == PROGRAM_COUNTER);
        assert_eq!(write.pc, 100 + counter.unwrap() as u64);
        assert_eq!(write.registers.len(), PROGRAM_COUNTER);
    }

    #[test]
    fn a_ring_that_was_full_says_so() {
        assert_eq!(parse(&record(LOST, 0, &[4, 12])), Some(Record::Lost));
    }

    proptest! {
        #[test]
        fn no_record_makes_it_fail(kind in 0..12_u32, misc: u16, words: Vec<u64>, cut in 0..64_usize) {
            let bytes = record(kind, misc, &words);
            parse(&bytes[..bytes.len().saturating_sub(cut)]);
        }

        #[test]
        fn a_whole_one_with_a_strange_word_does_not_either(at in 0..24_usize, word: u64) {
            let mut words = whole();
            let at = at % words.len();
            words[at] = word;
            parse(&record(SAMPLE, 1, &words));
        }
    }
}
