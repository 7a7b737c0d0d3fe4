//! Callables that C++, the interpreter or another thread may hold: they are never freed, only silenced.
//!
//! A callable that was registered can be unregistered, but nobody can know who is just about to call it. torch's C++ and
//! `sys.monitoring` call what they find without a reference of their own, and a thread may wait for the GIL between finding a
//! callable and calling it. Therefore every callable that the probe registers anywhere is an [`Immortal`]: it is made once,
//! keeps one reference for good, and looks at a switch before it does anything. Switching on again uses the same objects, so
//! that nothing grows. What C++ keeps is not unregistered either: that would free the C++ object around the callable.
//!
//! clippy.toml refuses the functions of Python's that make callables everywhere else.
#![expect(unsafe_code, reason = "makes C functions that carry a number")]
#![expect(
    clippy::disallowed_methods,
    reason = "the one place in which callables are made that others hold"
)]

use std::ffi::CStr;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;

use pyo3::Borrowed;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use crate::process::fork_child;
use crate::process::per_process::PerProcess;
use crate::python::gil_cell::GilCell;

/// An object that is never freed: dropping this keeps its reference.
#[derive(Debug)]
pub(crate) struct Immortal(ManuallyDrop<Py<PyAny>>);

impl Immortal {
    pub(crate) fn new(object: Bound<'_, PyAny>) -> Self {
        Self(ManuallyDrop::new(object.unbind()))
    }

    /// A callable for a closure. Made once per process and kind: each call leaks one.
    pub(crate) fn closure(
        py: Python<'_>,
        name: &'static CStr,
        run: impl Fn(&Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> + Send + Sync + 'static,
    ) -> PyResult<Self> {
        let run = move |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| run(args);
        let made = PyCFunction::new_closure(py, Some(name), None, run)?;
        Ok(Self::new(made.into_any()))
    }

    pub(crate) fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.0.bind(py)
    }
}

/// A kind of hook: what happens when one of its callables is called.
pub(crate) trait Hook: 'static {
    /// What Python calls it.
    const NAME: &'static CStr;

    /// The switch before it: while it is off, a call does nothing.
    fn is_on() -> bool;

    /// The callable of this number was called with this.
    fn on_call(number: usize, given: &Bound<'_, PyAny>);
}

/// Callables of one kind, told apart by their numbers; each is made when it is first wanted.
pub(crate) struct Numbered<H> {
    definition: Definition,
    /// By their numbers. Those of a parent stay: whoever holds them in this child may call them.
    made: PerProcess<GilCell<Vec<Option<Immortal>>>>,
    kind: PhantomData<fn(H)>,
}

struct Definition(ffi::PyMethodDef);

// SAFETY: addresses of a function and of texts that are there for ever; nobody writes to it.
unsafe impl Sync for Definition {}

/// The part of a number that tells callables apart; the rest is of the process.
const NUMBER: u64 = u32::MAX as u64;

fn own_mark() -> u64 {
    u64::from(fork_child::generation()) << 32
}

impl<H: Hook> Numbered<H> {
    pub(crate) const fn new() -> Self {
        Self {
            definition: Definition(ffi::PyMethodDef {
                ml_name: H::NAME.as_ptr(),
                ml_meth: ffi::PyMethodDefPointer {
                    PyCFunction: called::<H>,
                },
                ml_flags: ffi::METH_O,
                ml_doc: c"".as_ptr(),
            }),
            made: PerProcess::new(),
            kind: PhantomData,
        }
    }

    /// The callable of this number, always the same one. In a child of a fork it is another: its parent's tell nothing there.
    pub(crate) fn get<'py>(
        &'static self,
        py: Python<'py>,
        number: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(known) = self.known(py, number) {
            return Ok(known);
        }
        let new = self.make(py, number)?;
        let made = self.made.get_or_init(|| GilCell::new(Vec::new()));
        let mut made = made.borrow_mut(py);
        if made.len() <= number {
            made.resize_with(number + 1, || None);
        }
        // Making one may have run code of the program, which may have made it, too.
        let one = made[number].get_or_insert(new);
        Ok(one.bind(py).clone())
    }

    fn known<'py>(&self, py: Python<'py>, number: usize) -> Option<Bound<'py, PyAny>> {
        let made = self.made.get()?.borrow_mut(py);
        let known = made.get(number)?.as_ref()?;
        Some(known.bind(py).clone())
    }

    fn make(&'static self, py: Python<'_>, number: usize) -> PyResult<Immortal> {
        let number = (own_mark() | number as u64).into_pyobject(py)?;
        let definition = (&raw const self.definition.0).cast_mut();
        // SAFETY: the definition is static and nobody changes it; the number is a live object; no module is needed.
        let function =
            unsafe { ffi::PyCFunction_NewEx(definition, number.as_ptr(), ptr::null_mut()) };
        // SAFETY: a new reference, or null with an exception set.
        let function = unsafe { Bound::from_owned_ptr_or_err(py, function)? };
        Ok(Immortal::new(function))
    }
}

/// # Safety
///
/// Called by the interpreter: with the number that the function was made with, and one argument.
unsafe extern "C" fn called<H: Hook>(number: *mut PyObject, given: *mut PyObject) -> *mut PyObject {
    let body = || {
        // SAFETY: a live integer, and whoever calls a function of Python has the GIL.
        let number = unsafe { ffi::PyLong_AsUnsignedLongLong(number) };
        // A child of a fork has its parent's hooks, and not what they are numbers of.
        if !H::is_on() || number & !NUMBER != own_mark() {
            return;
        }
        // SAFETY: the interpreter calls functions with the GIL held.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: a live object, for as long as the call lasts.
        let given: Borrowed<'_, '_, PyAny> = unsafe { Borrowed::from_ptr(py, given) };
        H::on_call((number & NUMBER) as usize, &given);
    };
    // No panic leaves the probe.
    drop(panic::catch_unwind(AssertUnwindSafe(body)));
    // SAFETY: the GIL is held.
    unsafe { ffi::Py_NewRef(ffi::Py_None()) }
}
