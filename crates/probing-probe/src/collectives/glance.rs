//! Which operation it is, from what torch gives to a hook.
//!
//! To ask for the two attributes takes a microsecond, half of what recording may cost: torch makes an object for each. They
//! are the first two bytes of torch's own structure, so those are read, and believed for as long as the attributes, which
//! are asked for now and then, say the same.
#![expect(
    unsafe_code,
    reason = "reads the first bytes of a structure of torch's"
)]

use std::ptr::NonNull;

use pyo3::prelude::*;

use crate::guarded::call;
use crate::interned::interned;

/// `PyObject_HEAD`, a pointer to the value, one to its holder, one to weak references, and flags: what pybind11 makes of a
/// class that derives from nothing.
const SIZE: usize = 56;
/// Of how many operations one is asked for all the same.
const EVERY: u32 = 1024;

/// Whether the bytes are believed.
pub(super) struct Glance {
    is_believed: bool,
    /// Which first bytes were compared already.
    compared: [bool; 256],
    since: u32,
}

/// The number of the operation, and whether the caller goes on without it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) op: u8,
    pub(super) is_async: bool,
}

impl Glance {
    /// `size` is that of the objects that hooks are given.
    pub(super) fn new(size: usize) -> Self {
        Self {
            is_believed: size == SIZE,
            compared: [false; 256],
            since: 0,
        }
    }

    /// Without asking, where that is to be believed.
    pub(super) fn at(&mut self, given: &Bound<'_, PyAny>) -> Option<Told> {
        let seen = self.is_believed.then(|| bytes_of(given)).flatten()?;
        self.since += 1;
        (self.compared[usize::from(seen.op)] && self.since < EVERY).then_some(seen)
    }

    /// What the attributes say.
    pub(super) fn compare(&mut self, given: &Bound<'_, PyAny>, asked: Told) {
        self.since = 0;
        self.compared[usize::from(asked.op)] = true;
        self.is_believed = self.is_believed && bytes_of(given) == Some(asked);
    }
}

/// Asks torch.
pub(super) fn asked(given: &Bound<'_, PyAny>) -> PyResult<Told> {
    let py = given.py();
    let name = given.getattr(interned!(py, "name"))?;
    let number = call(&name.getattr(interned!(py, "__int__"))?, ())?;
    Ok(Told {
        op: number.extract()?,
        is_async: given.getattr(interned!(py, "async_op"))?.is_truthy()?,
    })
}

fn bytes_of(given: &Bound<'_, PyAny>) -> Option<Told> {
    // SAFETY: a live object of pybind11's, of a class without bases (by its size): behind the head is the address of its
    // value. That is a structure of several words, which lives as long as the object and is not written to.
    let [op, is_async] = unsafe {
        let head = given.as_ptr();
        let value = head.add(1).cast::<Option<NonNull<[u8; 2]>>>().read();
        value?.read()
    };
    (is_async <= 1).then_some(Told {
        op,
        is_async: is_async == 1,
    })
}
