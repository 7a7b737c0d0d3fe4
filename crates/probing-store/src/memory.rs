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
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

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
        Ok(Self { start, bytes })
    }

    #[inline]
    pub(crate) fn put<T: Plain>(&mut self, offset: u64, value: T) {
        let place = self.place(offset, size_of::<T>());
        // SAFETY: inside the mapping, which only `self`, borrowed mutably, gives access to; any bytes may stand there.
        unsafe { place.cast::<T>().write_unaligned(value) };
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
