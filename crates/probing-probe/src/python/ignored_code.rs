//! Code that nobody wants to know of: what begins without having to tell is asked once, and passed by from then on.
//!
//! For Pythons before 3.12, whose threads tell of all that they call; later ones are told to be silent.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use pyo3::prelude::*;

use crate::breakpoints::Address;
use crate::python::call::release;
use crate::python::gil_cell::GilCell;

/// So many are known at a time.
const MAX: usize = 20_000;

type Codes = HashMap<usize, Py<PyAny>, BuildHasherDefault<Address>>;

/// Reached with the GIL held only. Each is kept alive, so that its address stays its own.
pub(crate) struct IgnoredCode(GilCell<Codes>);

impl IgnoredCode {
    pub(crate) const fn new() -> Self {
        Self(GilCell::new(
            HashMap::with_hasher(BuildHasherDefault::new()),
        ))
    }

    /// Whether it is known to be nobody's.
    #[inline]
    pub(crate) fn know(&self, py: Python<'_>, code: usize) -> bool {
        self.0
            .try_borrow_mut(py)
            .is_some_and(|codes| codes.contains_key(&code))
    }

    pub(crate) fn add(&self, code: Bound<'_, PyAny>) {
        let py = code.py();
        let forgotten = self.0.try_borrow_mut(py).map(|mut codes| {
            let too_many = codes.len() >= MAX;
            let forgotten = too_many.then(|| std::mem::take(&mut *codes));
            let before = codes.insert(code.as_ptr() as usize, code.unbind());
            (forgotten, before)
        });
        if let Some((codes, before)) = forgotten {
            let codes = codes.into_iter().flat_map(Codes::into_values);
            codes
                .chain(before)
                .for_each(|code| release(code.into_bound(py)));
        }
    }

    /// Has all code be asked again.
    pub(crate) fn forget(&self, py: Python<'_>) {
        let forgotten = self
            .0
            .try_borrow_mut(py)
            .map(|mut codes| std::mem::take(&mut *codes));
        let forgotten = forgotten.into_iter().flat_map(Codes::into_values);
        forgotten.for_each(|code| release(code.into_bound(py)));
    }
}
