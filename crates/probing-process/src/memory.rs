//! Another process's memory: many ranges in one system call, and whole pages kept.
//!
//! Nothing here writes to the target. What is read was written by someone else, perhaps meanwhile: a range that is not
//! mapped is `None`, and [`Bounded`] ends a reading that asks for too much.

pub mod address_map;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use probing_proto::process::Pid;

use crate::memory::address_map::{AddressMap, AddressSet};

use crate::proc;

/// Address and length.
pub type Range = (u64, usize);

/// The most ranges that the kernel takes at once.
const MAX_RANGES: usize = 1024;
pub const PAGE: u64 = 4096;
/// No process has memory beyond this.
const HIGHEST: u64 = 1 << 56;
/// That are compared together.
const PAGES_AT_ONCE: usize = 256;

pub trait Memory: Sync {
    /// Reads ranges, one after the other in this order; `None` for one that is not wholly mapped.
    fn read_many(&self, ranges: &[Range]) -> Vec<Option<Vec<u8>>>;

    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        self.read_many(&[(address, len)]).pop()?
    }

    fn read_u64(&self, address: u64) -> Option<u64> {
        u64_at(&self.read(address, 8)?, 0)
    }
}

/// `/proc/<pid>/mem`, for reading.
#[derive(Debug)]
pub struct MemoryFile(File);

impl MemoryFile {
    /// Opening the file asks the kernel for permission, so a refusal is seen here and nowhere else.
    pub fn open(pid: Pid) -> io::Result<Self> {
        File::open(proc(pid, "mem")).map(Self)
    }

    pub fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, address)
    }

    pub fn read_vec(&self, address: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    pub fn read_u64(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn read_u32(&self, address: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// A living process.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: Pid,
    file: MemoryFile,
    /// Whether `process_vm_readv` is refused (seccomp): then the file serves.
    refused: AtomicBool,
}

impl ProcessMemory {
    pub fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self {
            pid,
            file: MemoryFile::open(pid)?,
            refused: AtomicBool::new(false),
        })
    }

    fn read_from_file(&self, (address, len): Range) -> Option<Vec<u8>> {
        self.file.read_vec(address, len).ok()
    }
}

impl Memory for ProcessMemory {
    fn read_many(&self, ranges: &[Range]) -> Vec<Option<Vec<u8>>> {
        let mut answers: Vec<Option<Vec<u8>>> = Vec::with_capacity(ranges.len());
        while let Some(rest) = ranges.get(answers.len()..).filter(|rest| !rest.is_empty()) {
            if self.refused.load(Ordering::Relaxed) {
                answers.extend(rest.iter().map(|range| self.read_from_file(*range)));
                break;
            }
            let batch = &rest[..rest.len().min(MAX_RANGES)];
            let mut buffers: Vec<Vec<u8>> = batch.iter().map(|(_, len)| vec![0; *len]).collect();
            let mut read = match read_vectors(self.pid, batch, &mut buffers) {
                Ok(read) => read,
                Err(libc::EPERM | libc::ENOSYS) => {
                    self.refused.store(true, Ordering::Relaxed);
                    continue;
                }
                Err(_) => 0,
            };
            let mut whole = 0;
            while let Some((_, len)) = batch.get(whole).filter(|(_, len)| *len <= read) {
                read -= len;
                whole += 1;
            }
            answers.extend(buffers.drain(..whole).map(Some));
            if whole < batch.len() {
                answers.push(None);
            }
        }
        answers
    }
}

/// How many bytes were read before the first range that could not be, or the error number.
#[expect(unsafe_code, reason = "process_vm_readv is a C interface")]
fn read_vectors(pid: Pid, ranges: &[Range], buffers: &mut [Vec<u8>]) -> Result<usize, i32> {
    let local: Vec<libc::iovec> = buffers
        .iter_mut()
        .map(|buffer| libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        })
        .collect();
    let remote: Vec<libc::iovec> = ranges
        .iter()
        .map(|(address, len)| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(*address as usize),
            iov_len: *len,
        })
        .collect();
    let (locals, remotes) = (local.len() as libc::c_ulong, remote.len() as libc::c_ulong);
    // SAFETY: each local vector is a buffer that lives and is ours alone until the call returns, with its true
    // length; the remote ones are addresses of another process, which the kernel checks.
    let read = unsafe {
        libc::process_vm_readv(
            pid.0 as i32,
            local.as_ptr(),
            locals,
            remote.as_ptr(),
            remotes,
            0,
        )
    };
    usize::try_from(read).map_err(|_negative| {
        io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO)
    })
}

/// Gives at most so many bytes, then nothing: structures that lead on and on come to an end.
#[derive(Debug)]
pub struct Bounded<'a, M: ?Sized> {
    memory: &'a M,
    left: AtomicUsize,
    spent: AtomicBool,
}

