//! The thread-local storage of the helper, which no C library made.
//!
//! Zeroes, with a table (dtv) of the same length and generation as main's: code that looks there finds a thread
//! that has not used its variables yet. For glibc.

use std::io;

use crate::arch::{self, Home};
use crate::injection::memory::Memory;
use crate::injection::remote_block::{Block, Layout};

#[derive(Debug, Default)]
pub(crate) struct Storage {
    head: Vec<u8>,
    entries: usize,
    main_pointer: u64,
}

impl Storage {
    /// glibc: the thread pointer is followed by that of the dtv, two words in front of which is its length.
    pub(crate) fn read(main: &Home, memory: &Memory) -> io::Result<Self> {
        const MAX_DTV_ENTRIES: u64 = 4000;
        let main_pointer = arch::thread_pointer_of(&main.regs);
        let dtv = memory.read_u64(main_pointer + 8)?;
        let head = memory.read_vec(dtv.wrapping_sub(16), 32)?;
        let entries = memory.read_u64(dtv.wrapping_sub(16))?.min(MAX_DTV_ENTRIES) as usize;
        Ok(Self {
            head,
            entries,
            main_pointer,
        })
    }

    pub(crate) fn len(&self) -> usize {
        if self.head.is_empty() {
            0
        } else {
            (self.entries + 4) * 16
        }
    }

    pub(crate) fn write(&self, block: &Block, python: (u8, u8), memory: &Memory) -> io::Result<()> {
        if self.head.is_empty() {
            return Ok(());
        }
        let Layout {
            thread_pointer,
            dtv,
            zeroes,
            ..
        } = block.layout;
        let [thread_pointer, dtv, zeroes] =
            [thread_pointer, dtv, zeroes].map(|at| block.start + at);
        let mut table = self.head.clone();
        for _ in 0..=self.entries {
            table.extend(zeroes.to_le_bytes());
            table.extend([0; 8]);
        }
        memory.write(dtv, &table)?;
        // What pthread_self() answers: up to 3.12 a pending call wakes the interpreter only if "main" adds it.
        let identity = if python <= (3, 12) {
            self.main_pointer
        } else {
            thread_pointer
        };
        memory.write_u64(thread_pointer, thread_pointer)?;
        memory.write_u64(thread_pointer + 8, dtv + 16)?;
        memory.write_u64(thread_pointer + 16, identity)
    }
}
