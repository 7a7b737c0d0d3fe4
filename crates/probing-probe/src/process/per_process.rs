//! State of one process, which the child of a fork has of its own.
//!
//! A fork may come at any moment: the child finds the parent's state half-changed, or its locks held by threads that do not
//! exist in the child. So it must leave that alone: it is neither used nor dropped, and the child makes a fresh one when it
//! needs it. What is made stays for good, so that threads may hold references without a count.
#![expect(unsafe_code, reason = "reached through an atomic pointer")]

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::process::fork_child;

/// A static whose value belongs to the process that made it. Reading it costs two loads.
pub(crate) struct PerProcess<T: 'static> {
    /// Null, or leaked by [`PerProcess::get_or_init`] and never freed.
    newest: AtomicPtr<Owned<T>>,
}

/// A value, and the process that made it.
struct Owned<T> {
    generation: u32,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self {
            newest: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// This process's value, if it has made one.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        let newest = self.newest()?;
        (newest.generation == fork_child::generation()).then_some(&newest.value)
    }

    /// The value that was made last, be it that of a parent of this process: for what a child must do about its parent's.
    pub(crate) fn of_any_process(&self) -> Option<&'static T> {
        Some(&self.newest()?.value)
    }

    /// This process's value, made now where there is none. Of two threads that make one, the second gets that of the first.
    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &'static T {
        self.get().unwrap_or_else(|| self.init(make()))
    }

    #[cold]
    fn init(&self, value: T) -> &'static T {
        let generation = fork_child::generation();
        let fresh: *mut Owned<T> = Box::leak(Box::new(Owned { generation, value }));
        loop {
            let there = self.newest.load(Ordering::Acquire);
            if let Some(first) = self.get() {
                // What this thread has made stays, unused: to drop it might do something.
                return first;
            }
            let stored =
                self.newest
                    .compare_exchange(there, fresh, Ordering::AcqRel, Ordering::Acquire);
            if stored.is_ok() {
                // SAFETY: leaked above: never freed, nor borrowed mutably.
                return unsafe { &(*fresh).value };
            }
        }
    }

    fn newest(&self) -> Option<&'static Owned<T>> {
        // SAFETY: null, or leaked by `init`: never freed, nor borrowed mutably.
        unsafe { self.newest.load(Ordering::Acquire).as_ref() }
    }
}
