//! Whole numbers of Python's, read where they are: a watched variable is looked at each time it is written, and half of
//! what there is to do is a call that asks for its number.
#![expect(unsafe_code, reason = "reads the memory of numbers")]

use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

/// From 3.12 on: after the head of an object, how many digits there are and of which sign, and the first of them.
const TAG: usize = 16;
const DIGIT: usize = 24;
/// A tag that is less is that of a number of one digit or none.
const MANY_DIGITS: usize = 2 << 3;
const SIGN: usize = 3;

/// What an `int` is, and only an `int` (not a `bool`, nor one of a class of its own), if that takes 64 bits.
#[inline]
pub(super) fn of(number: &Bound<'_, PyAny>) -> Option<i64> {
    if are_known(number.py()) {
        // SAFETY: a number of Python's own, alive, and laid out as was seen.
        let (tag, digit) = unsafe { parts(number.as_ptr()) };
        if tag < MANY_DIGITS {
            return Some((1 - (tag & SIGN) as i64) * i64::from(digit));
        }
    }
    asked(number)
}

/// # Safety
///
/// A number of Python's own, alive, of a Python that lays it out as above.
#[inline]
unsafe fn parts(number: *mut PyObject) -> (usize, u32) {
    // SAFETY: the caller's.
    unsafe {
        (
            number.byte_add(TAG).cast::<usize>().read(),
            number.byte_add(DIGIT).cast::<u32>().read(),
        )
    }
}

#[inline(never)]
fn asked(number: &Bound<'_, PyAny>) -> Option<i64> {
    let mut overflow = 0;
    // SAFETY: a number of Python's own, and the GIL is held.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(number.as_ptr(), &raw mut overflow) };
    (overflow == 0).then_some(value)
}

/// Whether numbers are laid out as we know it: seen once, by numbers that are known.
#[inline]
fn are_known(py: Python<'_>) -> bool {
    static ARE: OnceLock<bool> = OnceLock::new();
    *ARE.get_or_init(|| {
        let is_right = |known: i32| {
            let Ok(number) = known.into_pyobject(py);
            // SAFETY: a number of Python's own; its size is that of its head and one digit at least.
            let (tag, digit) = unsafe { parts(number.as_ptr()) };
            let sign = known.signum();
            let expected = (usize::from(known != 0) << 3) | (1 - sign) as usize;
            // The bit between the two says something else in later versions.
            tag & !4 == expected && digit == known.unsigned_abs()
        };
        py.version_info() >= (3, 12)
            && [1, -1, 300, -70_000, (1 << 30) - 1]
                .into_iter()
                .all(is_right)
    })
}
