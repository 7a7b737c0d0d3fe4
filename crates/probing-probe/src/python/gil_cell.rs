//! A value that threads reach one after the other: each shows by its token that it has the GIL.
//!
//! A lock would do, and costs a tenth of what a breakpoint costs in all: each pass of it comes here.
#![expect(unsafe_code, reason = "shares a value that the GIL guards")]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::Python;

/// Borrowed once at a time, by a thread that has the GIL. Code of the program that runs meanwhile may release the GIL:
/// then the value stays borrowed, and another thread that wants it gets nothing, or panics.
pub(crate) struct GilCell<T> {
    is_borrowed: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: threads reach the value one after the other: each shows a token of the GIL to borrow it, and it is borrowed once
// at a time. `T` is sent between these threads.
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
    /// When it is borrowed already. No panic leaves the probe.
    #[inline]
    pub(crate) fn borrow_mut<'a>(&'a self, py: Python<'a>) -> GilGuard<'a, T> {
        self.try_borrow_mut(py).expect("borrowed once at a time")
    }

    /// For code that may be called while this very thread has it: by a collection of garbage, which runs code of the program.
    #[inline]
    pub(crate) fn try_borrow_mut<'a>(&'a self, _py: Python<'a>) -> Option<GilGuard<'a, T>> {
        // With the GIL no other thread comes between the two.
        if self.is_borrowed.load(Ordering::Acquire) {
            return None;
        }
        self.is_borrowed.store(true, Ordering::Relaxed);
        Some(GilGuard {
            cell: self,
            stays_here: PhantomData,
        })
    }
}

/// The borrowed value. It stays on its thread, and does not outlive the token that it was borrowed with.
pub(crate) struct GilGuard<'a, T> {
    cell: &'a GilCell<T>,
    /// Neither sent to another thread nor shared with one.
    stays_here: PhantomData<*mut T>,
}

impl<T> Deref for GilGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time, and it is borrowed here.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for GilGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is one guard at a time, and it is borrowed mutably here.
        unsafe { &mut *self.cell.value.get() }
    }
}

impl<T> Drop for GilGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.cell.is_borrowed.store(false, Ordering::Release);
    }
}
