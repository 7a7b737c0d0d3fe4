//! Calls of `record` that have been seen before: which table they mean, and where their values go.
//!
//! Python passes the same two objects every time from the same line: the table's name and the tuple of keywords. We hold
//! both, so that nobody else can have their addresses.
#![expect(unsafe_code, reason = "looks at arguments as Python passes them")]

use probing_store::Value;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;

use crate::recording::tables::Tables;
use crate::recording::values::{Plain, fit, plain};

/// Lines that are remembered; a power of two.
const SITES: usize = 128;
/// Values of a row that need no memory from the heap.
const INLINE_VALUES: usize = 32;
/// A value whose column is not there: the table has as many as it may have, or has changed too often.
pub(super) const LEFT_OUT: u16 = u16::MAX;
/// A value whose column comes with the first value that is not `None`.
pub(super) const NO_COLUMN_YET: u16 = u16::MAX - 1;

#[derive(Debug, Default)]
pub(super) struct Sites {
    seen: Vec<Option<Site>>,
}

#[derive(Debug)]
pub(super) struct Site {
    pub(super) table: Py<PyAny>,
    pub(super) names: Py<PyAny>,
    pub(super) index: usize,
    pub(super) changes: u32,
    pub(super) places: Vec<u16>,
}

impl Sites {
    /// Remembers a line. Gives back what it takes the place of, to be let go of when our state is not in use.
    pub(super) fn remember(&mut self, site: Site) -> Option<Site> {
        if self.seen.is_empty() {
            self.seen.resize_with(SITES, || None);
        }
        let slot = slot(site.table.as_ptr(), site.names.as_ptr());
        self.seen[slot].replace(site)
    }
}

fn slot(table: *mut PyObject, names: *mut PyObject) -> usize {
    let mixed = (table as usize).wrapping_mul(31) ^ names as usize;
    (mixed >> 4 ^ mixed >> 12) % SITES
}

impl Tables {
    /// Appends a row from a line that has been seen before; false when it has not, or when something about it is new.
    ///
    /// # Safety
    ///
    /// The pointers are those of live objects, and the GIL is held.
    #[inline]
    pub(super) unsafe fn append_known(
        &mut self,
        table: *mut PyObject,
        names: *mut PyObject,
        objects: &[*mut PyObject],
    ) -> bool {
        let Self { sites, all, .. } = self;
        let Some(Some(site)) = sites.seen.get(slot(table, names)) else {
            return false;
        };
        if site.table.as_ptr() != table || site.names.as_ptr() != names {
            return false;
        }
        let Some(table) = all
            .get_mut(site.index)
            .filter(|table| table.changes == site.changes)
        else {
            return false;
        };
        let mut few = [Value::Null; INLINE_VALUES];
        let mut many = Vec::new();
        let values = if let Some(values) = few.get_mut(..table.kinds.len()) {
            values
        } else {
            many.resize(table.kinds.len(), Value::Null);
            &mut many[..]
        };
        for (&place, &object) in site.places.iter().zip(objects) {
            if place == LEFT_OUT {
                continue;
            }
            // SAFETY: as the caller says; the values are gone when this function returns.
            let plain = unsafe { plain(object) };
            if place == NO_COLUMN_YET {
                if plain == Plain::Null {
                    continue;
                }
                return false;
            }
            let (Some(slot), Some(&kind)) = (
                values.get_mut(place as usize),
                table.kinds.get(place as usize),
            ) else {
                return false;
            };
            match fit(plain, kind) {
                Ok(value) => *slot = value,
                Err(_) => return false,
            }
        }
        table.append(values)
    }
}
