//! The tracer as a tool of `sys.monitoring`: callbacks that find the taps of a code object and tell them.
#![expect(unsafe_code, reason = "callbacks take arguments as Python passes them")]

use std::ffi::CStr;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError};

use probing_proto::message::Failure;
use probing_store::monotonic_nanos;
use pyo3::Borrowed;
use pyo3::ffi::{self, Py_ssize_t, PyObject};
use pyo3::prelude::*;

use super::table::{Taps, table, table_if_free};
use super::tap::{At, Tap, Wants};
use crate::monitoring::{Asked, Callback, Tool};

/// What is told, and its places here.
const EVENTS: [&str; 6] = [
    "PY_START",
    "PY_RETURN",
    "PY_YIELD",
    "PY_RESUME",
    "PY_UNWIND",
    "PY_THROW",
];
const START: usize = 0;
const RETURN: usize = 1;
const YIELD: usize = 2;
const RESUME: usize = 3;
const UNWIND: usize = 4;
const THROW: usize = 5;

/// Callbacks, in the order of [`EVENTS`].
static mut CALLBACKS: [ffi::PyMethodDef; 6] = [
    method::<Start>(c"started"),
    method::<Return>(c"returned"),
    method::<Yield>(c"yielded"),
    method::<Resume>(c"resumed"),
    method::<Unwind>(c"unwound"),
    method::<Resume>(c"thrown_into"),
];

/// Ours, while something is tapped. Reached with the GIL held only.
static TOOL: Mutex<Option<Tool>> = Mutex::new(None);

const fn method<E: Event>(name: &'static CStr) -> ffi::PyMethodDef {
    ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFast: callback::<E>,
        },
        ml_flags: ffi::METH_FASTCALL,
        ml_doc: c"".as_ptr(),
    }
}

/// Becomes a tool, if it is none yet.
pub(super) fn claim(py: Python<'_>) -> Result<(), Failure> {
    if tool().is_some() {
        return Ok(());
    }
    let callbacks = EVENTS.iter().enumerate().map(|(place, event)| Callback {
        event,
        function: (&raw mut CALLBACKS)
            .cast::<ffi::PyMethodDef>()
            .wrapping_add(place),
    });
    let claimed = Tool::claim(py, "probing tracer", &callbacks.collect::<Vec<_>>())?;
    *tool() = Some(claimed);
    Ok(())
}

/// Ceases to be one, when nothing is tapped.
pub(super) fn release_if_idle(py: Python<'_>) {
    if table().is_empty()
        && let Some(claimed) = { tool().take() }
    {
        // What fails here is gone already.
        drop(claimed.give_back(py));
    }
}

/// Has a code object tell what is wanted of it now, and all others what only all together can be asked for.
pub(super) fn tell(code: &Bound<'_, PyAny>) {
    let py = code.py();
    let Some(tool) = asked(py) else {
        return;
    };
    let (here, wanted) = {
        let table = table();
        let here = table.entry(code.as_ptr() as usize);
        (
            here.map(super::table::Entry::wants).unwrap_or_default(),
            table.wants(),
        )
    };
    // It fails when the program has freed our number behind our back; then nothing is told any more.
    drop(tool.locally(code, &local(here)));
    let everywhere = [(Wants::UNWINDS, UNWIND), (Wants::YIELDS, THROW)]
        .iter()
        .filter(|(event, _)| wanted.has(*event))
        .map(|(_, event)| *event);
    drop(tool.everywhere(py, &everywhere.collect::<Vec<_>>()));
}

fn local(wants: Wants) -> Vec<usize> {
    let events = [
        (Wants::STARTS, START),
        (Wants::RETURNS, RETURN),
        (Wants::YIELDS, YIELD),
        (Wants::YIELDS, RESUME),
    ];
    let events = events.iter().filter(|(event, _)| wants.has(*event));
    events.map(|(_, event)| *event).collect()
}

fn tool() -> MutexGuard<'static, Option<Tool>> {
    TOOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tool, taken out of its lock.
fn asked(py: Python<'_>) -> Option<Asked> {
    tool().as_ref().map(|tool| tool.ask(py))
}

/// One kind of event, and how a tap is told of it. The value is what is returned or raised, where there is one.
trait Event {
    fn tell(tap: &dyn Tap, at: At<'_, '_>, value: Option<Borrowed<'_, '_, PyAny>>);
}

/// # Safety
///
/// Called by the interpreter, with the arguments of that event: a code object, an offset, and perhaps a value.
unsafe extern "C" fn callback<E: Event>(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: as the interpreter promises; the code lives as long as it runs.
    let address = unsafe { *arguments };
    let taps = table_if_free().and_then(|table| Some(table.entry(address as usize)?.taps));
    if let Some(taps) = taps {
        // SAFETY: the arguments are the caller's.
        unsafe { tell_all::<E>(&taps, arguments, count) };
    }
    // SAFETY: always there; and its references are not counted in any Python that has `sys.monitoring`.
    unsafe { ffi::Py_None() }
}

/// # Safety
///
/// As of [`callback`].
unsafe fn tell_all<E: Event>(taps: &Taps, arguments: *mut *mut PyObject, count: Py_ssize_t) {
    // SAFETY: the interpreter calls callbacks with the GIL held; a code object, and with three arguments a value.
    let (at, value) = unsafe {
        let py = Python::assume_attached();
        let at = At {
            code: Borrowed::from_ptr(py, *arguments),
            nanos: monotonic_nanos(),
        };
        let value = (count > 2).then(|| Borrowed::from_ptr(py, *arguments.add(2)));
        (at, value)
    };
    for tap in taps.iter().flatten() {
        // No panic leaves the probe.
        drop(panic::catch_unwind(AssertUnwindSafe(|| {
            E::tell(*tap, at, value);
        })));
    }
}

struct Start;

impl Event for Start {
    fn tell(tap: &dyn Tap, at: At<'_, '_>, _: Option<Borrowed<'_, '_, PyAny>>) {
        tap.started(at);
    }
}

struct Return;

impl Event for Return {
    fn tell(tap: &dyn Tap, at: At<'_, '_>, value: Option<Borrowed<'_, '_, PyAny>>) {
        if let Some(value) = value {
            tap.returned(at, value);
        }
    }
}

struct Yield;

impl Event for Yield {
    fn tell(tap: &dyn Tap, at: At<'_, '_>, _: Option<Borrowed<'_, '_, PyAny>>) {
        tap.yielded(at);
    }
}

struct Resume;

impl Event for Resume {
    fn tell(tap: &dyn Tap, at: At<'_, '_>, _: Option<Borrowed<'_, '_, PyAny>>) {
        tap.resumed(at);
    }
}

struct Unwind;

impl Event for Unwind {
    fn tell(tap: &dyn Tap, at: At<'_, '_>, exception: Option<Borrowed<'_, '_, PyAny>>) {
        if let Some(exception) = exception {
            tap.unwound(at, exception);
        }
    }
}
