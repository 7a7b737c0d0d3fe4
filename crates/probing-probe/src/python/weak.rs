//! Weak references: what they lead to, asked without running anything.
#![expect(unsafe_code, reason = "a weak reference is read by the C interface")]

use pyo3::ffi;
use pyo3::prelude::*;

pub(crate) fn weak_of(object: &Bound<'_, PyAny>) -> Option<Py<PyAny>> {
    // SAFETY: a live object, and the GIL is held. A new reference, or null with an exception.
    unsafe {
        let weak = ffi::PyWeakref_NewRef(object.as_ptr(), std::ptr::null_mut());
        if weak.is_null() {
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(object.py(), weak).map(Bound::unbind)
    }
}

/// What a weak reference leads to.
pub(crate) fn target<'py>(py: Python<'py>, weak: &Py<PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: a weak reference; what is borrowed becomes ours before anything else happens. None when it is gone.
    let target: Option<Bound<'py, PyAny>> =
        unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyWeakref_GetObject(weak.as_ptr())) };
    target.filter(|target| !target.is_none())
}

#[inline]
pub(crate) fn is_target(weak: &Py<PyAny>, object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a weak reference; what is borrowed is only compared.
    unsafe { ffi::PyWeakref_GetObject(weak.as_ptr()) == object.as_ptr() }
}

pub(crate) fn target_is_gone(weak: &Py<PyAny>) -> bool {
    // SAFETY: a weak reference; what is borrowed is only compared.
    unsafe { ffi::PyWeakref_GetObject(weak.as_ptr()) == ffi::Py_None() }
}
