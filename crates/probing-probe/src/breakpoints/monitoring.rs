//! Python 3.12 and newer: `sys.monitoring` tells us, in exactly the code objects concerned.
//!
//! A place that has nothing for us is disabled when it is first met: from then on it costs nothing. Callbacks are bare
//! C functions: what they return is `None` or `DISABLE`, and no exception comes out of them but that of a signal's handler
//! of the program, which waited while we had the thread.
#![expect(unsafe_code, reason = "callbacks take arguments as Python passes them")]

use std::panic::{self, AssertUnwindSafe};
use std::ptr;

use probing_proto::message::Failure;
use pyo3::Borrowed;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::breakpoints::events::{self, After};
use crate::breakpoints::exceptions;
use crate::breakpoints::index::{
    CodeBreakpoints, EventMatch, breakpoint_index, try_breakpoint_index,
};
use crate::python::frame;
use crate::python::int_value;
use crate::python::interned::interned;
use crate::python::monitoring::{self, Callback, Function, Tool, ToolHandle};
use crate::python::signal_handlers;
use crate::watchpoints;

/// What is told, and its places here.
const EVENTS: [&str; 9] = [
    "PY_START",
    "PY_RESUME",
    "PY_RETURN",
    "LINE",
    "RAISE",
    "PY_UNWIND",
    "INSTRUCTION",
    "JUMP",
    "PY_THROW",
];
const START: usize = 0;
const RESUME: usize = 1;
const RETURN: usize = 2;
const LINE: usize = 3;
const RAISE: usize = 4;
const UNWIND: usize = 5;
const INSTRUCTION: usize = 6;
const JUMP: usize = 7;
const THROW: usize = 8;
/// Together they tell of all lines that a thread comes to.
const LINES: [usize; 2] = [LINE, JUMP];

/// What is told everywhere, not only in some code objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GlobalEvent {
    /// Functions that begin.
    Starts,
    /// Generators and coroutines that go on.
    Resumes,
    /// The same with an exception.
    Throws,
    Raises,
    Unwinds,
    Lines,
}

/// Ours, while something is armed. Reached with the GIL held only.
static TOOL: std::sync::Mutex<Option<Tool>> = std::sync::Mutex::new(None);

/// Callbacks, in the order of [`EVENTS`].
const CALLBACKS: [Function; 9] = [
    callback::<Start>,
    callback::<Resume>,
    callback::<Return>,
    callback::<Line>,
    callback::<Raise>,
    callback::<Unwind>,
    callback::<Instruction>,
    callback::<Jump>,
    callback::<Throw>,
];

/// Becomes a tool, if it is none yet.
pub(crate) fn claim(py: Python<'_>) -> Result<(), Failure> {
    if tool().is_some() {
        return Ok(());
    }
    let callbacks = EVENTS.iter().zip(CALLBACKS);
    let callbacks = callbacks.map(|(event, function)| Callback { event, function });
    let claimed = Tool::claim(py, "probing", &callbacks.collect::<Vec<_>>())?;
    *tool() = Some(claimed);
    Ok(())
}

/// Ceases to be one. Local events must be gone by then: 3.12 leaves them.
pub(crate) fn release(py: Python<'_>) {
    let Some(claimed) = tool().take() else {
        return;
    };
    // What fails here is gone already.
    drop(claimed.give_back(py));
}

/// Sets what is told everywhere.
pub(crate) fn set_everywhere(py: Python<'_>, wanted: &[GlobalEvent]) -> PyResult<()> {
    let Some(tool) = asked(py) else {
        return Ok(());
    };
    let places = |event: &GlobalEvent| -> &[usize] {
        match event {
            GlobalEvent::Starts => &[START],
            GlobalEvent::Resumes => &[RESUME],
            GlobalEvent::Throws => &[THROW],
            GlobalEvent::Raises => &[RAISE],
            GlobalEvent::Unwinds => &[UNWIND],
            GlobalEvent::Lines => &LINES,
        }
    };
    let wanted: Vec<usize> = wanted.iter().flat_map(places).copied().collect();
    tool.everywhere(py, &wanted)
}

