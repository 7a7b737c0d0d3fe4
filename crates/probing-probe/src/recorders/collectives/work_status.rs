//! What has become of an operation, from torch's own work.
//!
//! Python's way to a work and to its future takes 1.5 µs, for which torch makes an object for each, and a list of tensors. So
//! the address of the work is read from what torch gives to a hook, and believed for as long as the attributes, which are
//! asked for now and then, say the same. It is asked by the two functions of torch's that an attribute would call.
#![expect(
    unsafe_code,
    reason = "reads a structure of torch's, and calls functions of C++"
)]

use std::ffi::c_void;
use std::mem::{ManuallyDrop, transmute};
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::call::release;
use crate::python::interned::interned;
use crate::recorders::collectives::prehook_args::{SIZE, function};
use crate::recording::Outcome;

/// Of how many operations one is asked for all the same.
const EVERY: u32 = 1024;
/// Among so many virtual functions of a work those that we call are looked for; it has more.
const VIRTUAL: usize = 12;

/// An object of torch's that has a work, and by that the tensors of an operation. It is let go at once when it is dropped:
/// `pyo3`, which does not know that torch has the GIL when it calls a hook, would keep it until somebody else comes by.
pub(crate) struct WorkObject(ManuallyDrop<Py<PyAny>>);

impl WorkObject {
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> Self {
        Self(ManuallyDrop::new(object.clone().unbind()))
    }

    pub(crate) fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.0.bind(py)
    }
}

impl Drop for WorkObject {
    fn drop(&mut self) {
        // SAFETY: it is dropped once, and only where operations are reached: with the GIL held.
        let object = unsafe {
            let py = Python::assume_attached();
            ManuallyDrop::take(&mut self.0).into_bound(py)
        };
        release(object);
    }
}

/// How many hold an object.
pub(crate) fn references(object: &Bound<'_, PyAny>) -> isize {
    // SAFETY: a live object.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }
}

/// Whether the structure is believed.
pub(crate) struct WorkReader {
    is_believed: bool,
    is_compared: bool,
    since: u32,
    functions: Option<Functions>,
    /// Those of a class of works that has ours among them.
    known: Option<NonNull<usize>>,
}

/// `c10d::PostHookArgs`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PostHookArgs {
    op: u8,
    is_async: u8,
    work: Option<NonNull<Work>>,
    id: i64,
}

/// `c10d::Work`: first of all, where its virtual functions are.
#[repr(C)]
struct Work {
    functions: NonNull<usize>,
}

/// A method of works that takes nothing more.
type WorkQuery = unsafe extern "C" fn(NonNull<Work>) -> bool;

#[derive(Clone, Copy)]
struct Functions {
    is_completed: WorkQuery,
    is_success: WorkQuery,
}

/// A work that can be asked, for as long as what torch gave lives.
#[derive(Clone, Copy)]
pub(crate) struct WorkHandle {
    work: NonNull<Work>,
    functions: Functions,
}

// SAFETY: `known` is an address in torch's code, read and compared with the GIL held.
unsafe impl Send for WorkReader {}
// SAFETY: torch's works may be asked by any thread: it asks them from its own, too.
unsafe impl Send for WorkHandle {}

impl WorkReader {
    /// `size` is that of the objects that hooks before an operation are given.
    pub(crate) fn new(size: usize) -> Self {
        Self {
            is_believed: size == SIZE,
            is_compared: false,
            since: 0,
            functions: Functions::found(),
            known: None,
        }
    }

    /// Whether the attributes are to be asked for first, with [`is_as_told`].
    pub(crate) fn wants_comparison(&mut self) -> bool {
        self.since += 1;
        let is_sure = self.is_compared && self.since < EVERY;
        self.is_believed && self.functions.is_some() && !is_sure
    }

    pub(crate) fn compared(&mut self, is_as_told: bool) {
        (self.is_compared, self.since) = (true, 0);
        self.is_believed &= is_as_told;
    }

