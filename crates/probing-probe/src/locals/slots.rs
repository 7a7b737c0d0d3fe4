//! Variables of a running function without a trace of the reading.
//!
//! Before 3.13, `frame.f_locals` fills a dictionary that stays with the frame: what was in a variable then would live
//! until the function ends, be it a gigabyte. So the slots of the frame are read instead. Where they are follows from
//! the size of a frame object; that it is right is seen by the code object beside them.
#![expect(unsafe_code, reason = "reads the memory of frame objects")]

use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;

/// Of an object that does not trace its references.
const OBJECT: usize = 16;
const POINTER: usize = 8;

/// Where a version has what we need.
struct Layout {
    /// `sys._getframe().__class__.__basicsize__`
    frame_size: usize,
    /// In a frame object: the address of the frame itself. Before 3.11 they are one.
    inner: Option<usize>,
    /// In the frame.
    code: usize,
    slots: usize,
}

static LAYOUTS: [((u8, u8), Layout); 3] = [
    (
        (3, 10),
        Layout {
            frame_size: 360,
            inner: None,
            code: 32,
            slots: 352,
        },
    ),
    (
        (3, 11),
        Layout {
            frame_size: 120,
            inner: Some(24),
            code: 32,
            slots: 72,
        },
    ),
    (
        (3, 12),
        Layout {
            frame_size: 120,
            inner: Some(24),
            code: 0,
            slots: 72,
        },
    ),
];

/// What the first `count` slots of a function's frame hold. `None`: this Python is not laid out as we know it.
pub(super) fn read<'py>(
    frame: &Bound<'py, PyAny>,
    code: &Bound<'py, PyAny>,
    count: usize,
) -> PyResult<Option<Vec<Option<Bound<'py, PyAny>>>>> {
    let py = frame.py();
    let Some(layout) = layout(frame)? else {
        return Ok(None);
    };
    let object = frame.as_ptr() as usize;
    let word = |address: usize| {
        // SAFETY: an address of a pointer in the frame object, whose size was checked above, or in the frame that it
        // points to, which lives as long as the object does and does not change while the GIL is held.
        unsafe { *std::ptr::with_exposed_provenance::<usize>(address) }
    };
    let inner = layout.inner.map_or(object, |at| word(object + at));
    if inner == 0 || word(inner + layout.code) != code.as_ptr() as usize {
        return Ok(None);
    }
    let slot = |index: usize| {
        let held = word(inner + layout.slots + index * POINTER);
        let held = std::ptr::with_exposed_provenance_mut::<ffi::PyObject>(held);
        // SAFETY: a slot holds null or a reference to a living object; the GIL is held, so it stays until we have
        // our own. The code object, which is the frame's as seen above, has at least `count` of them.
        unsafe { Bound::from_borrowed_ptr_or_opt(py, held) }
    };
    Ok(Some((0..count).map(slot).collect()))
}

/// That of this Python, if it is one we know; looked for once.
fn layout(frame: &Bound<'_, PyAny>) -> PyResult<Option<&'static Layout>> {
    static LAYOUT: OnceLock<Option<&'static Layout>> = OnceLock::new();
    if let Some(layout) = LAYOUT.get() {
        return Ok(*layout);
    }
    let py = frame.py();
    let version = py.version_info();
    let size = |kind: &Bound<'_, PyAny>| kind.getattr("__basicsize__")?.extract::<usize>();
    let frame_size = size(frame.get_type().as_any())?;
    let object_size = size(py.get_type::<PyAny>().as_any())?;
    let known = LAYOUTS.iter().find(|(known, layout)| {
        *known == (version.major, version.minor)
            && (layout.frame_size, OBJECT) == (frame_size, object_size)
    });
    Ok(*LAYOUT.get_or_init(|| known.map(|(_, layout)| layout)))
}
