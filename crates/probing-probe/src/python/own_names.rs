//! What modules, classes and objects have, without running code of the program.
#![expect(
    unsafe_code,
    reason = "asks classes what they have, without asking the program"
)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use crate::python::symbols::symbols;

/// A module that is loaded; nothing is imported.
pub(crate) fn module<'py>(py: Python<'py>, name: &str) -> Option<Bound<'py, PyAny>> {
    named(py, &PyString::intern(py, name))
}

/// The same, by a name that is at hand.
pub(crate) fn named<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the GIL is held; a borrowed reference to a dictionary, or null.
    let modules: Bound<'_, PyAny> =
        unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) }?;
    modules.cast::<PyDict>().ok()?.get_item(name).ok()?
}

/// What a class or one of its bases has, without asking it.
pub(crate) fn of_type<'py>(
    class: &Bound<'py, PyType>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    let look_up = symbols().type_lookup?;
    // SAFETY: a class and a string that are alive, and the GIL is held. What comes back is borrowed, or null.
    unsafe {
        let found = look_up(class.as_type_ptr(), name.as_ptr());
        Bound::from_borrowed_ptr_or_opt(class.py(), found)
    }
}

/// The attributes of an object that are its own.
pub(crate) fn attributes<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    if object.is_instance_of::<PyType>() {
        return None;
    }
    // SAFETY: a live object, and the GIL is held. A new reference, or null with an exception.
    let found = unsafe {
        let found = ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut());
        if found.is_null() {
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(object.py(), found)
    };
    found?.cast_into().ok()
}

/// One of them. From 3.12 on Python makes a dictionary for who asks for all, and keeps it with the object.
pub(crate) fn own_attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    // What its class has of that name would come first, and may be code.
    let is_hidden = of_type(&object.get_type(), name).is_some();
    if is_hidden || symbols().type_lookup.is_none() {
        return attributes(object)?.get_item(name).ok()?;
    }
    // SAFETY: a live object and a string, and the GIL is held. A new reference, or null with an exception.
    unsafe {
        let found = ffi::PyObject_GenericGetAttr(object.as_ptr(), name.as_ptr());
        if found.is_null() {
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(object.py(), found)
    }
}