    /// The work of an operation that was issued. `None` where Python is to be asked.
    pub(crate) fn of(&mut self, given: &Bound<'_, PyAny>) -> Option<WorkHandle> {
        if !self.is_believed || !self.is_compared {
            return None;
        }
        let functions = self.functions?;
        let work = value_of::<PostHookArgs>(given)?.work?;
        // SAFETY: a live work, which what torch gave holds. Its class has virtual functions.
        let there = unsafe { work.read().functions };
        if self.known != Some(there) {
            functions
                .are_among(there)
                .then(|| self.known = Some(there))?;
        }
        Some(WorkHandle { work, functions })
    }
}

impl WorkHandle {
    pub(crate) fn outcome(self) -> Outcome {
        // SAFETY: a live work: whoever has this holds what torch gave, too. Both are what its class has for these virtual
        // functions, look at it under its own lock, and throw nothing.
        unsafe {
            if !(self.functions.is_completed)(self.work) {
                Outcome::Enqueued
            } else if (self.functions.is_success)(self.work) {
                Outcome::Completed
            } else {
                Outcome::Failed
            }
        }
    }
}

impl Functions {
    fn found() -> Option<Self> {
        // SAFETY: methods, by the names that C++ gives them, which have their types in them: `bool isCompleted()` and
        // `bool isSuccess() const`. A method takes its object as a function its first argument.
        unsafe {
            Some(Self {
                is_completed: transmute::<NonNull<c_void>, WorkQuery>(function(
                    c"_ZN4c10d4Work11isCompletedEv",
                )?),
                is_success: transmute::<NonNull<c_void>, WorkQuery>(function(
                    c"_ZNK4c10d4Work9isSuccessEv",
                )?),
            })
        }
    }

    /// Whether a class has these, and not others in their place: then they are what calling the virtual ones would call.
    fn are_among(self, virtual_functions: NonNull<usize>) -> bool {
        // SAFETY: a class of works has at least so many.
        let all = unsafe { virtual_functions.cast::<[usize; VIRTUAL]>().as_ref() };
        let ours = [self.is_completed as usize, self.is_success as usize];
        all.windows(2).any(|pair| pair == ours)
    }
}

/// Whether the structure says the same as the attributes; `None` for a work that is none of torch's own.
pub(crate) fn is_as_told(given: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    let py = given.py();
    let size = |object: &Bound<'_, PyAny>| -> PyResult<usize> {
        let size = object.get_type().getattr(interned!(py, "__basicsize__"))?;
        size.extract()
    };
    let work = given.getattr(interned!(py, "work"))?;
    if size(given)? != SIZE {
        return Ok(Some(false));
    }
    if work.is_none() || size(&work)? != SIZE {
        return Ok(None);
    }
    let id: i64 = given.getattr(interned!(py, "op_id"))?.extract()?;
    let is_async = given.getattr(interned!(py, "async_op"))?.is_truthy()?;
    let address = address_of(&work);
    let is_same = value_of::<PostHookArgs>(given).is_some_and(|told| {
        let work = told.work.map(NonNull::cast);
        let is_async = told.is_async == u8::from(is_async);
        told.id == id && is_async && work.is_some() && work == address
    });
    Ok(Some(is_same))
}

/// The address of the value of an object of pybind11's, of a class without bases.
fn address_of(object: &Bound<'_, PyAny>) -> Option<NonNull<c_void>> {
    // SAFETY: a live object, of a class of that size: behind the head is the address of its value.
    unsafe {
        object
            .as_ptr()
            .add(1)
            .cast::<Option<NonNull<c_void>>>()
            .read()
    }
}

fn value_of<T: Copy>(given: &Bound<'_, PyAny>) -> Option<T> {
    // SAFETY: what torch gives to a hook behind an operation has among its attributes two small numbers, a work and another
    // number, and so at least as many bytes as are read; any bytes are a value of what is read. It lives as long as the
    // object and is not written to.
    Some(unsafe { address_of(given)?.cast::<T>().read() })
}
