//! Where code can be left and come back to, before Python 3.12: generators and coroutines.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::python::frame::{code_of, suspends};
use crate::python::interned::interned;

const YIELD_VALUE: u8 = 86;
/// Of 3.10.
const YIELD_FROM: u8 = 72;
/// Of 3.11; its argument is 0 where a function begins.
const RESUME: u8 = 151;

/// Whether a function begins, not a generator that goes on.
pub(crate) fn begins(frame: &Bound<'_, PyAny>, code: &Bound<'_, PyAny>) -> bool {
    if !suspends(code) {
        return true;
    }
    match instruction(frame, 0) {
        None => true,
        Some([opcode, argument]) => opcode == RESUME && argument == 0,
    }
}

/// Whether a generator or coroutine only yields.
pub(crate) fn is_left_for_now(frame: &Bound<'_, PyAny>) -> bool {
    let opcode = |ahead: usize| instruction(frame, ahead).map(|[opcode, _]| opcode);
    // One that yields from another is put before the instruction, to come to it again.
    suspends(&code_of(frame)) && (opcode(0) == Some(YIELD_VALUE) || opcode(2) == Some(YIELD_FROM))
}

/// Where code that can be left and come back to does so: known once, it need not be read each time.
pub(crate) struct YieldPoints {
    /// Where it is when it begins.
    first: i64,
    /// Where it is when it yields, in their order.
    places: Vec<i64>,
}

impl YieldPoints {
    /// `None`: it is not left before it ends.
    pub(crate) fn of(code: &Bound<'_, PyAny>) -> Option<Self> {
        if !suspends(code) {
            return None;
        }
        let bytes = code.getattr("co_code").ok()?;
        let bytes = bytes.cast::<PyBytes>().ok()?.as_bytes();
        let instructions = || (0i64..).step_by(2).zip(bytes.chunks_exact(2));
        let first = instructions().find(|(_, it)| it[0] == RESUME && it[1] == 0);
        let place = |(at, it): (i64, &[u8])| match it[0] {
            YIELD_VALUE => Some(at),
            YIELD_FROM => Some(at - 2),
            _ => None,
        };
        Some(Self {
            first: first.map_or(-1, |(at, _)| at),
            places: instructions().filter_map(place).collect(),
        })
    }

    pub(crate) fn begins(&self, frame: &Bound<'_, PyAny>) -> bool {
        place_of(frame).is_none_or(|at| at == self.first)
    }

    pub(crate) fn is_left_for_now(&self, frame: &Bound<'_, PyAny>) -> bool {
        place_of(frame).is_some_and(|at| self.places.binary_search(&at).is_ok())
    }
}

fn place_of(frame: &Bound<'_, PyAny>) -> Option<i64> {
    let at = frame.getattr(interned!(frame.py(), "f_lasti"));
    at.ok()?.extract().ok()
}

/// The instruction that a frame is at, or some bytes ahead; `None` before the first.
fn instruction(frame: &Bound<'_, PyAny>, ahead: usize) -> Option<[u8; 2]> {
    let at = usize::try_from(place_of(frame)?).ok()? + ahead;
    let code = code_of(frame).getattr("co_code").ok()?;
    let bytes = code.cast::<PyBytes>().ok()?.as_bytes();
    Some([*bytes.get(at)?, *bytes.get(at + 1)?])
}
