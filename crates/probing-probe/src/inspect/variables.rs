//! Variables of a frame that runs, found quickly: by the names of its code, or by those that a condition or a watch has.
#![expect(
    unsafe_code,
    reason = "frames are had by the functions of the C interface"
)]

use pyo3::Borrowed;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::inspect::locals;
use crate::python::frame::{code_of, is_function};
use crate::python::interned::interned;
use crate::python::symbols::symbols;

/// A local variable; `None` when it is not bound.
pub(crate) fn variable<'py>(
    frame: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    let py = frame.py();
    if let Some(frame_variable) = symbols().frame_variable {
        // SAFETY: a frame and a string; the GIL is held. Gives a new reference, or null with an exception.
        unsafe {
            let value = frame_variable(frame.as_ptr().cast(), name.as_ptr());
            if value.is_null() {
                ffi::PyErr_Clear();
            }
            return Bound::from_owned_ptr_or_opt(py, value);
        }
    }
    let name = name.to_str().ok()?;
    locals::variable(frame, &code_of(frame), name)
        .ok()
        .flatten()
}

/// The names of a code object's variables, by which those of its frames are found quickly.
#[derive(Debug)]
pub(crate) struct Names {
    code: usize,
    /// Its own, in the order of their slots.
    own: Vec<Py<PyString>>,
    /// Those that it shares with functions inside or around it.
    shared: Vec<Py<PyString>>,
}

impl Names {
    /// None of what is no function: there, names are in dictionaries.
    pub(crate) fn of(code: &Bound<'_, PyAny>) -> Self {
        let named = |attribute| {
            let tuple = code.getattr(attribute).ok();
            let tuple = tuple.and_then(|tuple| tuple.cast_into::<PyTuple>().ok());
            let names = tuple.into_iter().flatten();
            let names = names.filter_map(|name| Some(name.cast_into::<PyString>().ok()?.unbind()));
            names.collect::<Vec<_>>()
        };
        if !is_function(code) {
            return Self {
                code: 0,
                own: Vec::new(),
                shared: Vec::new(),
            };
        }
        let py = code.py();
        let mut shared = named(interned!(py, "co_cellvars"));
        shared.extend(named(interned!(py, "co_freevars")));
        Self {
            code: code.as_ptr() as usize,
            own: named(interned!(py, "co_varnames")),
            shared,
        }
    }

    /// The address of the code; 0 of what is no function.
    #[inline]
    pub(crate) fn code(&self) -> usize {
        self.code
    }

    /// Where a variable that is the function's alone is found. `name` is interned, as names of variables are.
    pub(crate) fn slot(&self, name: &Bound<'_, PyString>) -> Option<usize> {
        let is_it = |own: &Py<PyString>| own.is(name);
        let is_shared = self.shared.iter().any(is_it);
        self.own.iter().position(is_it).filter(|_| !is_shared)
    }

    /// The same of a frame that runs this code, as long as it does not go on; `None` also when it is not bound.
    #[inline]
    pub(crate) fn borrowed<'a, 'py>(
        &self,
        frame: &'a Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
    ) -> Option<Borrowed<'a, 'py, PyAny>> {
        locals::slot_borrowed(frame, self.code, self.slot(name)?)
    }

    /// A variable of a frame that runs this code. `name` is interned, as names of variables are.
    #[inline]
    pub(crate) fn variable<'py>(
        &self,
        frame: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
    ) -> Option<Bound<'py, PyAny>> {
        let is_it = |own: &Py<PyString>| own.is(name);
        if self.shared.iter().any(is_it) {
            return variable(frame, name);
        }
        let index = self.own.iter().position(is_it)?;
        locals::slot(frame, self.code, index).unwrap_or_else(|_| variable(frame, name))
    }
}
