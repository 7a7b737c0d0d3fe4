//! Memory into which the kernel writes records, one ring for each CPU.
//!
//! One for each CPU.
#![expect(unsafe_code, reason = "memory that is shared with the kernel")]

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::event::Event;
use crate::sample::{self, Record};

/// Where the first page says how far the kernel has written, and we have read.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
/// For records: as much as may be locked, a power of two. The last fits what everyone may.
const SIZES: [usize; 4] = [4 << 20, 1 << 20, 512 << 10, 128 << 10];

/// Between two looks at a ring that tells nobody.
const MOMENT: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) cpu: u32,
    /// Of the event that it belongs to.
    pub(crate) number: RawFd,
    start: *mut u8,
    page: usize,
    size: usize,
}

// SAFETY: the memory is nobody else's but the kernel's, which does not care for threads.
unsafe impl Send for Ring {}

impl Ring {
    /// The ring of an event, which has to live as long.
    pub(crate) fn of(event: &Event, cpu: u32) -> io::Result<Self> {
        // SAFETY: it takes a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let mut refused = io::Error::from(io::ErrorKind::OutOfMemory);
        for size in SIZES {
            // SAFETY: a mapping at a place that the kernel chooses touches nothing that is there.
            let start = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    page + size,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    event.number(),
                    0,
                )
            };
            if start != libc::MAP_FAILED {
                return Ok(Self {
                    cpu,
                    number: event.number(),
                    start: start.cast(),
                    page,
                    size,
                });
            }
            refused = io::Error::last_os_error();
        }
        Err(refused)
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: it lies in the first page, which is mapped as long as we live, at a multiple of 8; the kernel and we
        // change it as a whole.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).cast()) }
    }

    /// What has been written since the last time.
    pub(crate) fn take(&mut self) -> Vec<Record> {
        let head = self.position(HEAD).load(Ordering::Acquire);
        let mut tail = self.position(TAIL).load(Ordering::Relaxed);
        let mut records = Vec::new();
        while tail < head {
            let available = (head - tail) as usize;
            let Some((_, _, size)) = sample::header(&self.copy(tail, available.min(8))) else {
                break;
            };
            // Anything else would mean that we read what is no record.
            if size < 8 || size > available {
                tail = head;
                break;
            }
            records.extend(sample::parse(&self.copy(tail, size)));
            tail += size as u64;
        }
        self.position(TAIL).store(tail, Ordering::Release);
        records
    }

    /// Bytes from a position on; the ring goes on at its start.
    fn copy(&self, from: u64, length: usize) -> Vec<u8> {
        let length = length.min(self.size);
        let from = (from % self.size as u64) as usize;
        let first = length.min(self.size - from);
        let mut bytes = vec![0; length];
        // SAFETY: both parts lie in the mapping behind its first page; the kernel does not write where we have not said
        // that we are done.
        unsafe {
            let data = self.start.add(self.page);
            ptr::copy_nonoverlapping(data.add(from), bytes.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(data, bytes.as_mut_ptr().add(first), length - first);
        }
        bytes
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by us in this length, and used by nobody any more.
        unsafe { libc::munmap(self.start.cast(), self.page + self.size) };
    }
}

/// Waits until one of them has something, or the time is over. A signal ends it, too.
pub(crate) fn wait(rings: &[Ring], until: Option<Instant>) -> io::Result<()> {
    let mut waited: Vec<libc::pollfd> = rings
        .iter()
        .map(|ring| libc::pollfd {
            fd: ring.number,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    // One more, so that the time is over afterwards.
    let millis = left.map_or(-1, |left| {
        (left + Duration::from_millis(1)).as_millis() as i32
    });
    // SAFETY: the list has this length and lives until the call returns.
    let ready = unsafe { libc::poll(waited.as_mut_ptr(), waited.len() as libc::nfds_t, millis) };
    let error = io::Error::last_os_error();
    if waited.iter().any(|ring| ring.revents & libc::POLLHUP != 0) {
        // The thread that it belongs to has ended, and nobody is told any more when others write into it.
        thread::sleep(left.unwrap_or(MOMENT).min(MOMENT));
    }
    match ready {
        0.. => Ok(()),
        _ if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
