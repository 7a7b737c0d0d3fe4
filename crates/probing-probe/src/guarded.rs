//! Calls into Python that may run the program's code, made so that the end of the interpreter cannot abort the process.
//!
//! A thread that asks for the GIL while the interpreter ends is unwound by `pthread_exit` (before Python 3.14). That
//! must not pass through Rust frames: a thread that gets so far sleeps until the process is gone, as 3.14 does itself.
//!
//! The `call1` of `pyo3` must not be used anywhere in this crate: it declares the same function as one that never unwinds, and
//! the compiler believes that of both.
#![expect(unsafe_code, reason = "declares the call as one that may unwind")]

use std::mem;
use std::ptr;

use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

unsafe extern "C-unwind" {
    fn PyObject_Call(
        callable: *mut PyObject,
        args: *mut PyObject,
        kwargs: *mut PyObject,
    ) -> *mut PyObject;
    fn Py_DecRef(object: *mut PyObject);
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
    call_with(callable, args, None)
}

/// `callable(*args, **kwargs)`.
pub(crate) fn call_with<'py>(
    callable: &Bound<'py, PyAny>,
    args: Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let kwargs = kwargs.map_or(ptr::null_mut(), Bound::as_ptr);
    let unwinding = SleepForEver;
    // SAFETY: the pointers come from live references (or are null) and the GIL is held, as their lifetime says.
    let result = unsafe { PyObject_Call(callable.as_ptr(), args.as_ptr(), kwargs) };
    mem::forget(unwinding);
    release(args.into_any());
    // SAFETY: the call returns a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), result) }
}

/// Lets go of an object, whose destructor may be the program's.
pub(crate) fn release(object: Bound<'_, PyAny>) {
    let object = object.into_ptr();
    let unwinding = SleepForEver;
    // SAFETY: the reference was ours, and the GIL is held, as its lifetime said.
    unsafe { Py_DecRef(object) };
    mem::forget(unwinding);
}