impl<'a, M: Memory + ?Sized> Bounded<'a, M> {
    pub fn new(memory: &'a M, bytes: usize) -> Self {
        Self {
            memory,
            left: AtomicUsize::new(bytes),
            spent: AtomicBool::new(false),
        }
    }
}

impl<M: ?Sized> Bounded<'_, M> {
    /// Whether more was asked for than is given.
    pub fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }
}

impl<M: Memory + ?Sized> Memory for Bounded<'_, M> {
    fn read_many(&self, ranges: &[Range]) -> Vec<Option<Vec<u8>>> {
        let wanted = ranges
            .iter()
            .fold(0usize, |sum, (_, len)| sum.saturating_add(*len));
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(wanted)
            });
        if taken.is_err() {
            self.spent.store(true, Ordering::Relaxed);
            return vec![None; ranges.len()];
        }
        self.memory.read_many(ranges)
    }
}

/// What is known of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyOutcome {
    Here,
    NotLoaded,
    /// Not mapped in the target, or an address that cannot be one.
    Never,
}

/// Pages of the target as they once were.
#[derive(Debug, Default)]
pub struct Pages {
    buffers: Vec<Vec<u8>>,
    /// Page number to buffer and offset in it; `None` for a page that is not mapped.
    places: AddressMap<Option<(u32, u32)>>,
    was_loaded: bool,
}

impl Pages {
    /// The pages that hold a range.
    pub fn around((address, len): Range) -> Range {
        let start = address & !(PAGE - 1);
        let end = address.saturating_add(len as u64);
        let end = end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        (start, (end - start) as usize)
    }

    /// Whether not all pages are from the moment when the first were put in.
    pub fn was_loaded(&self) -> bool {
        self.was_loaded
    }

    /// Loads the pages of ranges that are not there yet.
    pub fn load(&mut self, memory: &(impl Memory + ?Sized), ranges: &[Range]) {
        self.was_loaded = true;
        let possible = ranges.iter().filter(|(address, _)| *address < HIGHEST);
        let mut wanted: Vec<Range> = possible.map(|range| Self::around(*range)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|range| numbers(*range).any(|page| !self.places.contains_key(&page)));
        let answers = memory.read_many(&wanted);
        let mut again = Vec::new();
        for (range, answer) in wanted.iter().zip(answers) {
            match answer {
                Some(bytes) => self.insert(*range, bytes),
                None if range.1 as u64 > PAGE => again.extend(numbers(*range)),
                None => drop(self.places.insert(range.0 / PAGE, None)),
            }
        }
        let singles: Vec<Range> = again.iter().map(|n| (n * PAGE, PAGE as usize)).collect();
        for (number, answer) in again.iter().zip(memory.read_many(&singles)) {
            match answer {
                Some(bytes) => self.insert((number * PAGE, PAGE as usize), bytes),
                None => drop(self.places.insert(*number, None)),
            }
        }
    }

    /// Copies the same pages once more: what has become of them since.
    #[must_use]
    pub fn again(&self, memory: &(impl Memory + ?Sized)) -> Changes {
        let mapped = self.places.iter().filter(|(_, place)| place.is_some());
        let mut numbers: Vec<u64> = mapped.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        let mut changes = Changes::default();
        // A few at a time: most are what they were and need not be kept.
        for some in numbers.chunks(PAGES_AT_ONCE) {
            let neighbours = some.chunk_by(|one, next| one + 1 == *next);
            let ranges: Vec<Range> = neighbours
                .map(|pages| (pages[0] * PAGE, pages.len() * PAGE as usize))
                .collect();
            for (range, bytes) in ranges.iter().zip(memory.read_many(&ranges)) {
                self.compare(*range, bytes.as_deref(), &mut changes);
            }
        }
        changes
    }

    fn compare(&self, range: Range, bytes: Option<&[u8]>, changes: &mut Changes) {
        for (index, number) in numbers(range).enumerate() {
            let start = index * PAGE as usize;
            let now = bytes.and_then(|bytes| bytes.get(start..start + PAGE as usize));
            if now.is_some() && self.page(number) == now {
                continue;
            }
            changes.numbers.insert(number);
            if let Some(now) = now {
                let range = (number * PAGE, PAGE as usize);
                changes.pages.insert(range, now.to_vec());
            }
        }
    }

    /// The bytes of a page that was loaded.
    #[inline]
    pub fn page(&self, number: u64) -> Option<&[u8]> {
        let (buffer, start) = (*self.places.get(&number)?)?;
        let start = start as usize;
        self.buffers
            .get(buffer as usize)?
            .get(start..start + PAGE as usize)
    }

    /// Keeps the bytes of whole pages.
    pub fn insert(&mut self, range: Range, bytes: Vec<u8>) {
        let buffer = self.buffers.len() as u32;
        for (index, page) in numbers(range).enumerate() {
            let place = (buffer, index as u32 * PAGE as u32);
            self.places.insert(page, Some(place));
        }
        self.buffers.push(bytes);
    }