/// Sets what is told in a code object, and makes it tell again what was disabled.
pub(crate) fn set_local(code: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = code.py();
    let Some(tool) = asked(code.py()) else {
        return Ok(());
    };
    let wanted: Vec<usize> = {
        let armed = breakpoint_index(py);
        let arms = armed.code(code.as_ptr() as usize);
        let has = |is_wanted: fn(&CodeBreakpoints) -> bool| arms.is_some_and(is_wanted);
        let lines = has(|it| !it.lines.is_empty() || it.steppers > 0);
        let others = [
            (has(CodeBreakpoints::tells_of_starts), START),
            (has(|it| it.enders > 0), RETURN),
            (has(|it| !it.stores.is_empty() || it.waits > 0), INSTRUCTION),
        ];
        let others = others.iter().filter(|(is, _)| *is).map(|(_, event)| *event);
        let lines = LINES.into_iter().filter(|_| lines);
        lines.chain(others).collect()
    };
    if wanted.contains(&INSTRUCTION) && !is_for_good(code) {
        tool.locally_for_good(code, &wanted)
    } else {
        tool.locally(code, &wanted)
    }
}

/// Whether a code object tells of its instructions whoever else comes; from now on it does.
fn is_for_good(code: &Bound<'_, PyAny>) -> bool {
    let py = code.py();
    std::mem::replace(
        &mut breakpoint_index(py).code_mut(code).tells_for_good,
        true,
    )
}

/// Makes all code tell again what was disabled, by anybody.
pub(crate) fn restart(py: Python<'_>) -> PyResult<()> {
    asked(py).map_or(Ok(()), |tool| tool.restart(py))
}

fn tool() -> std::sync::MutexGuard<'static, Option<Tool>> {
    TOOL.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The tool, taken out of its lock.
fn asked(py: Python<'_>) -> Option<ToolHandle> {
    tool().as_ref().map(|tool| tool.ask(py))
}

