//! What torch calls before and after it issues an operation: C functions, with the number of the group that they are of.
#![expect(
    unsafe_code,
    reason = "hooks are C functions, which take arguments as Python passes them"
)]

use std::ffi::CStr;
use std::panic::{self, AssertUnwindSafe};

use pyo3::Borrowed;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::forked;

/// The part of a hook's number that counts groups; the rest is of the process.
const NUMBER: u64 = u32::MAX as u64;

static mut BEFORE: ffi::PyMethodDef = method(c"operation_begins", before);
static mut AFTER: ffi::PyMethodDef = method(c"operation_is_issued", after);

const fn method(name: &'static CStr, function: ffi::PyCFunction) -> ffi::PyMethodDef {
    ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunction: function,
        },
        ml_flags: ffi::METH_O,
        ml_doc: c"".as_ptr(),
    }
}

fn own_mark() -> u64 {
    u64::from(forked::generation()) << 32
}

/// Before an operation is issued, and after that.
pub(super) type Hooks<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Those of a group.
pub(super) fn of_group(py: Python<'_>, number: usize) -> PyResult<Hooks<'_>> {
    let number = (own_mark() | number as u64).into_pyobject(py)?;
    let made = |definition: *mut ffi::PyMethodDef| {
        // SAFETY: the definitions are static and nobody changes them; the number is a live object; no module is needed.
        unsafe {
            let function =
                ffi::PyCFunction_NewEx(definition, number.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, function)
        }
    };
    Ok((made(&raw mut BEFORE)?, made(&raw mut AFTER)?))
}

/// # Safety
///
/// Called by the interpreter: with the number that the function was made with, and one argument.
unsafe extern "C" fn before(number: *mut PyObject, given: *mut PyObject) -> *mut PyObject {
    // SAFETY: as the caller says.
    unsafe {
        // What cannot be told is left out: an operation is not to fail by us.
        told(number, given, |number, given| {
            drop(super::begins(number, given));
        })
    }
}

/// # Safety
///
/// As that of [`before`].
unsafe extern "C" fn after(number: *mut PyObject, given: *mut PyObject) -> *mut PyObject {
    // SAFETY: as the caller says.
    unsafe { told(number, given, super::issued) }
}

/// # Safety
///
/// As that of [`before`].
unsafe fn told(
    number: *mut PyObject,
    given: *mut PyObject,
    tell: impl FnOnce(usize, &Bound<'_, PyAny>),
) -> *mut PyObject {
    let body = || {
        // SAFETY: whoever calls a function of Python has the GIL; both are live objects.
        let (number, given) = unsafe {
            let py = Python::assume_attached();
            let given: Borrowed<'_, '_, PyAny> = Borrowed::from_ptr(py, given);
            (ffi::PyLong_AsUnsignedLongLong(number), given)
        };
        // A child of a fork has its parent's hooks, and not what they are numbers of.
        if super::is_on() && number & !NUMBER == own_mark() {
            tell((number & NUMBER) as usize, &given);
        }
    };
    // No panic leaves the probe.
    drop(panic::catch_unwind(AssertUnwindSafe(body)));
    // SAFETY: the GIL is held.
    unsafe { ffi::Py_NewRef(ffi::Py_None()) }
}
