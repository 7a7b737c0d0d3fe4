//! The memory of a ring as its one writer sees it: a shared mapping of its file, or memory of its own.
//!
//! Nobody else in this process looks at it; other processes copy from the file and check afterwards what they have. Values
//! are stored plainly, words that readers rely on atomically: a release store orders all that came before it, in the
//! compiler and in the processor, and a fence orders what comes after an odd generation (see `writer.rs`).
#![expect(unsafe_code, reason = "maps memory, and stores into it")]
#![expect(
    clippy::cast_ptr_alignment,
    reason = "words are checked to be aligned, other values need not be"
)]

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// What may be stored as it is: any bytes are a value of it.
pub(crate) trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for u16 {}
impl Plain for u32 {}
impl Plain for i32 {}
impl Plain for u64 {}
impl Plain for i64 {}
impl Plain for f64 {}
impl Plain for u128 {}
impl Plain for [u8; 8] {}
impl Plain for [u8; 16] {}

#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    lanes: Lanes,
}

/// Where the parts of a chunk begin that rows of tracers are written to.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) longs: [u64; 2],
    pub(crate) words: [u64; 4],
    /// How many rows there are.
    pub(crate) committed: u64,
}

/// A row: its time and another number of 64 bits, and four of 32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRow {
    pub(crate) longs: [i64; 2],
    pub(crate) words: [u32; 4],
}

/// The columns of the chunk that rows of tracers are written to: all of its rows are inside of the memory. None at first.
#[derive(Debug)]
struct Lanes {
    rows: u32,
    longs: [*mut i64; 2],
    words: [*mut u32; 4],
    committed: *const AtomicU32,
}

impl Lanes {
    const NONE: Self = Self {
        rows: 0,
        longs: [ptr::null_mut(); 2],
        words: [ptr::null_mut(); 4],
        committed: ptr::null(),
    };
}

// SAFETY: the mapping belongs to this value alone and to no thread in particular.
unsafe impl Send for Memory {}

impl Memory {
    /// The first `bytes` of a file. Pages that have not been reserved must not be touched.
    pub(crate) fn shared(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping where the kernel likes.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        Self::at(start.cast(), bytes)
    }