/// Lets nothing out but the answer, and what handlers of the program raise that waited meanwhile.
#[inline]
fn answered<T: EventHandler>(handle: impl FnOnce(Python<'_>) -> After) -> *mut PyObject {
    // SAFETY: the interpreter calls callbacks with the GIL held.
    let py = unsafe { Python::assume_attached() };
    let after = panic::catch_unwind(AssertUnwindSafe(|| handle(py))).unwrap_or(After::Again);
    if signal_handlers::may_wait() {
        if !T::MAY_RAISE {
            signal_handlers::run_soon();
        } else if !signal_handlers::run(py) {
            return ptr::null_mut();
        }
    }
    monitoring::answer(py, matches!(after, After::Again))
}

/// One kind of event, and what comes of it.
trait EventHandler {
    /// Whether an exception may come out of it. Where one is under way already, it would take its place.
    const MAY_RAISE: bool = true;

    /// # Safety
    ///
    /// The arguments are those that the interpreter passes with this kind of event.
    unsafe fn handle(py: Python<'_>, arguments: *const *mut PyObject) -> After;
}

/// # Safety
///
/// Called by the interpreter, with the arguments of that event.
unsafe extern "C" fn callback<T: EventHandler>(
    _: *mut PyObject,
    arguments: *const *mut PyObject,
    _: usize,
    _: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as the interpreter promises.
    answered::<T>(|py| unsafe { T::handle(py, arguments) })
}

/// The first argument of all.
///
/// # Safety
///
/// As of [`Told::told`].
unsafe fn code(py: Python<'_>, arguments: *const *mut PyObject) -> Bound<'_, PyAny> {
    // SAFETY: a code object, borrowed.
    unsafe { Bound::from_borrowed_ptr(py, *arguments) }
}

/// The address of a code object, and a line or an offset in it.
///
/// # Safety
///
/// The arguments are a code object and a whole number.
#[inline]
unsafe fn code_and_number(py: Python<'_>, arguments: *const *mut PyObject) -> (usize, u32) {
    // SAFETY: the caller gives a code object and a whole number, which are borrowed for as long as the call lasts.
    unsafe {
        let number = Borrowed::from_ptr(py, *arguments.add(1));
        let number = int_value::read_int(&number).unwrap_or(-1);
        (*arguments as usize, number as u32)
    }
}

/// `(code, line)`
struct Line;

impl EventHandler for Line {
    unsafe fn handle(py: Python<'_>, arguments: *const *mut PyObject) -> After {
        // SAFETY: as the interpreter promises.
        let (code, line) = unsafe { code_and_number(py, arguments) };
        at_line(py, code, line)
    }
}

/// `(code, offset, offset of what comes next)`
struct Jump;

impl EventHandler for Jump {
    unsafe fn handle(py: Python<'_>, arguments: *const *mut PyObject) -> After {
        // SAFETY: as the interpreter promises; borrowed.
        let line = unsafe {
            let to = Borrowed::from_ptr(py, *arguments.add(2));
            let to = int_value::read_int(&to).unwrap_or(i64::from(u32::MAX)) as u32;
            let (_, from) = code_and_number(py, arguments);
            monitoring::line_come_to_anew(*arguments, from, to)
        };
        match line {
            // SAFETY: the first argument of a jump is its code object.
            Some(line) => at_line(py, unsafe { *arguments } as usize, line),
            None => After::Never,
        }
    }
}

/// A thread is at a line.
#[inline]
fn at_line(py: Python<'_>, code: usize, line: u32) -> After {
    if watchpoints::has_pending() {
        watchpoints::settle(py);
    }
    let compares = watchpoints::look_at_lines();
    if compares {
        watchpoints::compare_at(py, code, line, None);
    }
    if events::is_special() {
        let after = events::line(py, code, line, None);
        return if compares { After::Again } else { after };
    }
    let Some(armed) = try_breakpoint_index(py) else {
        return After::Again;
    };
    let met = armed.at_line(code, line, || frame::current_borrowed(py));
    drop(armed);
    match met {
        EventMatch::Nothing if compares => After::Again,
        EventMatch::Nothing => After::Never,
        EventMatch::NotNow => After::Again,
        EventMatch::Hits(points) => events::points(py, None, points),
    }
}

/// `(code, offset)`
struct Start;

impl EventHandler for Start {
    unsafe fn handle(py: Python<'_>, arguments: *const *mut PyObject) -> After {
        // SAFETY: the first argument of this event is a code object, as the interpreter promises.
        events::start(&unsafe { code(py, arguments) }, None)
    }
}

/// `(code, offset)`
struct Resume;

impl EventHandler for Resume {
    unsafe fn handle(py: Python<'_>, arguments: *const *mut PyObject) -> After {
        // SAFETY: the first argument of this event is a code object, as the interpreter promises.
        events::resume(&unsafe { code(py, arguments) }, None)
    }
}

/// `(code, offset, exception)`
struct Throw;

impl EventHandler for Throw {
    const MAY_RAISE: bool = false;

    unsafe fn handle(py: Python<'_>, arguments: *const *mut PyObject) -> After {
        // SAFETY: the first argument of this event is a code object, as the interpreter promises.
        events::resume(&unsafe { code(py, arguments) }, None);
        // It cannot be disabled.
        After::Again
    }
}

/// `(code, offset, value)`
struct Return;

impl EventHandler for Return {
    const MAY_RAISE: bool = false;

    unsafe fn handle(py: Python<'_>, arguments: *const *mut PyObject) -> After {
        // SAFETY: as the interpreter promises; borrowed.
        let value = unsafe { Bound::from_borrowed_ptr(py, *arguments.add(2)) };
        events::end(py, None, Some(&value));
        After::Again
    }
}

/// `(code, offset, exception)`
struct Unwind;

impl EventHandler for Unwind {
    const MAY_RAISE: bool = false;

    unsafe fn handle(py: Python<'_>, _: *const *mut PyObject) -> After {
        events::end(py, None, None);
        After::Again
    }
}

/// `(code, offset, exception)`
struct Raise;

impl EventHandler for Raise {
    const MAY_RAISE: bool = false;

    unsafe fn handle(py: Python<'_>, arguments: *const *mut PyObject) -> After {
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

impl EventHandler for Instruction {
    unsafe fn handle(py: Python<'_>, arguments: *const *mut PyObject) -> After {
        // SAFETY: as the interpreter promises.
        let (code, offset) = unsafe { code_and_number(py, arguments) };
        watchpoints::at_instruction(py, code, offset)
    }
}
