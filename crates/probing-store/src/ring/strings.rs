//! The strings of a ring, kept once each, as its writer knows them.

use std::sync::atomic::Ordering;

use crate::ring::header::STRING_COUNT;
use crate::ring::layout::{Layout, PAGE};
use crate::ring::memory::Memory;

/// Reserved at a time for the bytes of strings.
pub(crate) const HEAP_STEP: u64 = 4 * PAGE;
/// Reserved at a time for the ends of strings.
pub(crate) const ENDS_STEP: u64 = PAGE;
/// Longer ones are seldom the same again.
pub(crate) const MAX_STRING: usize = 256;

const FREE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u32,
    begin: u32,
    length: u32,
}

/// Which strings are in the heap, and up to where its memory is reserved.
#[derive(Debug)]
pub(crate) struct Interner {
    entries: Vec<Entry>,
    /// Numbers of strings by hash, at most half full.
    table: Vec<u32>,
    used: u32,
    ends_reserved: u64,
    heap_reserved: u64,
}

/// A string of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interned {
    pub(crate) id: u32,
    /// From the beginning of the heap.
    pub(crate) begin: u32,
}

impl Interner {
    /// With the first step of both regions reserved.
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            entries: Vec::new(),
            table: vec![FREE; 256],
            used: 0,
            ends_reserved: ENDS_STEP.min(layout.heap - layout.ends),
            heap_reserved: HEAP_STEP.min(layout.heads - layout.heap),
        }
    }

    /// The string's place; `None` when it is not there and there is no room. `reserve(offset, bytes)` gets more memory.
    pub(crate) fn intern(
        &mut self,
        text: &str,
        layout: &Layout,
        memory: &mut Memory,
        reserve: impl FnMut(u64, u64) -> bool,
    ) -> Option<Interned> {
        if text.len() > MAX_STRING {
            return None;
        }
        let hash = hash(text.as_bytes());
        let mask = self.table.len() - 1;
        let mut slot = hash as usize & mask;
        while self.table[slot] != FREE {
            let id = self.table[slot];
            let entry = self.entries[id as usize];
            if entry.hash == hash
                && entry.length as usize == text.len()
                && memory.bytes(layout.heap + u64::from(entry.begin), text.len()) == text.as_bytes()
            {
                return Some(Interned {
                    id,
                    begin: entry.begin,
                });
            }
            slot = (slot + 1) & mask;
        }
        self.add(text, hash, layout, memory, reserve)
    }

    fn add(
        &mut self,
        text: &str,
        hash: u32,
        layout: &Layout,
        memory: &mut Memory,
        mut reserve: impl FnMut(u64, u64) -> bool,
    ) -> Option<Interned> {
        let (id, begin) = (self.entries.len() as u32, self.used);
        let end = begin.checked_add(text.len() as u32)?;
        if id >= layout.shape.strings || end > layout.shape.heap_bytes {
            return None;
        }
        if 4 * (u64::from(id) + 1) > self.ends_reserved {
            if !reserve(layout.ends + self.ends_reserved, ENDS_STEP) {
                return None;
            }
            self.ends_reserved += ENDS_STEP;
        }
        if u64::from(end) > self.heap_reserved {
            let step = HEAP_STEP.min(layout.heads - layout.heap - self.heap_reserved);
            if !reserve(layout.heap + self.heap_reserved, step) {
                return None;
            }
            self.heap_reserved += step;
        }
        memory.put_bytes(layout.heap + u64::from(begin), text.as_bytes());
        memory.put(layout.ends + 4 * u64::from(id), end);
        // Release: who reads the count finds the string. Rows that name it are committed later still.
        memory.word32(STRING_COUNT).store(id + 1, Ordering::Release);
        self.used = end;
        self.entries.push(Entry {
            hash,
            begin,
            length: text.len() as u32,
        });
        if self.entries.len() * 2 > self.table.len() {
            self.table = vec![FREE; self.table.len() * 2];
            for id in 0..self.entries.len() as u32 {
                self.file(id);
            }
        } else {
            self.file(id);
        }
        Some(Interned { id, begin })
    }

    fn file(&mut self, id: u32) {
        let mask = self.table.len() - 1;
        let mut slot = self.entries[id as usize].hash as usize & mask;
        while self.table[slot] != FREE {
            slot = (slot + 1) & mask;
        }
        self.table[slot] = id;
    }
}

/// Eight bytes at a time; good enough for names, of which there are few.
fn hash(bytes: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = bytes.len() as u64;
    let mut mix = |word: u64| {
        state = (state ^ word).wrapping_mul(ODD);
        state ^= state >> 29;
    };
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        mix(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(u64::from_le_bytes(last));
    (state >> 32) as u32 ^ state as u32
}
