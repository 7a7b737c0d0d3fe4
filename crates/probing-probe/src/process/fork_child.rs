//! What a forked child must not keep: the parent's listening socket and connections.
//!
//! A child that holds them would make clients of a dead parent wait for ever. The handler runs in the child of every
//! `fork`, Python's or C's, where only async-signal-safe calls are allowed: it closes numbers from a fixed table.
#![expect(
    unsafe_code,
    reason = "pthread_atfork, and close() by number in the child"
)]

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Clients that are served at once.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// Room for the listener, the waker, a pipe and every connection.
const MAX_FILES: usize = 4 + MAX_CONNECTIONS;
const NONE: i32 = -1;

static OPEN: [AtomicI32; MAX_FILES] = [const { AtomicI32::new(NONE) }; MAX_FILES];
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Counts the forks between the first process and this one: what was made in another generation is not ours.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// From now on children of forks know that they are: asks libc, once, to call us in each.
pub(crate) fn follow_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is async-signal-safe and lives as long as this library, which Python never unloads.
        // It fails only without memory; then children keep files open, which is not worth failing for.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
    for slot in &OPEN {
        let fd = slot.swap(NONE, Ordering::AcqRel);
        if fd != NONE {
            // SAFETY: the number is open and ours: it is forgotten before its owner closes it, and the owner, a
            // thread that does not exist in this child, will never use it here.
            unsafe { libc::close(fd) };
        }
    }
}

/// A file that children close. Forgets the number when dropped, so drop it before the file.
#[derive(Debug)]
pub(crate) struct ClosedInChildren {
    slot: Option<&'static AtomicI32>,
}

impl ClosedInChildren {
    pub(crate) fn new(fd: BorrowedFd<'_>) -> Self {
        let number = fd.as_raw_fd();
        let slot = OPEN.iter().find(|slot| {
            slot.compare_exchange(NONE, number, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
        Self { slot }
    }
}

impl Drop for ClosedInChildren {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            slot.store(NONE, Ordering::Release);
        }
    }
}
