//! The first argument of a call that runs, read from the frame itself: the module, or the arguments of a step.
//!
//! To ask the interpreter for a frame makes an object of it, which takes longer than all else that a call of a module costs
//! here. So it is read by offsets, once these were tried on frames that are known; where they are not right it is asked.
#![expect(unsafe_code, reason = "reads a frame by offsets")]

use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::inspect::variables;
use crate::python::call::call;
use crate::python::embedded;
use crate::python::frame;
use crate::python::immortal::Immortal;
use crate::recorders::memory::heap::Walk;

/// Functions whose first argument is a variable, and a cell.
const KNOWN: &str = "def plain(self, look):
    return look()

def shared(self, look):
    inner = lambda: self
    return look()

known = object()
cell = type((lambda shared: lambda: shared)(known).__closure__[0])
";

/// Frames around one that are looked at.
const MAX_FRAMES: usize = 100;

/// How it is read, where that is right.
static READ: OnceLock<Option<Read>> = OnceLock::new();

#[derive(Clone, Copy)]
struct Read {
    walk: Walk,
    /// The class of cells, by address: it is there for ever.
    cell: usize,
}

/// Tries it out, once.
pub(crate) fn prepare(py: Python<'_>) {
    if READ.get().is_none() {
        // Whoever was faster has found the same.
        READ.set(tried(py).unwrap_or(None)).ok();
    }
}

fn tried(py: Python<'_>) -> PyResult<Option<Read>> {
    let Some(walk) = Walk::here(py) else {
        return Ok(None);
    };
    let names = embedded::namespace_of(py, KNOWN, "<probing>")?.into_any();
    let cell = names.get_item("cell")?.as_ptr() as usize;
    let known = names.get_item("known")?;
    let read = Read { walk, cell };
    let look = Immortal::closure(py, c"look", move |args| {
        let py = args.py();
        let found = read.innermost(py);
        Ok(found.map_or_else(|| py.None(), |(module, _)| module.unbind()))
    })?;
    for name in ["plain", "shared"] {
        if !call(&names.get_item(name)?, (&known, look.bind(py)))?.is(&known) {
            return Ok(None);
        }
    }
    Ok(Some(read))
}

impl Read {
    /// The first argument of the innermost frame, and the frame, by address.
    #[inline]
    fn innermost(self, py: Python<'_>) -> Option<(Bound<'_, PyAny>, usize)> {
        // SAFETY: the GIL is held; what a running frame has as an argument is alive, and so is what a cell holds.
        unsafe {
            let (frame, first) = self.walk.first_argument(ffi::PyThreadState_Get())?;
            let is_cell = ffi::Py_TYPE(first) as usize == self.cell;
            let object = if is_cell { content(first) } else { first };
            Bound::from_borrowed_ptr_or_opt(py, object).map(|object| (object, frame))
        }
    }
}

/// The first argument, which has this name, and the frame that runs the call, by address: the innermost.
#[inline]
pub(crate) fn of_call<'py>(
    py: Python<'py>,
    name: impl FnOnce() -> &'py Bound<'py, PyString>,
) -> Option<(Bound<'py, PyAny>, usize)> {
    if let Some(Some(read)) = READ.get() {
        return read.innermost(py);
    }
    let frame = frame::current(py)?;
    let first = variables::variable(&frame, name())?;
    Some((first, frame.as_ptr() as usize))
}

/// The innermost frame, by the same address.
#[inline]
pub(crate) fn frame_of_call(py: Python<'_>) -> Option<usize> {
    if let Some(Some(read)) = READ.get() {
        // SAFETY: the GIL is held.
        let found = unsafe { read.walk.first_argument(ffi::PyThreadState_Get()) };
        return found.map(|(frame, _)| frame);
    }
    frame::current(py).map(|frame| frame.as_ptr() as usize)
}

/// Frames around the innermost one, by the same addresses.
pub(crate) fn frames_around(py: Python<'_>) -> Vec<usize> {
    let mut around = Vec::new();
    if let Some(Some(read)) = READ.get() {
        // SAFETY: the GIL is held.
        unsafe {
            read.walk.each(ffi::PyThreadState_Get(), |frame| {
                around.push(frame.address);
                around.len() <= MAX_FRAMES
            });
        }
        return around.split_off(1.min(around.len()));
    }
    frame::current(py).map_or(around, |frame| objects_around(&frame))
}

/// The same, where frames are objects.
pub(crate) fn objects_around(frame: &Bound<'_, PyAny>) -> Vec<usize> {
    let mut around = Vec::new();
    let mut next = frame::caller_of(frame);
    while let Some(current) = next.filter(|_| around.len() < MAX_FRAMES) {
        around.push(current.as_ptr() as usize);
        next = frame::caller_of(&current);
    }
    around
}

/// What a cell holds.
///
/// # Safety
///
/// A cell: behind the head of an object it has one pointer, which may be null.
unsafe fn content(cell: *mut PyObject) -> *mut PyObject {
    // SAFETY: as the caller says.
    unsafe { cell.add(1).cast::<*mut PyObject>().read() }
}
