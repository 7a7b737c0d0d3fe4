//! A tool of `sys.monitoring`, from Python 3.12 on: its number, its callbacks, and what it is told of.
//!
//! Stops and tracing are tools of their own: what one of them disables in a code object the other still hears of.
#![expect(unsafe_code, reason = "callbacks take arguments as Python passes them")]

mod callable;

use std::panic::{self, AssertUnwindSafe};
use std::sync::OnceLock;

use probing_proto::message::Failure;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::python::call::call;
use crate::python::symbols::symbols;
use crate::python::thread_state;

pub(crate) use self::callable::{Function, callable, count};

pub(crate) const NAME: &str = "sys.monitoring";

/// Those that nobody has reserved, and last one that hardly anybody uses.
const TOOLS: [u8; 3] = [4, 3, 5];

static DISABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Whether this Python has it.
pub(crate) fn is_there(py: Python<'_>) -> bool {
    // The version is a text that would be read each time.
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| py.version_info() >= (3, 12))
}

/// An event of the interpreter and the function that is told of it.
pub(crate) struct Callback {
    /// As `sys.monitoring.events` has it.
    pub(crate) event: &'static str,
    pub(crate) function: Function,
}

/// A tool that we are.
pub(crate) struct Tool {
    id: u8,
    /// The interpreter's own numbers, which differ from version to version, in the order of the callbacks.
    events: Vec<u32>,
    set_events: Py<PyAny>,
    set_local_events: Py<PyAny>,
    restart_events: Py<PyAny>,
    register: Py<PyAny>,
    free: Py<PyAny>,
}

impl Tool {
    /// Becomes one. Refused when others use up all numbers.
    pub(crate) fn claim(
        py: Python<'_>,
        name: &str,
        callbacks: &[Callback],
    ) -> Result<Self, Failure> {
        match Self::try_claim(py, name, callbacks) {
            Ok(Some(tool)) => Ok(tool),
            Ok(None) => Err(all_taken()),
            Err(error) => Err(refused(&error)),
        }
    }

    fn try_claim(py: Python<'_>, name: &str, callbacks: &[Callback]) -> PyResult<Option<Self>> {
        let monitoring = namespace(py)?;
        let function = |name: &str| monitoring.getattr(name);
        DISABLE.get_or_try_init(py, || function("DISABLE").map(Bound::unbind))?;
        let Some(id) = free_tool(&monitoring)? else {
            return Ok(None);
        };
        let numbers = function("events")?;
        let events = callbacks
            .iter()
            .map(|callback| numbers.getattr(callback.event)?.extract());
        let tool = Self {
            id,
            events: events.collect::<PyResult<_>>()?,
            set_events: function("set_events")?.unbind(),
            set_local_events: function("set_local_events")?.unbind(),
            restart_events: function("restart_events")?.unbind(),
            register: function("register_callback")?.unbind(),
            free: function("free_tool_id")?.unbind(),
        };
        call(&function("use_tool_id")?, (id, name))?;
        for (callback, event) in callbacks.iter().zip(&tool.events) {
            let function = callable(py, callback.function)?;
            call(tool.register.bind(py), (id, event, function))?;
        }
        Ok(Some(tool))
    }

    /// Ceases to be one. Local events must be gone by then: 3.12 leaves them. The callbacks live on: a thread may be in one.
    pub(crate) fn give_back(self, py: Python<'_>) -> PyResult<()> {
        call(self.set_events.bind(py), (self.id, 0u32))?;
        for event in &self.events {
            call(self.register.bind(py), (self.id, event, py.None()))?;
        }
        call(self.free.bind(py), (self.id,)).map(drop)
    }

    /// What can be asked of it without holding whatever it is kept in.
    pub(crate) fn ask(&self, py: Python<'_>) -> ToolHandle {
        ToolHandle {
            id: self.id,
            events: self.events.clone(),
            set_events: self.set_events.clone_ref(py),
            set_local_events: self.set_local_events.clone_ref(py),
            restart_events: self.restart_events.clone_ref(py),
        }
    }
}

/// A tool, taken out of its lock: what is asked of `sys.monitoring` may run code of the program.
pub(crate) struct ToolHandle {
    id: u8,
    events: Vec<u32>,
    set_events: Py<PyAny>,
    set_local_events: Py<PyAny>,
    restart_events: Py<PyAny>,
}

impl ToolHandle {
    /// Sets what is told everywhere: the places of the callbacks among those that were registered.
    pub(crate) fn everywhere(&self, py: Python<'_>, wanted: &[usize]) -> PyResult<()> {
        call(self.set_events.bind(py), (self.id, self.sum(wanted))).map(drop)
    }

    /// Sets what is told in a code object, and makes it tell again what was disabled.
    pub(crate) fn locally(&self, code: &Bound<'_, PyAny>, wanted: &[usize]) -> PyResult<()> {
        let set_local_events = self.set_local_events.bind(code.py());
        let events = self.sum(wanted);
        call(set_local_events, (self.id, code, 0u32))?;
        if events != 0 {
            call(set_local_events, (self.id, code, events))?;
        }
        Ok(())
    }

