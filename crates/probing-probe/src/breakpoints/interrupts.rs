//! A Ctrl-C that was meant for the program, and came while we had its main thread.
#![expect(
    unsafe_code,
    reason = "PyOS_InterruptOccurred and PyErr_SetInterrupt have no safe face"
)]

use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::call::release_error;
use crate::python::signal_handlers;

/// Whether one has come to this thread. The program gets it as soon as it goes on.
pub(crate) fn interrupted(_py: Python<'_>) -> bool {
    // SAFETY: the GIL is held. Tells of the main thread only, and takes it away.
    let is_interrupted = unsafe { ffi::PyOS_InterruptOccurred() } != 0;
    if is_interrupted {
        interrupt_again();
    }
    is_interrupted
}

/// What code of ours gave. What it raised is nobody's; but what a handler of a signal raised meanwhile is the program's.
pub(crate) fn own<T>(py: Python<'_>, result: PyResult<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            signal_handlers::give_back(py, &error);
            release_error(py, error);
            None
        }
    }
}

/// Has the program get one.
fn interrupt_again() {
    // SAFETY: may be called any time.
    unsafe { ffi::PyErr_SetInterrupt() };
}
