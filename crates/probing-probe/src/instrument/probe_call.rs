//! The call of the probe in instrumented code: a constant whose truth is asked for.
//!
//! What stands in code where it calls out: in a twin (`sites.rs`), and in what is put around a function that is
//! traced and can have none (`trace_instrument.rs`). A constant whose truth is asked for: that takes two
//! instructions and no call, so that a profiler of the program sees none, and is half the price of one. Where a
//! function ends, a site that is true is shown what it ends with, as if it were asked for an item.
#![expect(unsafe_code, reason = "a class whose truth is a bare C function")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem;
use std::ptr;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use crate::instrument::sites;
use crate::python::interned::interned;
use crate::python::signal_handlers;
use crate::trace;

/// As `codes.py` knows it.
const NAME: &CStr = c"probing._probe.Site";

/// Knows where it is.
#[repr(C)]
pub(crate) struct Site {
    head: PyObject,
    /// The code that it was made for; a reference.
    code: *mut PyObject,
    pub(crate) tells: CallEvent,
}

/// What a thread that comes to a site has come to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallEvent {
    /// The beginning of a function, and its first line.
    Start {
        line: u32,
    },
    Line {
        line: u32,
    },
    /// The same of a function that is followed line by line; points may be there, too.
    TracedLine {
        line: u32,
        has_points: bool,
    },
    /// What follows the write of a variable, at this offset of the code that the twin was made of.
    Write {
        offset: u32,
    },
    /// The beginning of a function that is traced, its return, and that it is left by an exception.
    Call,
    Return,
    Unwind,
}

impl Site {
    /// The address of the code that it was made for.
    #[inline]
    pub(crate) fn code(&self) -> usize {
        self.code as usize
    }
}

/// Makes one.
pub(crate) fn new<'py>(code: &Bound<'py, PyAny>, tells: CallEvent) -> PyResult<Bound<'py, PyAny>> {
    let py = code.py();
    let class = class(py)?;
    // SAFETY: a class whose objects are as large as a site; what was allocated is nobody else's yet.
    unsafe {
        let made = ffi::PyType_GenericAlloc(class.as_type_ptr(), 0);
        let made = Bound::from_owned_ptr_or_err(py, made)?;
        let site = &mut *made.as_ptr().cast::<Site>();
        site.code = code.clone().into_ptr();
        site.tells = tells;
        Ok(made)
    }
}

/// The code that one with sites was made for; any other is its own. Where there are some, one is its last constant.
pub(crate) fn own_code(code: Bound<'_, PyAny>) -> Bound<'_, PyAny> {
    let py = code.py();
    let Some(class) = CLASS.get(py) else {
        return code;
    };
    let last = || {
        let constants = code.getattr(interned!(py, "co_consts")).ok()?;
        let constants = constants.cast_into::<PyTuple>().ok()?;
        let last = constants.len().checked_sub(1)?;
        constants.get_item(last).ok()
    };
    match last().filter(|last| last.get_type().is(class)) {
        // SAFETY: a site, by its class; it has its code from the beginning on.
        Some(site) => unsafe { Bound::from_borrowed_ptr(py, (*site.as_ptr().cast::<Site>()).code) },
        None => code,
    }
}

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let class = CLASS.get_or_try_init(py, || made(py))?;
    Ok(class.bind(py))
}

static mut METHODS: [ffi::PyMethodDef; 2] = [
    ffi::PyMethodDef {
        ml_name: c"__reduce__".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunction: reduced,
        },
        ml_flags: ffi::METH_NOARGS,
        ml_doc: ptr::null(),
    },
    ffi::PyMethodDef::zeroed(),
];

static mut ATTRIBUTES: [ffi::PyGetSetDef; 2] = [
    ffi::PyGetSetDef {
        name: c"code".as_ptr(),
        get: Some(code),
        set: None,
        doc: ptr::null(),
        closure: ptr::null_mut(),
    },
    // SAFETY: all of it is pointers, which may be null: that ends the list.
    unsafe { mem::zeroed() },
];

