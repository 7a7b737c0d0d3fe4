//! What torch calls before and after it issues an operation: C functions, with the number of the group that they are of.
#![expect(
    unsafe_code,
    reason = "hooks are C functions, which take arguments as Python passes them"
)]

use std::ffi::CStr;
use std::panic::{self, AssertUnwindSafe};

use probing_store::monotonic_nanos;
use pyo3::Borrowed;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use super::glance::asked;
use super::pending::Until;
use super::tensors::{self, Tensors};
use super::works::{Held, is_as_told};
use super::{Look, noted, state, take_issued, wait_for};
use crate::forked;
use crate::interned::interned;

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
            drop(begins(number, given));
        })
    }
}

/// # Safety
///
/// As that of [`before`].
unsafe extern "C" fn after(number: *mut PyObject, given: *mut PyObject) -> *mut PyObject {
    // SAFETY: as the caller says.
    unsafe { told(number, given, issued) }
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

/// A group is about to issue an operation.
fn begins(number: usize, given: &Bound<'_, PyAny>) -> PyResult<()> {
    let begun_at = monotonic_nanos();
    let look = look_at(given)?;
    let tensors = tensors_of(given, &look)?;
    noted(given.py(), number, begun_at, &look, tensors)
}

fn look_at(given: &Bound<'_, PyAny>) -> PyResult<Look> {
    let py = given.py();
    let nothing = || pyo3::exceptions::PyRuntimeError::new_err("no such operation");
    let torch = || {
        let torch = state(py).and_then(|state| state.torch.as_mut());
        torch.ok_or_else(nothing)
    };
    let seen = torch()?.glance.at(given);
    let told = if let Some(seen) = seen {
        seen.in_words()
    } else {
        let told = asked(given)?;
        torch()?.glance.compare(given, &told);
        told
    };
    let torch = torch()?;
    let kind = torch.operations.get(usize::from(told.op)).copied();
    Ok(Look {
        op: told.op,
        kind: kind.ok_or_else(nothing)?,
        is_async: told.is_async,
        root: told.root,
        tensor: seen.and_then(|seen| torch.glance.tensor(&seen)),
        has_no_tensors: seen.is_some_and(|seen| !seen.has_tensors()),
    })
}

/// Each attribute that torch is asked for takes 100 ns and more: only where it says something new.
fn tensors_of(given: &Bound<'_, PyAny>, look: &Look) -> PyResult<Tensors> {
    let py = given.py();
    let known = || state(py).map(|state| &mut state.known);
    if let Some(tensor) = look.tensor
        && let Some(told) = known().and_then(|known| known.told(py, tensor))
    {
        return Ok(told);
    }
    let number = look.tensor.map(|(_, number)| number);
    for name in [
        interned!(py, "input_tensors"),
        interned!(py, "output_tensors"),
    ] {
        if look.has_no_tensors {
            break;
        }
        if let Some(told) = tensors::told(&given.getattr(name)?, number, known)? {
            return Ok(told);
        }
    }
    Ok(Tensors::none(py))
}

/// Keeps what torch gives for an operation, until it is done.
fn issued(number: usize, given: &Bound<'_, PyAny>) {
    let py = given.py();
    let torch = || state(py).and_then(|state| state.torch.as_mut());
    if torch().is_some_and(|torch| torch.works.wants_comparison()) {
        let is_as_told = is_as_told(given).unwrap_or(Some(false));
        if let (Some(torch), Some(is_as_told)) = (torch(), is_as_told) {
            torch.works.compared(is_as_told);
        }
    }
    if let Some(mut pending) = take_issued(py, number) {
        let held = Held::new(given);
        let seen = torch().and_then(|torch| torch.works.of(given));
        // It is looked into later.
        pending.until = match seen {
            Some(seen) => Until::Seen(held, seen),
            None => Until::Given(held),
        };
        wait_for(py, pending);
    }
}