    /// Memory of this process alone, which costs what is touched.
    pub(crate) fn own(bytes: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping where the kernel likes.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        }?;
        Self::at(start.cast(), bytes)
    }

    fn at(start: *mut u8, bytes: usize) -> io::Result<Self> {
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            start,
            bytes,
            lanes: Lanes::NONE,
        })
    }

    #[inline]
    pub(crate) fn put<T: Plain>(&mut self, offset: u64, value: T) {
        let place = self.place(offset, size_of::<T>());
        // SAFETY: inside the mapping, which only `self`, borrowed mutably, gives access to; any bytes may stand there.
        unsafe { place.cast::<T>().write_unaligned(value) };
    }

    /// From now on, [`Memory::put_row`] writes to a chunk of so many rows.
    pub(crate) fn set_lanes(&mut self, begin: &Begin, rows: u32) {
        let count = rows as usize;
        let long = |offset| {
            let lane = self.place(offset, size_of::<i64>() * count).cast::<i64>();
            assert!(lane.is_aligned(), "longs are stored at once");
            lane
        };
        let word = |offset| self.place(offset, size_of::<u32>() * count).cast();
        self.lanes = Lanes {
            rows,
            longs: begin.longs.map(long),
            words: begin.words.map(word),
            committed: ptr::from_ref(self.word32(begin.committed)),
        };
    }

    /// Whether there is such a row where [`Memory::put_row`] writes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as part of `Writer::append_trace`")]
    pub(crate) fn has_row(&self, row: u32) -> bool {
        row < self.lanes.rows
    }

    /// Stores all of a row, and commits it: one check for all of its columns. False, and nothing is stored: there is no such
    /// row.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as part of `Writer::append_trace`")]
    pub(crate) fn put_row(&mut self, row: u32, values: RawRow) -> bool {
        if !self.has_row(row) {
            return false;
        }
        let lanes = &self.lanes;
        let index = row as usize;
        let RawRow { longs, words } = values;
        // SAFETY: this row is one of those for which each column was found to have room in this very mapping, which only
        // `self`, borrowed mutably, gives access to; the word that is committed to is aligned, as `word32` saw.
        unsafe {
            for (lane, long) in lanes.longs.into_iter().zip(longs) {
                lane.add(index).write_unaligned(long);
            }
            for (lane, word) in lanes.words.into_iter().zip(words) {
                lane.add(index).write_unaligned(word);
            }
            // Release: whoever sees the count sees the row.
            (*lanes.committed).store(row + 1, Ordering::Release);
        }
        true
    }

    /// Stores the second long of a row again, which is committed already: readers see the one or the other. Only if there is
    /// such a row, and one of its words is the expected one; whether it is.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as part of `Writer::end_trace`")]
    pub(crate) fn put_end(&mut self, row: u32, (word, expected): (usize, u32), end: i64) -> bool {
        if !self.has_row(row) {
            return false;
        }
        let lanes = &self.lanes;
        let index = row as usize;
        // SAFETY: as above; columns of longs begin at multiples of eight, as `set_lanes` saw.
        unsafe {
            let is_expected = lanes.words[word].add(index).read_unaligned() == expected;
            if is_expected {
                AtomicI64::from_ptr(lanes.longs[1].add(index)).store(end, Ordering::Release);
            }
            is_expected
        }
    }

    /// The same, whatever its words are.
    pub(crate) fn put_duration(&mut self, row: u32, duration: i64) -> bool {
        let has_row = self.has_row(row);
        if has_row {
            // SAFETY: as above.
            let place = unsafe { AtomicI64::from_ptr(self.lanes.longs[1].add(row as usize)) };
            place.store(duration, Ordering::Release);
        }
        has_row
    }

    /// Has the kernel map pages that are about to be written, all at once: a fault for each costs several times as much.
    pub(crate) fn expect_writes(&self, offset: u64, bytes: u64) {
        let place = self.place(offset, bytes as usize);
        // SAFETY: inside the mapping, whose contents it does not change. Kernels before 5.14 do not know it: pages are then
        // mapped one by one, as they are touched.
        unsafe { madvise(place.cast(), bytes as usize, Advice::LinuxPopulateWrite) }.ok();
    }

    #[inline]
    pub(crate) fn put_bytes(&mut self, offset: u64, bytes: &[u8]) {
        let place = self.place(offset, bytes.len());
        // SAFETY: inside the mapping, which only `self`, borrowed mutably, gives access to: so `bytes` is elsewhere.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    #[inline]
    pub(crate) fn peek<T: Plain>(&self, offset: u64) -> T {
        let place = self.place(offset, size_of::<T>());
        // SAFETY: inside the mapping; any bytes are a value of a plain type.
        unsafe { place.cast::<T>().read_unaligned() }
    }

    #[inline]
    pub(crate) fn bytes(&self, offset: u64, count: usize) -> &[u8] {
        let place = self.place(offset, count);
        // SAFETY: inside the mapping, and nobody writes there while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(place, count) }
    }

    #[inline]
    pub(crate) fn word32(&self, offset: u64) -> &AtomicU32 {
        let place = self.place(offset, 4).cast::<u32>();
        assert!(place.is_aligned(), "a word that readers rely on is aligned");
        // SAFETY: inside the mapping, aligned, and atomic words are never accessed otherwise while borrowed.
        unsafe { AtomicU32::from_ptr(place) }
    }

    #[inline]
    pub(crate) fn word64(&self, offset: u64) -> &AtomicU64 {
        let place = self.place(offset, 8).cast::<u64>();
        assert!(place.is_aligned(), "a word that readers rely on is aligned");
        // SAFETY: inside the mapping, aligned, and atomic words are never accessed otherwise while borrowed.
        unsafe { AtomicU64::from_ptr(place) }
    }

    #[inline]
    fn place(&self, offset: u64, count: usize) -> *mut u8 {
        let offset = offset as usize;
        assert!(
            count <= self.bytes && offset <= self.bytes - count,
            "outside of the ring"
        );
        // SAFETY: the offset is inside the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from a value that is dropped.
        // It fails for wrong arguments only; then it stays mapped.
        unsafe { munmap(self.start.as_ptr().cast(), self.bytes) }.ok();
    }
}