    /// The same, of what all code was asked, too, until just now: a place that was disabled then tells again only if it was
    /// asked nothing of that kind in between, but for something else.
    pub(crate) fn locally_anew(
        &self,
        code: &Bound<'_, PyAny>,
        wanted: &[usize],
        else_wanted: usize,
    ) -> PyResult<()> {
        self.locally(code, &[else_wanted])?;
        self.locally(code, wanted)
    }

    /// The same as [`Asked::locally`], also when others come later, for what is told of single instructions. Of each, Python notes who wants to know,
    /// but only from when two tools want the same of a code object, and forgets who had asked before (3.12 to 3.14): a watch
    /// would end where a profiler begins. So another tool asks, too, while ours does. Where none is free, that is how it is.
    pub(crate) fn locally_for_good(
        &self,
        code: &Bound<'_, PyAny>,
        wanted: &[usize],
    ) -> PyResult<()> {
        let py = code.py();
        let Ok(Some(other)) = Tool::try_claim(py, "probing beside itself", &[]) else {
            return self.locally(code, wanted);
        };
        let set_for_other = |events: u32| {
            let set_local_events = other.set_local_events.bind(py);
            call(set_local_events, (other.id, code, events)).map(drop)
        };
        let told = set_for_other(self.sum(wanted)).and_then(|()| self.locally(code, wanted));
        set_for_other(0)?;
        other.give_back(py)?;
        told
    }

    fn sum(&self, wanted: &[usize]) -> u32 {
        wanted.iter().map(|place| self.events[*place]).sum()
    }

    /// Makes all code tell again what was disabled, by anybody.
    pub(crate) fn restart(&self, py: Python<'_>) -> PyResult<()> {
        call(self.restart_events.bind(py), ()).map(drop)
    }
}

/// Runs code of ours in this thread of which nobody is told, neither we nor other tools: the program's watches and traces must not
/// make it slow.
pub(crate) fn unheard<T>(py: Python<'_>, code: impl FnOnce() -> T) -> T {
    let symbols = symbols();
    let (Some(enter), Some(leave)) = (symbols.enter_tracing, symbols.leave_tracing) else {
        return thread_state::untraced(py, code);
    };
    // SAFETY: the GIL is held, so this thread has a state, which stays while the thread runs `code`.
    let state = unsafe { ffi::PyThreadState_Get() };
    // SAFETY: the state is that of the calling thread.
    unsafe { enter(state) };
    let result = panic::catch_unwind(AssertUnwindSafe(code));
    // SAFETY: the state of the calling thread, which was entered above.
    unsafe { leave(state) };
    result.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// The line that a jump goes back to and does not leave: no `LINE` tells of a loop that is one line, as none is new.
///
/// # Safety
///
/// `code` is a code object, and the offsets are in it.
pub(crate) unsafe fn line_come_to_anew(code: *mut PyObject, from: u32, to: u32) -> Option<u32> {
    let line_at = symbols().line_at.filter(|_| to <= from)?;
    // SAFETY: the caller gives a code object and offsets that are in it.
    let line = |offset: u32| unsafe { line_at(code, offset.cast_signed()) };
    let line = Some(line(to)).filter(|to| *to == line(from));
    line.and_then(|line| u32::try_from(line).ok())
}

/// What a callback answers: to be told again, or never again of this place.
#[inline]
pub(crate) fn answer(py: Python<'_>, again: bool) -> *mut PyObject {
    if !again && let Some(disable) = DISABLE.get(py) {
        return disable.clone_ref(py).into_ptr();
    }
    // SAFETY: always there; and its references are not counted in any Python that has `sys.monitoring`.
    unsafe { ffi::Py_None() }
}

/// The number of a tool that nobody is, for something short: the caller claims and frees it.
pub(crate) fn short_tool(py: Python<'_>) -> Result<u8, Failure> {
    match namespace(py).and_then(|monitoring| free_tool(&monitoring)) {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(all_taken()),
        Err(error) => Err(refused(&error)),
    }
}

/// `sys.monitoring`. Not imported: a frame whose `__builtins__` are the program's own, as of named tuples, may have no `__import__`.
fn namespace(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the GIL is held and the name ends with NUL; borrowed, or null.
    let found = unsafe {
        let found = ffi::PySys_GetObject(c"monitoring".as_ptr());
        Bound::from_borrowed_ptr_or_opt(py, found)
    };
    found.ok_or_else(|| PyRuntimeError::new_err("sys has no monitoring"))
}

fn free_tool(monitoring: &Bound<'_, PyAny>) -> PyResult<Option<u8>> {
    let get_tool = monitoring.getattr("get_tool")?;
    for id in TOOLS {
        if call(&get_tool, (id,))?.is_none() {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

fn all_taken() -> Failure {
    Failure::new("no free tool id of sys.monitoring: the program's tools use all")
        .with_hint("try again when one of them has ended")
}

fn refused(error: &PyErr) -> Failure {
    Failure::new(format!("sys.monitoring refuses: {error}"))
}
