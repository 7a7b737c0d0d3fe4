//! The state of the current thread, cached because thread-locals of a library that is loaded late are slow.
//!
//! The state of the thread that runs now, found again without asking the loader: a library that is loaded late
//! reaches what is a thread's own by a call, which events of one thread after the other need not pay.
#![expect(
    unsafe_code,
    reason = "reads the register of the thread, and shares a pointer that the GIL guards"
)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// What the thread that was last met has. Written with the GIL held; forgotten by the thread itself, at its end.
pub(crate) struct Current<T> {
    /// Which thread that is; 0 is none.
    whose: AtomicUsize,
    what: AtomicPtr<T>,
}

impl<T> Current<T> {
    pub(crate) const fn new() -> Self {
        Self {
            whose: AtomicUsize::new(0),
            what: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// This thread's, if it was the last one. With the GIL held.
    #[inline]
    pub(crate) fn of_this_thread(&self) -> Option<ptr::NonNull<T>> {
        if self.whose.load(Ordering::Relaxed) == this_thread() {
            ptr::NonNull::new(self.what.load(Ordering::Relaxed))
        } else {
            None
        }
    }

    /// From now on it is this thread. With the GIL held.
    pub(crate) fn remember(&self, what: *mut T) {
        // Meanwhile it is nobody's: a thread at its end may look.
        self.whose.store(0, Ordering::Release);
        self.what.store(what, Ordering::Release);
        self.whose.store(this_thread(), Ordering::Release);
    }

    /// Nobody was the last one. With the GIL held.
    pub(crate) fn forget_all(&self) {
        self.whose.store(0, Ordering::Release);
    }

    /// This thread ends. Without the GIL: another one may be remembered at this moment, and stays.
    pub(crate) fn forget(&self) {
        self.whose
            .compare_exchange(this_thread(), 0, Ordering::AcqRel, Ordering::Relaxed)
            .ok();
    }
}

/// A number that no other thread has while this one lives.
#[cfg(target_arch = "x86_64")]
#[inline]
fn this_thread() -> usize {
    let pointer: usize;
    // SAFETY: the first word of a thread's block is its own address, by the ABI; only read.
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly, pure));
    }
    pointer
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn this_thread() -> usize {
    let pointer: usize;
    // SAFETY: the register of the thread, which every program may read.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem, pure));
    }
    pointer
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn this_thread() -> usize {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| ptr::from_ref(mark) as usize)
}