    /// Copies bytes that were loaded.
    pub fn copy(&self, address: u64, into: &mut [u8]) -> CopyOutcome {
        if address >= HIGHEST {
            return CopyOutcome::Never;
        }
        let mut done = 0;
        while done < into.len() {
            let at = address + done as u64;
            let (buffer, start) = match self.places.get(&(at / PAGE)) {
                None => return CopyOutcome::NotLoaded,
                Some(None) => return CopyOutcome::Never,
                Some(Some(place)) => *place,
            };
            let inside = (at % PAGE) as usize;
            let len = (PAGE as usize - inside).min(into.len() - done);
            let start = start as usize + inside;
            let bytes = self.buffers.get(buffer as usize);
            let Some(bytes) = bytes.and_then(|bytes| bytes.get(start..start + len)) else {
                return CopyOutcome::Never;
            };
            into[done..done + len].copy_from_slice(bytes);
            done += len;
        }
        CopyOutcome::Here
    }
}

/// Pages of the target that are others than they once were.
#[derive(Debug, Default)]
pub struct Changes {
    numbers: AddressSet,
    /// Those that are still mapped.
    pages: Pages,
}

impl Changes {
    /// Whether the page of this number is another.
    #[inline]
    pub fn has(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }

    /// As they are now; `NotLoaded` for one that is not mapped any more.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }
}

/// Numbers of the pages of a range that begins at a page.
fn numbers((start, len): Range) -> impl Iterator<Item = u64> {
    let first = start / PAGE;
    first..first + (len as u64).div_ceil(PAGE)
}

#[inline]
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let end = offset.checked_add(8)?;
    Some(u64::from_le_bytes(bytes.get(offset..end)?.try_into().ok()?))
}

#[inline]
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let end = offset.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(offset..end)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ourselves() -> ProcessMemory {
        ProcessMemory::open(Pid(std::process::id())).unwrap()
    }

    #[test]
    fn ranges_are_read_whatever_lies_between() {
        let text = b"something to read".to_vec();
        let at = text.as_ptr() as u64;
        for refused in [false, true] {
            let memory = ourselves();
            memory.refused.store(refused, Ordering::Relaxed);
            let answers = memory.read_many(&[(at, 4), (8, 8), (at + 10, 2), (u64::MAX - 3, 9)]);
            let expected = [Some(b"some".to_vec()), None, Some(b"to".to_vec()), None];
            assert_eq!(answers, expected);
            assert_eq!(memory.read_many(&vec![(at, 1); 3000]).len(), 3000);
        }
    }

    #[test]
    fn pages_are_loaded_once_and_copied_across_their_borders() {
        let bytes: Vec<u8> = (0..20_000u32).map(|n| (n / 64) as u8).collect();
        let at = bytes.as_ptr() as u64;
        let mut pages = Pages::default();
        let mut out = [0; 5000];
        assert_eq!(pages.copy(at + 3000, &mut out), CopyOutcome::NotLoaded);
        pages.load(&ourselves(), &[(at + 3000, 5000), (16, 8)]);
        assert_eq!(pages.copy(at + 3000, &mut out), CopyOutcome::Here);
        assert_eq!(out, bytes[3000..8000]);
        assert_eq!(pages.copy(16, &mut out[..8]), CopyOutcome::Never);
    }

    #[test]
    fn pages_that_have_changed_are_found_and_copied() {
        let count = PAGES_AT_ONCE + 3;
        let mut bytes = vec![1u8; (count + 1) * PAGE as usize];
        let first = (bytes.as_ptr() as u64).div_ceil(PAGE);
        let mut pages = Pages::default();
        pages.load(&ourselves(), &[(first * PAGE, count * PAGE as usize)]);
        let last = first + count as u64 - 1;
        let at = (last * PAGE + 9 - bytes.as_ptr() as u64) as usize;
        bytes[at] = 2;
        let changes = pages.again(&ourselves());
        let others: Vec<u64> = (first..=last).filter(|page| changes.has(*page)).collect();
        assert_eq!(others, [last]);
        let mut now = [0];
        assert_eq!(
            changes.pages().copy(last * PAGE + 9, &mut now),
            CopyOutcome::Here
        );
        assert_eq!(now, [2]);
    }

    #[test]
    fn a_bound_ends_the_reading() {
        let byte = Box::new(7u8);
        let at = std::ptr::from_ref(byte.as_ref()) as u64;
        let memory = ourselves();
        let bounded = Bounded::new(&memory, 2);
        assert_eq!(bounded.read(at, 1), Some(vec![7]));
        assert_eq!(bounded.read(at, 2), None);
        assert_eq!(bounded.read(at, usize::MAX), None);
    }
}
