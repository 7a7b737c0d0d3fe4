//! Variables of a running function without a trace of the reading.
//!
//! Before 3.13, `frame.f_locals` fills a dictionary that stays with the frame: what was in a variable then would live
//! until the function ends, be it a gigabyte. So the slots of the frame are read instead. Where they are follows from
//! the size of a frame object; that it is right is seen by the code object beside them.
#![expect(unsafe_code, reason = "reads the memory of frame objects")]

use std::sync::OnceLock;

use pyo3::Borrowed;
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
    /// Bits of what is there that belong to no address.
    tags: usize,
}

static LAYOUTS: [((u8, u8), Layout); 5] = [
    (
        (3, 10),
        Layout {
            frame_size: 360,
            inner: None,
            code: 32,
            slots: 352,
            tags: 0,
        },
    ),
    (
        (3, 11),
        Layout {
            frame_size: 120,
            inner: Some(24),
            code: 32,
            slots: 72,
            tags: 0,
        },
    ),
    (
        (3, 12),
        Layout {
            frame_size: 120,
            inner: Some(24),
            code: 0,
            slots: 72,
            tags: 0,
        },
    ),
    (
        (3, 13),
        Layout {
            frame_size: 136,
            inner: Some(24),
            code: 0,
            slots: 72,
            tags: 0,
        },
    ),
    (
        (3, 14),
        Layout {
            frame_size: 152,
            inner: Some(24),
            code: 0,
            slots: 80,
            tags: 3,
        },
    ),
];

/// From then on `frame.f_locals` leaves nothing behind.
const HAS_VIEWS: (u8, u8) = (3, 13);

/// This Python is not laid out as we know it.
#[derive(Debug)]
pub(crate) struct UnknownLayout;

/// What one slot of a function's frame holds.
#[inline]
pub(super) fn read_slot<'py>(
    frame: &Bound<'py, PyAny>,
    code: usize,
    index: usize,
) -> Result<Option<Bound<'py, PyAny>>, UnknownLayout> {
    let known = layout(frame).ok().flatten().ok_or(UnknownLayout)?;
    let inner = known.frame_of(frame, code).ok_or(UnknownLayout)?;
    Ok(known.slot(frame.py(), inner, index))
}

/// The same, borrowed from the frame.
#[inline]
pub(super) fn read_slot_borrowed<'a, 'py>(
    frame: &'a Bound<'py, PyAny>,
    code: usize,
    index: usize,
) -> Option<Borrowed<'a, 'py, PyAny>> {
    let known = layout(frame).ok().flatten()?;
    let inner = known.frame_of(frame, code)?;
    // SAFETY: null or a living object, as for [`Layout::slot`]; it stays while the frame, which is borrowed, does not go on.
    unsafe { Borrowed::from_ptr_or_opt(frame.py(), known.held(inner, index)) }
}

/// What the first `count` slots of a function's frame hold. `None`: this Python is not laid out as we know it.
pub(super) fn read<'py>(
    frame: &Bound<'py, PyAny>,
    code: &Bound<'py, PyAny>,
    count: usize,
) -> PyResult<Option<Vec<Option<Bound<'py, PyAny>>>>> {
    let py = frame.py();
    let version = py.version_info();
    let has_views = (version.major, version.minor) >= HAS_VIEWS;
    let Some(layout) = layout(frame)?.filter(|_| !has_views) else {
        return Ok(None);
    };
    let inner = layout.frame_of(frame, code.as_ptr() as usize);
    Ok(inner.map(|inner| {
        (0..count)
            .map(|index| layout.slot(py, inner, index))
            .collect()
    }))
}

impl Layout {
    /// The address of the frame itself, if it runs this code.
    fn frame_of(&self, frame: &Bound<'_, PyAny>, code: usize) -> Option<usize> {
        let object = frame.as_ptr() as usize;
        let inner = self.inner.map_or(object, |at| word(object + at));
        (inner != 0 && word(inner + self.code) & !self.tags == code).then_some(inner)
    }

    #[inline]
    fn held(&self, inner: usize, index: usize) -> *mut ffi::PyObject {
        let held = word(inner + self.slots + index * POINTER) & !self.tags;
        std::ptr::with_exposed_provenance_mut(held)
    }

    fn slot<'py>(&self, py: Python<'py>, inner: usize, index: usize) -> Option<Bound<'py, PyAny>> {
        let held = self.held(inner, index);
        // SAFETY: a slot holds null or a reference to a living object; the GIL is held, so it stays until we have
        // our own. The code object, which is the frame's as seen above, has as many of them as is asked for.
        unsafe { Bound::from_borrowed_ptr_or_opt(py, held) }
    }
}

fn word(address: usize) -> usize {
    // SAFETY: an address of a pointer in the frame object, whose size was checked by `layout`, or in the frame that it
    // points to, which lives as long as the object does and does not change while the GIL is held.
    unsafe { *std::ptr::with_exposed_provenance::<usize>(address) }
}

/// That of this Python, if it is one we know; looked for once.
#[inline]
fn layout(frame: &Bound<'_, PyAny>) -> PyResult<Option<&'static Layout>> {
    match LAYOUT.get() {
        Some(layout) => Ok(*layout),
        None => look_for_layout(frame),
    }
}

static LAYOUT: OnceLock<Option<&'static Layout>> = OnceLock::new();

#[cold]
fn look_for_layout(frame: &Bound<'_, PyAny>) -> PyResult<Option<&'static Layout>> {
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
