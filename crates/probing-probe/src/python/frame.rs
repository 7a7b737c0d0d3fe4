//! A frame that runs, as the events of the interpreter meet it: its variables, its place, its callers.
#![expect(
    unsafe_code,
    reason = "frames are had by the functions of the C interface"
)]

use std::ffi::c_int;
use std::sync::OnceLock;

use probing_proto::message::breakpoints::SourceLocation;
use pyo3::Borrowed;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::python::interned::interned;
use crate::python::symbols::symbols;
use crate::python::text::text_of;

/// Of one stack.
const MAX_FRAMES: usize = 300;
/// `inspect.CO_OPTIMIZED`
const OPTIMIZED: u32 = 1;
/// `inspect.CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR`: code that can be left and come back to.
const SUSPENDS: u32 = 0x20 | 0x80 | 0x200;

/// The innermost frame of this thread that runs Python.
pub(crate) fn current(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    // SAFETY: the GIL is held; what comes back is a borrowed reference or null.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) }
}

/// The same, for a look that is over before the thread goes on.
#[inline]
pub(crate) fn current_borrowed(py: Python<'_>) -> Option<Borrowed<'_, '_, PyAny>> {
    // SAFETY: the GIL is held; the frame runs as long as its thread does not go on.
    unsafe { Borrowed::from_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) }
}

/// What a frame runs.
pub(crate) fn code_of<'py>(frame: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    // SAFETY: the object is a frame, as all that comes here; a frame always has code, and this gives a new reference to it.
    unsafe {
        Bound::from_owned_ptr(
            frame.py(),
            ffi::PyFrame_GetCode(frame.as_ptr().cast()).cast(),
        )
    }
}

pub(crate) fn line_of(frame: &Bound<'_, PyAny>) -> u32 {
    // SAFETY: the object is a frame, as all that comes here; its line is asked for without calling anything.
    let line = unsafe { ffi::PyFrame_GetLineNumber(frame.as_ptr().cast()) };
    line.max(0) as u32
}

pub(crate) fn caller_of<'py>(frame: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let outer = frame.getattr(interned!(frame.py(), "f_back")).ok()?;
    (!outer.is_none()).then_some(outer)
}

/// Whether it can be left and come back to.
pub(crate) fn suspends(code: &Bound<'_, PyAny>) -> bool {
    flags_of(code) & SUSPENDS != 0
}

/// Whether it is the code of a function, whose variables are no dictionary.
pub(crate) fn is_function(code: &Bound<'_, PyAny>) -> bool {
    flags_of(code) & OPTIMIZED != 0
}

fn flags_of(code: &Bound<'_, PyAny>) -> u32 {
    let flags = code.getattr(interned!(code.py(), "co_flags"));
    flags.and_then(|flags| flags.extract()).unwrap_or(0)
}

/// Where a frame is.
pub(crate) fn spot_of(frame: &Bound<'_, PyAny>) -> SourceLocation {
    spot_at(frame, None)
}

/// The same, when its line is known: to find out takes longer than all the rest.
pub(crate) fn spot_at(frame: &Bound<'_, PyAny>, line: Option<u32>) -> SourceLocation {
    let code = code_of(frame);
    SourceLocation {
        func: name_of(&code),
        file: file_of(&code),
        lineno: line.unwrap_or_else(|| line_of(frame)),
    }
}

/// Whether code knows its qualified name.
pub(crate) fn has_qualnames(py: Python<'_>) -> bool {
    // Asked once: to tell a version is to read it from a text.
    static HAS_QUALNAMES: OnceLock<bool> = OnceLock::new();
    *HAS_QUALNAMES.get_or_init(|| py.version_info() >= (3, 11))
}

/// The qualified name from 3.11 on.
pub(crate) fn name_of(code: &Bound<'_, PyAny>) -> String {
    let py = code.py();
    let name = if has_qualnames(py) {
        code.getattr(interned!(py, "co_qualname"))
    } else {
        code.getattr(interned!(py, "co_name"))
    };
    name.map(|name| text_of(&name)).unwrap_or_default()
}

pub(crate) fn file_of(code: &Bound<'_, PyAny>) -> String {
    let file = code.getattr(interned!(code.py(), "co_filename"));
    file.map(|file| text_of(&file)).unwrap_or_default()
}

/// The line of its name.
pub(crate) fn first_line_of(code: &Bound<'_, PyAny>) -> u32 {
    let line = code.getattr(interned!(code.py(), "co_firstlineno"));
    line.and_then(|line| line.extract()).unwrap_or(0)
}

/// A frame and those that led to it, innermost first.
pub(crate) fn stack<'py>(innermost: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let mut frames = vec![innermost.clone()];
    while frames.len() < MAX_FRAMES
        && let Some(outer) = frames.last().and_then(caller_of)
    {
        frames.push(outer);
    }
    frames
}

/// The first frame of the thread.
pub(crate) fn outermost<'py>(frame: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    let mut outermost = frame.clone();
    while let Some(outer) = caller_of(&outermost) {
        outermost = outer;
    }
    outermost
}

/// The names of the module that a frame's code belongs to.
pub(crate) fn globals<'py>(frame: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = frame.py();
    match symbols().frame_globals {
        // SAFETY: a frame, and the GIL is held. Gives a new reference.
        Some(globals) => unsafe {
            Bound::from_owned_ptr_or_err(py, globals(frame.as_ptr().cast()))
        },
        None => frame.getattr(interned!(py, "f_globals")),
    }
}

/// A global variable, as code in this frame finds it; `None` for one that only the builtins have.
pub(crate) fn global<'py>(
    frame: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    let globals = globals(frame).ok()?;
    globals.cast::<PyDict>().ok()?.get_item(name).ok().flatten()
}

/// Before 3.13: makes what was assigned to `f_locals` the function's own.
pub(crate) fn take_over_locals(frame: &Bound<'_, PyAny>) {
    const DELETE_WHAT_IS_MISSING: c_int = 1;
    if frame.py().version_info() < (3, 13)
        && let Some(locals_to_fast) = symbols().locals_to_fast
    {
        // SAFETY: a frame, and the GIL is held; the frame stands still, as it is this thread's.
        unsafe { locals_to_fast(frame.as_ptr().cast(), DELETE_WHAT_IS_MISSING) };
    }
}
