//! Interrupting evaluated code: a `KeyboardInterrupt` at its next bytecode.
#![expect(unsafe_code, reason = "PyThreadState_SetAsyncExc has no safe face")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::{PyTypeInfo as _, ffi};

use crate::eval;

/// No thread runs the code now.
const NOBODY: u64 = 0;

/// The handle by which one eval is interrupted.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    requested: AtomicBool,
    begun: AtomicBool,
    over: AtomicBool,
    /// A thread is waiting for the GIL to deliver it.
    on_its_way: AtomicBool,
    /// The thread that runs the code. Changes only under the GIL.
    thread: AtomicU64,
}

impl Interrupt {
    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    /// Whether the code has run, or at least got the GIL.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Whether there is nothing left to interrupt.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The eval has its answer.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Asks for it. Never waits: delivering needs the GIL, so a thread of its own does that.
    pub(crate) fn request(self: &Arc<Self>) {
        self.requested.store(true, Ordering::Release);
        if self.is_over() || self.on_its_way.swap(true, Ordering::AcqRel) {
            return;
        }
        let interrupt = Arc::clone(self);
        let spawned = thread::Builder::new()
            .name("probing-cancel".to_owned())
            .spawn(move || {
                // None when the interpreter ends, which interrupts everything anyway.
                Python::try_attach(|py| interrupt.deliver(py));
            });
        if spawned.is_err() {
            self.on_its_way.store(false, Ordering::Release);
        }
    }

    fn deliver(&self, py: Python<'_>) {
        self.on_its_way.store(false, Ordering::Release);
        let thread = self.thread.load(Ordering::Acquire);
        if thread != NOBODY {
            set_pending_exception(py, thread, PyKeyboardInterrupt::type_object_raw(py));
        }
    }

    /// Runs `code`, which may be interrupted; afterwards nothing of an interrupt is left in this thread.
    pub(crate) fn allow<T>(
        &self,
        py: Python<'_>,
        code: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<T> {
        self.begun.store(true, Ordering::Release);
        if self.is_requested() {
            return Err(PyKeyboardInterrupt::new_err(()));
        }
        self.thread.store(own_thread(), Ordering::Release);
        let result = code();
        self.thread.store(NOBODY, Ordering::Release);
        // One that came when the code had just ended must not hit what follows. To take it back would leave Pythons before
        // 3.13 looking for it at every call of every thread, for good; so it is let come.
        if self.is_requested() {
            drop(eval::run_nothing(py));
        }
        result
    }
}

/// The calling thread, by the number that Python knows it by.
pub(crate) fn own_thread() -> u64 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::pthread_self() }
}

fn set_pending_exception(_py: Python<'_>, thread: u64, exception: *mut ffi::PyTypeObject) {
    // SAFETY: the GIL is held, as `_py` shows; the exception is a class. A thread that is gone is not found, which is fine.
    unsafe { ffi::PyThreadState_SetAsyncExc(thread as i64, exception.cast()) };
}
