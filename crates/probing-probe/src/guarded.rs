//! Calls into Python that may run the program's code, made so that the end of the interpreter cannot abort the process.
//!
//! A thread that asks for the GIL while the interpreter ends is unwound by `pthread_exit` (before Python 3.14). That
//! must not pass through Rust frames: a thread that gets so far sleeps until the process is gone, as 3.14 does itself.
#![expect(unsafe_code, reason = "declares the call as one that may unwind")]

use std::mem;

use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

unsafe extern "C-unwind" {
    fn PyObject_CallObject(callable: *mut PyObject, args: *mut PyObject) -> *mut PyObject;
}

/// Sleeps for ever when dropped, which only unwinding does.
struct SleepForEver;

impl Drop for SleepForEver {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// `callable(*args)`.
pub(crate) fn call<'py>(
    callable: &Bound<'py, PyAny>,
    args: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error: Into<PyErr>>,
) -> PyResult<Bound<'py, PyAny>> {
    let args = args.into_pyobject(callable.py()).map_err(Into::into)?;
    let unwinding = SleepForEver;
    // SAFETY: both pointers come from live references and the GIL is held, as their lifetime says.
    let result = unsafe { PyObject_CallObject(callable.as_ptr(), args.as_ptr()) };
    mem::forget(unwinding);
    // SAFETY: the call returns a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), result) }
}
