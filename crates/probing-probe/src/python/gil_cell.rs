//! A value that is reached with the GIL held only.
//!
//! A lock would do, and costs a tenth of what a breakpoint costs in all: each pass of it comes here.
#![expect(unsafe_code, reason = "shares a value that the GIL guards")]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Lent to one at a time. Whoever has it does not let go of the GIL meanwhile, nor run code of the program.
pub(crate) struct GilCell<T> {
    is_borrowed: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: threads reach the value one after the other, as each has the GIL while it does.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            is_borrowed: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// # Panics
    ///
    /// When it is lent already. No panic leaves the probe.
    #[inline]
    pub(crate) fn borrow_mut(&self) -> GilGuard<'_, T> {
        self.try_borrow_mut().expect("lent to one at a time")
    }

    /// For who may be called while this very thread has it: by a collection of garbage, which runs code of the program.
    #[inline]
    pub(crate) fn try_borrow_mut(&self) -> Option<GilGuard<'_, T>> {
        debug_assert!(has_gil(), "reached without the GIL");
        // With the GIL no other thread comes between the two.
        if self.is_borrowed.load(Ordering::Relaxed) {
            return None;
        }
        self.is_borrowed.store(true, Ordering::Relaxed);
        Some(GilGuard(self))
    }
}

/// The value, until it is given back.
pub(crate) struct GilGuard<'a, T>(&'a GilCell<T>);

impl<T> Deref for GilGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: lent to nobody else, as was seen.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for GilGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: lent to nobody else, as was seen.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for GilGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.is_borrowed.store(false, Ordering::Relaxed);
    }
}

/// What tests run with asks; a release does not.
fn has_gil() -> bool {
    crate::python::symbols::symbols()
        .has_gil
        // SAFETY: takes nothing, and may be called by any thread.
        .is_none_or(|has_gil| unsafe { has_gil() } != 0)
}
