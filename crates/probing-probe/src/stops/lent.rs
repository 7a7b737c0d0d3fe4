//! A value that is reached with the GIL held only.
//!
//! A lock would do, and costs a tenth of what a breakpoint costs in all: each pass of it comes here.
#![expect(unsafe_code, reason = "shares a value that the GIL guards")]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Lent to one at a time. Whoever has it does not let go of the GIL meanwhile, nor run code of the program.
pub(crate) struct UnderGil<T> {
    is_lent: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: threads reach the value one after the other, as each has the GIL while it does.
unsafe impl<T: Send> Sync for UnderGil<T> {}

impl<T> UnderGil<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            is_lent: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// # Panics
    ///
    /// When it is lent already. No panic leaves the probe.
    #[inline]
    pub(crate) fn lend(&self) -> Lent<'_, T> {
        self.lend_if_free().expect("lent to one at a time")
    }

    /// For who may be called while this very thread has it: by a collection of garbage, which runs code of the program.
    #[inline]
    pub(crate) fn lend_if_free(&self) -> Option<Lent<'_, T>> {
        debug_assert!(has_gil(), "reached without the GIL");
        // With the GIL no other thread comes between the two.
        if self.is_lent.load(Ordering::Relaxed) {
            return None;
        }
        self.is_lent.store(true, Ordering::Relaxed);
        Some(Lent(self))
    }
}

/// The value, until it is given back.
pub(crate) struct Lent<'a, T>(&'a UnderGil<T>);

impl<T> Deref for Lent<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: lent to nobody else, as was seen.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Lent<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: lent to nobody else, as was seen.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Lent<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.is_lent.store(false, Ordering::Relaxed);
    }
}

/// What tests run with asks; a release does not.
fn has_gil() -> bool {
    super::symbols::symbols()
        .has_gil
        // SAFETY: takes nothing, and may be called by any thread.
        .is_none_or(|has_gil| unsafe { has_gil() } != 0)
}