fn made(py: Python<'_>) -> PyResult<Py<PyType>> {
    let slot = |slot, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut slots = [
        slot(ffi::Py_nb_bool, truth as ffi::inquiry as *mut c_void),
        slot(
            ffi::Py_mp_subscript,
            shown as ffi::binaryfunc as *mut c_void,
        ),
        slot(ffi::Py_tp_dealloc, forget as ffi::destructor as *mut c_void),
        slot(ffi::Py_tp_methods, (&raw mut METHODS).cast()),
        slot(ffi::Py_tp_getset, (&raw mut ATTRIBUTES).cast()),
        slot(0, ptr::null_mut()),
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    let mut spec = ffi::PyType_Spec {
        name: NAME.as_ptr(),
        basicsize: mem::size_of::<Site>() as c_int,
        itemsize: 0,
        flags: flags as c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the functions have the types of their slots; what the class keeps of all this is static.
    unsafe {
        let class = ffi::PyType_FromSpec(&raw mut spec);
        let class = Bound::from_owned_ptr_or_err(py, class)?;
        Ok(class.cast_into_unchecked::<PyType>().unbind())
    }
}

/// Whether more is to be done: a line is told once more, by a trace function, when the thread stops there; what a function ends
/// with is shown to who wants to see it.
///
/// # Safety
///
/// A site, of code that has come to it, with the GIL held.
unsafe extern "C" fn truth(site: *mut PyObject) -> c_int {
    // SAFETY: the interpreter asks with the GIL held, for the truth of a site that the instrumented code keeps alive.
    let (py, site) = unsafe { (Python::assume_attached(), &*site.cast::<Site>()) };
    let is_more = match site.tells {
        CallEvent::Call => trace::called(py, site.code()),
        CallEvent::Return => trace::returned(py, site.code()),
        CallEvent::Unwind => true,
        CallEvent::TracedLine { line, has_points } => {
            trace::at_line(py, site.code(), line);
            has_points && sites::reached(py, site)
        }
        _ => sites::reached(py, site),
    };
    // At the end of a function an exception of a handler would take the place of what it ends with.
    let may_raise = !matches!(site.tells, CallEvent::Return | CallEvent::Unwind);
    if may_raise && signal_handlers::may_wait() && !signal_handlers::run(py) {
        return -1;
    }
    c_int::from(is_more)
}

/// A function ends with this, which is given back.
///
/// # Safety
///
/// A site and an object, with the GIL held.
unsafe extern "C" fn shown(site: *mut PyObject, value: *mut PyObject) -> *mut PyObject {
    // SAFETY: a site that the instrumented code keeps alive and a live object, both borrowed; the GIL is held.
    let (site, value) = unsafe {
        let py = Python::assume_attached();
        (&*site.cast::<Site>(), Bound::from_borrowed_ptr(py, value))
    };
    match site.tells {
        CallEvent::Return => trace::left(site.code(), &value),
        CallEvent::Unwind => trace::unwound(site.code(), &value),
        _ => {}
    }
    value.into_ptr()
}

/// Whoever pickles a function by its code gets one in which nothing stands there: `bool()`, which is false.
///
/// # Safety
///
/// Called by the interpreter, with the GIL held.
unsafe extern "C" fn reduced(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    // SAFETY: the tuple takes over both references; the class of truth values lives as long as the interpreter.
    unsafe {
        let nothing = ffi::PyTuple_New(0);
        let class = (&raw mut ffi::PyBool_Type).cast::<PyObject>();
        let made = ffi::PyTuple_Pack(2, class, nothing);
        ffi::Py_XDECREF(nothing);
        made
    }
}

/// # Safety
///
/// A site, with the GIL held.
unsafe extern "C" fn code(site: *mut PyObject, _: *mut c_void) -> *mut PyObject {
    // SAFETY: the caller gives a live site, which has its code from the beginning on.
    unsafe { ffi::Py_NewRef((*site.cast::<Site>()).code) }
}

/// # Safety
///
/// A site that nobody has any more, with the GIL held.
unsafe extern "C" fn forget(site: *mut PyObject) {
    // SAFETY: the caller gives a site that nobody refers to any more. An object of such a class has a reference to it.
    unsafe {
        let class = ffi::Py_TYPE(site);
        let code = (*site.cast::<Site>()).code;
        let free = ffi::PyType_GetSlot(class, ffi::Py_tp_free);
        let free = mem::transmute::<*mut c_void, ffi::freefunc>(free);
        free(site.cast());
        ffi::Py_XDECREF(code);
        ffi::Py_DECREF(class.cast());
    }
}
