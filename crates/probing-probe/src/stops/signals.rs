//! A Ctrl-C that was meant for the program, and came while we had its main thread.
#![expect(
    unsafe_code,
    reason = "PyOS_InterruptOccurred and PyErr_SetInterrupt have no safe face"
)]

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::guarded::release_error;

/// Whether one has come to this thread. The program gets it as soon as it goes on.
pub(super) fn interrupted(_py: Python<'_>) -> bool {
    // SAFETY: the GIL is held. Tells of the main thread only, and takes it away.
    let is_interrupted = unsafe { ffi::PyOS_InterruptOccurred() } != 0;
    if is_interrupted {
        interrupt_again();
    }
    is_interrupted
}

/// What code of ours gave. What it raised is nobody's; but a Ctrl-C that came while it ran is the program's.
pub(super) fn own<T>(py: Python<'_>, result: PyResult<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                interrupt_again();
            }
            release_error(py, error);
            None
        }
    }
}

/// Has the program get one.
pub(super) fn interrupt_again() {
    // SAFETY: may be called any time.
    unsafe { ffi::PyErr_SetInterrupt() };
}
