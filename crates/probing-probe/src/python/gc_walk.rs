//! Functions and generators of a code object on Python 3.10 and 3.11, found by the garbage collector.
//!
//! Only the garbage collector knows all functions and generators there are.
//!
//! `gc.get_referrers` looks at all objects at once, with the GIL held: a tenth of a second in a program with some million. So
//! its lists are walked here piece by piece, and others run in between. What marks the place meanwhile is an object of ours
//! in the lists: whatever is collected, moved to an older generation or made anew comes behind it.
#![expect(unsafe_code, reason = "walks the lists of the garbage collector")]

use std::ffi::{c_int, c_void};

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::python::gil_cell::GilCell;

/// Objects that are looked at before others may run: a millisecond or two where memory is slow.
const PIECE: usize = 20_000;

/// What the collector has before each object of its lists, and as their beginning: the next one, and the one before with
/// some bits.
const HEAD: usize = 16;
const PREVIOUS: usize = 8;
const BITS: usize = 3;
/// Each generation has such a beginning, and two numbers. Behind the last, a pointer to the first.
const GENERATION: usize = 24;
const THRESHOLD: usize = HEAD;
const GENERATIONS: usize = 3;
const TO_FIRST: usize = GENERATIONS * GENERATION;
/// What `gc.freeze` has put aside.
const FROZEN: usize = TO_FIRST + 8;

/// Gives, as often as there is more to look at, the functions and generators found in a piece that refer to some objects.
#[pyclass(frozen, module = "probing._probe")]
pub(crate) struct Walk {
    /// Kept by who walks.
    wanted: Vec<usize>,
    /// Classes of what is looked for.
    kinds: Vec<usize>,
    /// Where the lists begin, from the youngest on.
    lists: [usize; GENERATIONS + 1],
    at: GilCell<Option<GcCursor>>,
}

/// How far it has come.
struct GcCursor {
    /// The mark: an object of ours, in the list.
    mark: Py<PyList>,
    list: usize,
}

impl Walk {
    /// `None` where the lists are not what we know.
    pub(crate) fn new<'py>(
        wanted: &[Bound<'py, PyAny>],
        kinds: &Bound<'py, PyTuple>,
    ) -> Option<Self> {
        let py = kinds.py();
        let thresholds = py.import("gc").ok()?.call_method0("get_threshold").ok()?;
        let thresholds: [i32; GENERATIONS] = thresholds.extract().ok()?;
        let mark = PyList::empty(py);
        let own = head_of(mark.as_ptr() as usize);
        // What is made comes to the end of the youngest, whose beginning follows.
        let first = word(own);
        let is_known = word(first + PREVIOUS) & !BITS == own
            && word(first + TO_FIRST) == first
            && thresholds.iter().enumerate().all(|(place, threshold)| {
                word(first + place * GENERATION + THRESHOLD) as i32 == *threshold
            });
        let address = |kind: Bound<'py, PyAny>| kind.as_ptr() as usize;
        let walk = Self {
            wanted: wanted.iter().map(|it| it.as_ptr() as usize).collect(),
            kinds: kinds.iter().map(address).collect(),
            lists: [
                first,
                first + GENERATION,
                first + 2 * GENERATION,
                first + FROZEN,
            ],
            at: GilCell::new(None),
        };
        if !is_known {
            return None;
        }
        move_behind(own, first);
        *walk.at.borrow_mut(py) = Some(GcCursor {
            mark: mark.unbind(),
            list: 0,
        });
        Some(walk)
    }

    /// Looks at a piece; the objects found, and whether there is more. Nothing runs meanwhile.
    fn piece(&self, place: &mut GcCursor) -> (Vec<usize>, bool) {
        let mark = head_of(place.mark.as_ptr() as usize);
        let mut found = Vec::new();
        let mut at = mark;
        for _ in 0..PIECE {
            let next = word(at) & !BITS;
            if self.lists.contains(&next) {
                // The list may be an older one by now, with all that was behind the mark: that one is walked in its turn.
                place.list += 1;
                let Some(list) = self.lists.get(place.list) else {
                    return (found, false);
                };
                at = *list;
                continue;
            }
            at = next;
            if at != mark && self.is_wanted(at + HEAD) {
                found.push(at + HEAD);
            }
        }
        if at != mark {
            move_behind(mark, at);
        }
        (found, true)
    }

    fn is_wanted(&self, object: usize) -> bool {
        let object = std::ptr::with_exposed_provenance_mut::<PyObject>(object);
        // SAFETY: what is in the lists is alive, and has a class.
        let kind = unsafe { ffi::Py_TYPE(object) };
        if !self.kinds.contains(&(kind as usize)) {
            return false;
        }
        let mut search = Search {
            wanted: &self.wanted,
            is_found: false,
        };
        // SAFETY: functions and generators can be traversed, which calls for each object that they refer to, and does nothing
        // else; the class is one of Python's own.
        unsafe {
            let traverse = ffi::PyType_GetSlot(kind, ffi::Py_tp_traverse);
            if !traverse.is_null() {
                let traverse = std::mem::transmute::<*mut c_void, ffi::traverseproc>(traverse);
                traverse(object, visit, (&raw mut search).cast());
            }
        }
        search.is_found
    }
}

#[pymethods]
impl Walk {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(mut place) = self.at.try_borrow_mut(py).and_then(|mut at| at.take()) else {
            return Ok(None);
        };
        let (found, is_more) = self.piece(&mut place);
        let found: Vec<Bound<'py, PyAny>> = found
            .into_iter()
            .map(|object| {
                let object = std::ptr::with_exposed_provenance_mut(object);
                // SAFETY: alive time of the check, and nothing has run since.
                unsafe { Bound::from_borrowed_ptr(py, object) }
            })
            .collect();
        if is_more {
            *self.at.borrow_mut(py) = Some(place);
        }
        PyList::new(py, found).map(Some)
    }
}

struct Search<'a> {
    wanted: &'a [usize],
    is_found: bool,
}

/// # Safety
///
/// `search` is a [`Search`].
unsafe extern "C" fn visit(object: *mut PyObject, search: *mut c_void) -> c_int {
    // SAFETY: a `Search` that `is_wanted` has on its stack and uses for nothing else meanwhile.
    let search = unsafe { &mut *search.cast::<Search<'_>>() };
    search.is_found |= search.wanted.contains(&(object as usize));
    0
}

fn head_of(object: usize) -> usize {
    object - HEAD
}

/// Has a mark follow another object, or the beginning of a list.
fn move_behind(mark: usize, at: usize) {
    let (before, after) = (word(mark + PREVIOUS) & !BITS, word(mark));
    put(before, after);
    put(after + PREVIOUS, before | (word(after + PREVIOUS) & BITS));
    let next = word(at);
    put(mark, next);
    put(mark + PREVIOUS, at | (word(mark + PREVIOUS) & BITS));
    put(next + PREVIOUS, mark | (word(next + PREVIOUS) & BITS));
    put(at, mark);
}

fn word(address: usize) -> usize {
    // SAFETY: in a head of the collector's lists, which are whole while the GIL is held, or right behind the first of them, in
    // the interpreter's state.
    unsafe { *std::ptr::with_exposed_provenance::<usize>(address) }
}

fn put(address: usize, value: usize) {
    // SAFETY: in a head of the collector's lists, which nobody else reads or writes while the GIL is held.
    unsafe { *std::ptr::with_exposed_provenance_mut::<usize>(address) = value }
}
