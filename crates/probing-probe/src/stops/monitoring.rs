//! Python 3.12 and newer: `sys.monitoring` tells us, in exactly the code objects concerned.
//!
//! A place that has nothing for us is disabled when it is first met: from then on it costs nothing. Callbacks are bare
//! C functions: what they return is `None` or `DISABLE`, and no exception ever comes out of them.
#![expect(unsafe_code, reason = "callbacks take arguments as Python passes them")]

use std::ffi::CStr;
use std::panic::{self, AssertUnwindSafe};

use probing_proto::message::Failure;
use pyo3::ffi::{self, Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyAny;

use super::armed::{CodeArms, Met, armed, armed_if_free};
use super::events::{self, After};
use super::exceptions;
use super::frame;
use super::watches;
use crate::guarded::call;
use crate::interned::interned;

pub(super) const NAME: &str = "sys.monitoring";

/// Those that nobody has reserved, and last one that hardly anybody uses.
const TOOLS: [u8; 3] = [4, 3, 5];

/// The interpreter's own numbers, which differ from version to version.
struct Events {
    start: u32,
    resume: u32,
    return_: u32,
    line: u32,
    raise: u32,
    unwind: u32,
    instruction: u32,
}

/// What is told everywhere, not only in some code objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Everywhere {
    /// Functions that begin.
    Starts,
    /// Generators and coroutines that go on.
    Resumes,
    Raises,
    Unwinds,
    Lines,
}

/// `sys.monitoring`, as we have it.
struct Tool {
    id: u8,
    events: Events,
    set_events: Py<PyAny>,
    set_local_events: Py<PyAny>,
    restart_events: Py<PyAny>,
    register: Py<PyAny>,
    free: Py<PyAny>,
}

/// Ours, while something is armed. Reached with the GIL held only.
static TOOL: std::sync::Mutex<Option<Tool>> = std::sync::Mutex::new(None);
static DISABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Callbacks, in the order of [`Events::all`].
static mut CALLBACKS: [ffi::PyMethodDef; 7] = [
    method::<Start>(),
    method::<Resume>(),
    method::<End>(),
    method::<Line>(),
    method::<Raise>(),
    method::<End>(),
    method::<Instruction>(),
];

