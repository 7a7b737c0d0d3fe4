//! Integers of Python, read in place without a call.
//!
//! Whole numbers of Python's, read where they are: a watched variable is looked at each time it is written, a
//! condition each time its line is passed, and half of what there is to do is a call that asks for a number.
#![expect(unsafe_code, reason = "reads the memory of numbers")]

use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

/// After the head of an object: how many digits there are and of which sign, and the first of them.
const SIZE: usize = 16;
const DIGIT: usize = 24;
/// From 3.12 on: a tag that is less is that of a number of one digit or none.
const MANY_DIGITS: usize = 2 << 3;
const SIGN: usize = 3;

/// How a Python says how many digits a number has, and of which sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// From 3.12 on.
    Tag,
    /// Before: a number whose sign is that of the whole.
    Signed,
    Unknown,
}

/// What an `int` is, and only an `int` (not a `bool`, nor one of a class of its own), if that takes 64 bits.
#[inline]
pub(crate) fn read_int(number: &Bound<'_, PyAny>) -> Option<i64> {
    // SAFETY: a number of Python's own, alive, and laid out as was seen.
    let short = unsafe { short(number.as_ptr(), layout(number.py())) };
    short.or_else(|| asked(number))
}

/// A number of one digit or none.
///
/// # Safety
///
/// A number of Python's own, alive, of a Python that lays it out so.
#[inline]
unsafe fn short(number: *mut PyObject, layout: Layout) -> Option<i64> {
    // SAFETY: a live number of the layout that the caller knows; one that is not 0 has a digit.
    let digit = || i64::from(unsafe { number.byte_add(DIGIT).cast::<u32>().read() });
    // SAFETY: a live number of the layout that the caller knows: its size stands before its digits.
    let size = unsafe { number.byte_add(SIZE).cast::<usize>().read() };
    match layout {
        Layout::Tag if size < MANY_DIGITS => Some((1 - (size & SIGN) as i64) * digit()),
        Layout::Signed => match size.cast_signed() {
            0 => Some(0),
            sign @ (1 | -1) => Some(sign as i64 * digit()),
            _ => None,
        },
        _ => None,
    }
}

#[inline(never)]
fn asked(number: &Bound<'_, PyAny>) -> Option<i64> {
    let mut overflow = 0;
    // SAFETY: a number of Python's own, and the GIL is held.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(number.as_ptr(), &raw mut overflow) };
    (overflow == 0).then_some(value)
}

/// How numbers are laid out: seen once, by numbers that are known.
#[inline]
fn layout(py: Python<'_>) -> Layout {
    static LAYOUT: OnceLock<Layout> = OnceLock::new();
    *LAYOUT.get_or_init(|| {
        let layout = if py.version_info() >= (3, 12) {
            Layout::Tag
        } else {
            Layout::Signed
        };
        let is_right = |known: i32| {
            let Ok(number) = known.into_pyobject(py);
            // SAFETY: a number of Python's own; its size is that of its head and one digit at least, as it is not 0.
            unsafe { short(number.as_ptr(), layout) == Some(i64::from(known)) }
        };
        let known = [1, -1, 300, -70_000, (1 << 30) - 1];
        if known.into_iter().all(is_right) {
            layout
        } else {
            Layout::Unknown
        }
    })
}
