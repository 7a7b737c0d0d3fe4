//! A C function as an object that the interpreter calls directly, for events of `sys.monitoring`.
//!
//! A function of ours as an object that the interpreter calls directly: a function made by `PyCFunction_NewEx` is
//! called through one of the interpreter's own, which costs each event about a fifth of what it costs in all.
#![expect(unsafe_code, reason = "makes a class whose objects hold a C function")]

use std::ffi::{CStr, c_int, c_void};
use std::mem::offset_of;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::python::gil_cell::GilCell;
use crate::python::immortal::Immortal;
use crate::python::symbols::found;

/// As the interpreter calls it: the object, the arguments, their number and a flag, names of arguments.
pub(crate) type Function = unsafe extern "C" fn(
    *mut PyObject,
    *const *mut PyObject,
    usize,
    *mut PyObject,
) -> *mut PyObject;

/// Of a class whose objects are called so (PEP 590); part of the limited interface from 3.12 on, in every version before.
const HAVE_VECTORCALL: std::ffi::c_ulong = 1 << 11;
/// The flag among the number of arguments.
const ARGUMENTS_OFFSET: usize = 1 << (usize::BITS - 1);

const NAME: &CStr = c"probing._probe.Callback";

#[repr(C)]
struct Callable {
    head: PyObject,
    function: Option<Function>,
}

/// How many arguments there are.
#[inline]
pub(crate) const fn count(with_flag: usize) -> usize {
    with_flag & !ARGUMENTS_OFFSET
}

/// Those that were made, by the addresses of their functions.
static MADE: GilCell<Vec<(usize, Immortal)>> = GilCell::new(Vec::new());

/// The object that calls a function, always the same one: the interpreter calls what was registered without a reference of its
/// own, so a thread may be in it while another takes it out.
pub(crate) fn callable(py: Python<'_>, function: Function) -> PyResult<Bound<'_, PyAny>> {
    let address = function as usize;
    let known = || {
        let made = MADE.borrow_mut(py);
        let known = made.iter().find(|(of, _)| *of == address);
        known.map(|(_, callable)| callable.bind(py).clone())
    };
    if let Some(known) = known() {
        return Ok(known);
    }
    let new = Immortal::new(new(py, function)?);
    // Making it may have run code of the program, which may have made it, too.
    Ok(known().unwrap_or_else(|| {
        let callable = new.bind(py).clone();
        MADE.borrow_mut(py).push((address, new));
        callable
    }))
}

fn new(py: Python<'_>, function: Function) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || class(py))?;
    // SAFETY: a class, whose objects have room for what is put there; it is zero before.
    unsafe {
        let object = ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0);
        let object = Bound::from_owned_ptr_or_err(py, object)?;
        (*object.as_ptr().cast::<Callable>()).function = Some(function);
        Ok(object)
    }
}

fn class(py: Python<'_>) -> PyResult<Py<PyAny>> {
    // SAFETY: the type of the function is not looked at: its address goes into a table.
    let call: Option<*mut c_void> = unsafe { found(c"PyVectorcall_Call") };
    let call = call.ok_or_else(|| PyRuntimeError::new_err("this Python cannot call directly"))?;
    let mut members = [
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: offset_of!(Callable, function) as ffi::Py_ssize_t,
            flags: ffi::Py_READONLY,
            doc: std::ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ];
    let mut slots = [
        ffi::PyType_Slot {
            slot: ffi::Py_tp_members,
            pfunc: (&raw mut members).cast(),
        },
        ffi::PyType_Slot {
            slot: ffi::Py_tp_call,
            pfunc: call,
        },
        ffi::PyType_Slot {
            slot: 0,
            pfunc: std::ptr::null_mut(),
        },
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT | HAVE_VECTORCALL | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    let mut spec = ffi::PyType_Spec {
        name: NAME.as_ptr(),
        basicsize: size_of::<Callable>() as c_int,
        itemsize: 0,
        flags: flags as std::ffi::c_uint,
        slots: (&raw mut slots).cast(),
    };
    // SAFETY: all of it is as the interpreter wants it, and is copied, but for the name, which is static.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)) }
        .map(Bound::unbind)
}