const fn method<T: Told>() -> ffi::PyMethodDef {
    ffi::PyMethodDef {
        ml_name: T::NAME.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFast: callback::<T>,
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
    match Tool::claim(py) {
        Ok(Some(claimed)) => {
            *tool() = Some(claimed);
            Ok(())
        }
        Ok(None) => Err(all_taken()),
        Err(error) => Err(Failure::new(format!("sys.monitoring refuses: {error}"))),
    }
}

/// The number of a tool that nobody is, for something short: the caller claims and frees it.
pub(crate) fn short_tool(py: Python<'_>) -> Result<u8, Failure> {
    let monitoring = py.import("sys").and_then(|sys| sys.getattr("monitoring"));
    match monitoring.and_then(|monitoring| free_tool(&monitoring)) {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(all_taken()),
        Err(error) => Err(Failure::new(format!("sys.monitoring refuses: {error}"))),
    }
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
    Failure::new("tools of the program use up all of sys.monitoring")
        .with_hint("try again when they have ended")
}

/// Ceases to be one. Local events must be gone by then: 3.12 leaves them.
pub(super) fn release(py: Python<'_>) {
    let Some(claimed) = tool().take() else {
        return;
    };
    // What fails here is gone already.
    drop(claimed.give_back(py));
}

/// Sets what is told everywhere.
pub(super) fn set_everywhere(py: Python<'_>, wanted: &[Everywhere]) -> PyResult<()> {
    let Some((id, set_events, events)) = with(py, |tool| {
        let own = &tool.events;
        let number = |event: &Everywhere| match event {
            Everywhere::Starts => own.start,
            Everywhere::Resumes => own.resume,
            Everywhere::Raises => own.raise,
            Everywhere::Unwinds => own.unwind,
            Everywhere::Lines => own.line,
        };
        (&tool.set_events, wanted.iter().map(number).sum())
    }) else {
        return Ok(());
    };
    call(&set_events, (id, events)).map(drop)
}

/// Sets what is told in a code object, and makes it tell again what was disabled.
pub(super) fn set_local(code: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = code.py();
    let Some((id, set_local_events, wanted)) = with(py, |tool| {
        let armed = armed();
        let arms = armed.code(code.as_ptr() as usize);
        let has = |is_wanted: fn(&CodeArms) -> bool| arms.is_some_and(is_wanted);
        let own = &tool.events;
        let events = [
            (has(|it| !it.lines.is_empty() || it.steppers > 0), own.line),
            (has(|it| !it.starts.is_empty()), own.start),
            (has(|it| it.enders > 0), own.return_),
            (
                has(|it| !it.stores.is_empty() || it.waits > 0),
                own.instruction,
            ),
        ];
        let events = events.iter().filter(|(is, _)| *is).map(|(_, event)| event);
        (&tool.set_local_events, events.sum::<u32>())
    }) else {
        return Ok(());
    };
    call(&set_local_events, (id, code, 0u32))?;
    if wanted != 0 {
        call(&set_local_events, (id, code, wanted))?;
    }
    Ok(())
}

/// Makes all code tell again what was disabled, by anybody.
pub(super) fn restart(py: Python<'_>) -> PyResult<()> {
    match with(py, |tool| (&tool.restart_events, 0)) {
        Some((_, restart, _)) => call(&restart, ()).map(drop),
        None => Ok(()),
    }
}

impl Tool {
    fn claim(py: Python<'_>) -> PyResult<Option<Self>> {
        let monitoring = py.import("sys")?.getattr("monitoring")?;
        let function = |name: &str| monitoring.getattr(name);
        DISABLE.get_or_try_init(py, || function("DISABLE").map(Bound::unbind))?;
        let Some(id) = free_tool(&monitoring)? else {
            return Ok(None);
        };
        call(&function("use_tool_id")?, (id, "probing"))?;
        let claimed = Self {
            id,
            events: Events::read(&function("events")?)?,
            set_events: function("set_events")?.unbind(),
            set_local_events: function("set_local_events")?.unbind(),
            restart_events: function("restart_events")?.unbind(),
            register: function("register_callback")?.unbind(),
            free: function("free_tool_id")?.unbind(),
        };
        claimed.register(py)?;
        Ok(Some(claimed))
    }

    fn register(&self, py: Python<'_>) -> PyResult<()> {
        for (index, event) in self.events.all().into_iter().enumerate() {
            // SAFETY: the definition is one of seven, static, and nobody changes it; the other two may be null.
            let function = unsafe {
                let none = std::ptr::null_mut();
                let definition = (&raw mut CALLBACKS).cast::<ffi::PyMethodDef>().add(index);
                let function = ffi::PyCFunction_NewEx(definition, none, none);
                Bound::from_owned_ptr_or_err(py, function)?
            };
            call(self.register.bind(py), (self.id, event, function))?;
        }
        Ok(())
    }

    fn give_back(self, py: Python<'_>) -> PyResult<()> {
        call(self.set_events.bind(py), (self.id, 0u32))?;
        for event in self.events.all() {
            call(self.register.bind(py), (self.id, event, py.None()))?;
        }
        call(self.free.bind(py), (self.id,)).map(drop)
    }
}

impl Events {
    fn read(events: &Bound<'_, PyAny>) -> PyResult<Self> {
        let number = |name: &str| events.getattr(name)?.extract();
        Ok(Self {
            start: number("PY_START")?,
            resume: number("PY_RESUME")?,
            return_: number("PY_RETURN")?,
            line: number("LINE")?,
            raise: number("RAISE")?,
            unwind: number("PY_UNWIND")?,
            instruction: number("INSTRUCTION")?,
        })
    }

    fn all(&self) -> [u32; 7] {
        [
            self.start,
            self.resume,
            self.return_,
            self.line,
            self.raise,
            self.unwind,
            self.instruction,
        ]
    }
}

fn tool() -> std::sync::MutexGuard<'static, Option<Tool>> {
    TOOL.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The tool's number, a function of it and events, taken out of its lock.
fn with(
    py: Python<'_>,
    choose: impl FnOnce(&Tool) -> (&Py<PyAny>, u32),
) -> Option<(u8, Bound<'_, PyAny>, u32)> {
    let tool = tool();
    let tool = tool.as_ref()?;
    let (function, events) = choose(tool);
    Some((tool.id, function.bind(py).clone(), events))
}

/// Lets nothing out but the answer.
fn answered(handle: impl FnOnce(Python<'_>) -> After) -> *mut PyObject {
    // SAFETY: the interpreter calls callbacks with the GIL held.
    let py = unsafe { Python::assume_attached() };
    let after = panic::catch_unwind(AssertUnwindSafe(|| handle(py))).unwrap_or(After::Again);
    match (after, DISABLE.get(py)) {
        (After::Never, Some(disable)) => disable.clone_ref(py).into_ptr(),
        // SAFETY: always there; and its references are not counted in any Python that has `sys.monitoring`.
        _ => unsafe { ffi::Py_None() },
    }
}

/// One kind of event, and what comes of it.
trait Told {
    const NAME: &'static CStr;

    /// # Safety
    ///
    /// The arguments are those that the interpreter passes with this kind of event.
    unsafe fn told(py: Python<'_>, arguments: *mut *mut PyObject) -> After;
}

/// # Safety
///
/// Called by the interpreter, with the arguments of that event.
unsafe extern "C" fn callback<T: Told>(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    _: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: as the interpreter promises.
    answered(|py| unsafe { T::told(py, arguments) })
}

/// The first argument of all.
///
/// # Safety
///
/// As of [`Told::told`].
unsafe fn code(py: Python<'_>, arguments: *mut *mut PyObject) -> Bound<'_, PyAny> {
    // SAFETY: a code object, borrowed.
    unsafe { Bound::from_borrowed_ptr(py, *arguments) }
}

/// `(code, line)`
struct Line;

impl Told for Line {
    const NAME: &'static CStr = c"line";

    unsafe fn told(py: Python<'_>, arguments: *mut *mut PyObject) -> After {
        // SAFETY: as the interpreter promises: a code object and a whole number.
        let (code, line) = unsafe { (*arguments, ffi::PyLong_AsLong(*arguments.add(1)) as u32) };
        if watches::has_pending() {
            watches::settle(py);
        }
        let compares = watches::look_at_lines();
        if compares {
            watches::compare_at(py, code as usize, line, None);
        }
        if events::is_special() {
            let after = events::line(py, code as usize, line, None);
            return if compares { After::Again } else { after };
        }
        let Some(armed) = armed_if_free() else {
            return After::Again;
        };
        let met = armed.at_line(code as usize, line, || frame::current_borrowed(py));
        drop(armed);
        match met {
            Met::Nothing if compares => After::Again,
            Met::Nothing => After::Never,
            Met::NotNow => After::Again,
            Met::Points(points) => events::points(py, None, points),
        }
    }
}

/// `(code, offset)`
struct Start;

impl Told for Start {
    const NAME: &'static CStr = c"start";

    unsafe fn told(py: Python<'_>, arguments: *mut *mut PyObject) -> After {
        // SAFETY: the caller's.
        events::start(&unsafe { code(py, arguments) }, None)
    }
}

/// `(code, offset)`
struct Resume;

impl Told for Resume {
    const NAME: &'static CStr = c"resume";

    unsafe fn told(py: Python<'_>, arguments: *mut *mut PyObject) -> After {
        // SAFETY: the caller's.
        events::resume(&unsafe { code(py, arguments) }, None)
    }
}

/// `(code, offset, value or exception)`
struct End;

impl Told for End {
    const NAME: &'static CStr = c"end";

    unsafe fn told(py: Python<'_>, _: *mut *mut PyObject) -> After {
        events::end(py, None);
        After::Again
    }
}

/// `(code, offset, exception)`
struct Raise;

impl Told for Raise {
    const NAME: &'static CStr = c"raise";

    unsafe fn told(py: Python<'_>, arguments: *mut *mut PyObject) -> After {
        // SAFETY: as the interpreter promises; borrowed.
        let exception = unsafe { Bound::from_borrowed_ptr(py, *arguments.add(2)) };
        if exceptions::may_be_wanted(&exception.get_type())
            && let Ok(traceback) = exception.getattr(interned!(py, "__traceback__"))
        {
            events::raised(None, &exception, &traceback);
        }
        // It cannot be disabled.
        After::Again
    }
}

/// `(code, offset)`
struct Instruction;

impl Told for Instruction {
    const NAME: &'static CStr = c"instruction";

    unsafe fn told(py: Python<'_>, arguments: *mut *mut PyObject) -> After {
        // SAFETY: as the interpreter promises: a code object and a whole number.
        let (code, offset) = unsafe { (*arguments, ffi::PyLong_AsLong(*arguments.add(1)) as u32) };
        watches::at_instruction(py, code as usize, offset)
    }
}
