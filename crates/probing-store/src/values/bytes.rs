//! Bytes copied from a ring, aligned for everything that can be in them, ready to become an Arrow buffer.
#![expect(
    unsafe_code,
    reason = "reads into memory that is not initialised first"
)]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;

use rustix::io::{Errno, pread};

/// Bytes that begin where a 16-byte value may.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bytes {
    words: Vec<i128>,
    len: usize,
}

const WORD: usize = size_of::<i128>();

impl Bytes {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words that hold the bytes, and how many bytes count. `arrow::buffer::Buffer::from_vec` takes the words as they
    /// are; slice it to the length.
    pub fn into_words(self) -> (Vec<i128>, usize) {
        (self.words, self.len)
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` is at most the size of the words, all of which are initialised; any bytes are `u8`s.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.len) }
    }

    pub(crate) fn zeroed(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(WORD)],
            len,
        }
    }

    /// Copies from a file; `None` where the file ends before.
    pub(crate) fn read(file: &File, offset: u64, len: usize) -> io::Result<Option<Self>> {
        let mut words: Vec<i128> = Vec::with_capacity(len.div_ceil(WORD));
        let spare: &mut [MaybeUninit<i128>] = words.spare_capacity_mut();
        // SAFETY: the capacity is at least `len` bytes, and as `MaybeUninit` they may be anything.
        let room: &mut [MaybeUninit<u8>] = unsafe {
            std::slice::from_raw_parts_mut(spare.as_mut_ptr().cast(), spare.len() * WORD)
        };
        let (room, _) = room.split_at_mut(len.next_multiple_of(WORD));
        let mut filled = 0;
        while filled < len {
            match pread(file, &mut room[filled..len], offset + filled as u64) {
                Ok((read, _)) if !read.is_empty() => filled += read.len(),
                Ok(_) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        room[len..].fill(MaybeUninit::new(0));
        // SAFETY: `len` bytes were read and the rest of the last word is zero: all words up to it are initialised.
        unsafe { words.set_len(len.div_ceil(WORD)) };
        Ok(Some(Self { words, len }))
    }
}
