//! The exception that a thread of the program handles while the probe uses the thread.
//!
//! The exception that a thread of the program handles at the moment, while we have the thread do something else:
//! code that raises in between would carry it along, and a bare `raise` would raise it. What is done meanwhile has
//! room for its calls (`recursion.rs`).
#![expect(
    unsafe_code,
    reason = "PyErr_GetExcInfo and PyErr_SetExcInfo have no safe face"
)]

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::recursion;

/// That exception, put aside.
pub(crate) struct Handled {
    parts: [*mut ffi::PyObject; 3],
    /// Whether this frame handles it. In a generator it may be who asked for its next value: then it stays theirs.
    is_own: bool,
}

impl Handled {
    /// Runs `code` as if none were handled, and the thread were not deep in calls.
    pub(crate) fn aside<T>(py: Python<'_>, code: impl FnOnce() -> T) -> T {
        let handled = Self::put_aside(py);
        let result = recursion::with_room(py, code);
        handled.put_back(py);
        result
    }

    fn put_aside(_py: Python<'_>) -> Self {
        let mut parts = [ptr::null_mut(); 3];
        let [kind, value, traceback] = &mut parts;
        // SAFETY: the GIL is held; three valid places are filled with references (or null), which are ours. Setting
        // nothing gives up the interpreter's own references: one less of the exception, if it had one here.
        unsafe {
            ffi::PyErr_GetExcInfo(kind, value, traceback);
            let references = |object: *mut ffi::PyObject| {
                if object.is_null() {
                    0
                } else {
                    ffi::Py_REFCNT(object)
                }
            };
            let before = references(parts[1]);
            ffi::PyErr_SetExcInfo(ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
            let is_own = references(parts[1]) < before;
            Self { parts, is_own }
        }
    }

    fn put_back(self, _py: Python<'_>) {
        let [kind, value, traceback] = self.parts;
        // SAFETY: the GIL is held, and the references, which are ours, are given away or up.
        unsafe {
            if self.is_own {
                ffi::PyErr_SetExcInfo(kind, value, traceback);
            } else {
                ffi::Py_XDECREF(kind);
                ffi::Py_XDECREF(value);
                ffi::Py_XDECREF(traceback);
            }
        }
    }
}
