//! The tracer as a tool of `sys.monitoring`: callbacks that find the taps of a code object and tell them.
#![expect(unsafe_code, reason = "callbacks take arguments as Python passes them")]

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use probing_proto::message::Failure;
use probing_store::ring::packed::TraceEventKind;
use pyo3::Borrowed;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::instrument::{profile, trace_instrument};
use crate::python::monitoring::{self, Callback, Function, Tool, ToolHandle};
use crate::trace::code_table::{Entry, EventFollowUp, table, table_if_free};
use crate::trace::events::{self, EventDispatch};
use crate::trace::tap::{EventContext, EventSet, Tap};
use crate::trace::{accounting, callees, clock, fast_path, lines, setting};

/// What is told, and its places here.
const EVENTS: [&str; 10] = [
    "PY_START",
    "PY_RETURN",
    "PY_YIELD",
    "PY_RESUME",
    "PY_UNWIND",
    "PY_THROW",
    "CALL",
    "BRANCH",
    "LINE",
    "JUMP",
];
const START: usize = 0;
const RETURN: usize = 1;
const YIELD: usize = 2;
const RESUME: usize = 3;
const UNWIND: usize = 4;
const THROW: usize = 5;
const CALL: usize = 6;
const BRANCH: usize = 7;
const LINE: usize = 8;
const JUMP: usize = 9;

/// Callbacks, in the order of [`EVENTS`].
const CALLBACKS: [Function; 10] = [
    on_event::<{ TraceEventKind::Call as u8 }>,
    on_event::<{ TraceEventKind::Return as u8 }>,
    on_event::<{ TraceEventKind::Yield as u8 }>,
    on_event::<{ TraceEventKind::Resume as u8 }>,
    told_everywhere::<{ TraceEventKind::Exception as u8 }>,
    told_everywhere::<{ TraceEventKind::Resume as u8 }>,
    calls,
    branched,
    came_to_line,
    jumped,
];

/// Ours, while something is tapped. Reached with the GIL held only.
static TOOL: Mutex<Option<Tool>> = Mutex::new(None);
/// What was last asked of all code.
static EVERYWHERE: AtomicU8 = AtomicU8::new(0);
/// Whether that it begins is.
static STARTS_EVERYWHERE: AtomicBool = AtomicBool::new(false);
/// Whether what a function calls is followed, so that code that nobody knows of may be wanted when it begins.
static FOLLOWS: AtomicBool = AtomicBool::new(false);

/// Becomes a tool, if it is none yet.
pub(crate) fn claim(py: Python<'_>) -> Result<(), Failure> {
    if !monitoring::is_there(py) || tool().is_some() {
        return Ok(());
    }
    let callbacks = EVENTS.iter().zip(CALLBACKS);
    let callbacks = callbacks.map(|(event, function)| Callback { event, function });
    let claimed = Tool::claim(py, "probing tracer", &callbacks.collect::<Vec<_>>())?;
    *tool() = Some(claimed);
    Ok(())
}

/// Ceases to be one, when nothing is tapped.
pub(crate) fn release_if_idle(py: Python<'_>) {
    if table(py).is_empty()
        && !setting::is_seeking()
        && let Some(claimed) = { tool().take() }
    {
        // What fails here is gone already.
        drop(claimed.give_back(py));
    }
}

/// Before 3.12: a function that may have to tell. Its code alone does not say whose it is.
pub(crate) fn know(function: &Bound<'_, PyAny>) {
    if !monitoring::is_there(function.py()) {
        trace_instrument::know(function);
    }
}

/// Before 3.12 functions tell, not code: one that is new, of code that tells already, has to be told, too.
pub(crate) fn tell_function(code: &Bound<'_, PyAny>) {
    if !monitoring::is_there(code.py()) {
        trace_instrument::tell(code);
    }
}

/// Has a code object tell what is wanted of it now, and all others what only all together can be asked for.
pub(crate) fn tell(code: &Bound<'_, PyAny>) {
    tell_each(code.py(), std::slice::from_ref(code));
}

/// The same of many.
pub(crate) fn tell_each(py: Python<'_>, codes: &[Bound<'_, PyAny>]) {
    if !monitoring::is_there(py) {
        codes.iter().for_each(trace_instrument::tell);
        return;
    }
    let Some(tool) = asked(py).filter(|_| !codes.is_empty()) else {
        return;
    };
    let (here, wanted) = {
        let table = table(py);
        let wants = |code: &Bound<'_, PyAny>| table.entry(code.as_ptr() as usize).map(Entry::wants);
        let here: Vec<_> = codes.iter().map(wants).collect();
        (here, table.wants())
    };
    // Code may have been told to be silent when it began and nobody wanted it. While all code is asked, it stays so.
    let all_begin = STARTS_EVERYWHERE.load(Ordering::Relaxed);
    // What is asked fails when the program has freed our number behind our back; then nothing is told any more.
    if all_begin {
        drop(tool.everywhere(py, &everywhere(wanted, false)));
    }
    for (code, wants) in codes.iter().zip(here) {
        let wanted = local(wants.unwrap_or_default());
        drop(if all_begin {
            tool.locally_anew(code, &wanted, RETURN)
        } else {
            tool.locally(code, &wanted)
        });
    }
    let is_news = EVERYWHERE.load(Ordering::Relaxed) != wanted.everywhere();
    if is_news || all_begin {
        refresh(py);
    }
}

/// Has all code tell what only all together can be asked for, and that it begins, while a trace waits for some.
pub(crate) fn refresh(py: Python<'_>) {
    if !monitoring::is_there(py) {
        profile::refresh(py);
        return;
    }
    let Some(tool) = asked(py) else {
        return;
    };
    let wanted = table(py).wants();
    let starts = setting::is_seeking() || wanted.has(EventSet::CALLS);
    EVERYWHERE.store(wanted.everywhere(), Ordering::Relaxed);
    STARTS_EVERYWHERE.store(starts, Ordering::Relaxed);
    FOLLOWS.store(wanted.has(EventSet::CALLS), Ordering::Relaxed);
    drop(tool.everywhere(py, &everywhere(wanted, starts)));
}

fn everywhere(wanted: EventSet, starts: bool) -> Vec<usize> {
    let events = [
        (wanted.has(EventSet::UNWINDS), UNWIND),
        (wanted.has(EventSet::YIELDS), THROW),
        (starts, START),
    ];
    let events = events.iter().filter(|(is_wanted, _)| *is_wanted);
    events.map(|(_, event)| *event).collect()
}

/// Has all code tell again what it was told not to.
pub(crate) fn restart(py: Python<'_>) {
    profile::restart(py);
    if let Some(tool) = asked(py) {
        drop(tool.restart(py));
    }
}

fn local(wants: EventSet) -> Vec<usize> {
    let events = [
        (EventSet::STARTS, START),
        (EventSet::RETURNS, RETURN),
        (EventSet::YIELDS, YIELD),
        (EventSet::YIELDS, RESUME),
        (EventSet::CALLS, CALL),
        (EventSet::BRANCHES, BRANCH),
        (EventSet::LINES, LINE),
        (EventSet::LINES, JUMP),
    ];
    let events = events.iter().filter(|(event, _)| wants.has(*event));
    events.map(|(_, event)| *event).collect()
}

fn tool() -> MutexGuard<'static, Option<Tool>> {
    TOOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tool, taken out of its lock.
fn asked(py: Python<'_>) -> Option<ToolHandle> {
    tool().as_ref().map(|tool| tool.ask(py))
}

/// # Safety
///
/// Called by the interpreter, with the arguments of that event: a code object, an offset, and perhaps a value.
unsafe extern "C" fn on_event<const DID: u8>(
    _: *mut PyObject,
    arguments: *const *mut PyObject,
    count: usize,
    _: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the interpreter calls callbacks with the GIL held and with their arguments; the code lives as long as it runs.
    let (py, code) = unsafe { (Python::assume_attached(), *arguments as usize) };
    let did = did(DID);
    let is_told = match (table_if_free(py), did) {
        (None, _) => None,
        (Some(mut table), TraceEventKind::Call | TraceEventKind::Resume) => {
            fast_path::began(&mut table, code, did)
        }
        (Some(mut table), _) => fast_path::ended(&mut table, code, did),
    };
    if is_told.is_some() {
        monitoring::answer(py, true)
    } else {
        // SAFETY: as the interpreter promises.
        unsafe { told_the_long_way(did, arguments, count) }
    }
}

/// # Safety
///
/// As above.
#[inline(never)]
unsafe fn told_the_long_way(
    did: TraceEventKind,
    arguments: *const *mut PyObject,
    count: usize,
) -> *mut PyObject {
    // SAFETY: as the interpreter promises; it calls callbacks with the GIL held.
    unsafe {
        let again = hear(did, arguments, count);
        monitoring::answer(Python::assume_attached(), again)
    }
}

/// The same, of events that cannot be disabled.
///
/// # Safety
///
/// As above.
unsafe extern "C" fn told_everywhere<const DID: u8>(
    _: *mut PyObject,
    arguments: *const *mut PyObject,
    count: usize,
    _: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as the interpreter promises.
    unsafe {
        hear(did(DID), arguments, count);
        monitoring::answer(Python::assume_attached(), true)
    }
}

const fn did(number: u8) -> TraceEventKind {
    match number {
        0 => TraceEventKind::Call,
        1 => TraceEventKind::Return,
        2 => TraceEventKind::Yield,
        3 => TraceEventKind::Resume,
        _ => TraceEventKind::Exception,
    }
}

/// Whether to be told again at this place.
///
/// # Safety
///
/// As above.
#[inline]
unsafe fn hear(did: TraceEventKind, arguments: *const *mut PyObject, count: usize) -> bool {
    // SAFETY: the caller is a callback: it has the GIL and its arguments, and the code lives as long as it runs.
    let (py, code) = unsafe { (Python::assume_attached(), *arguments) };
    let Some(mut table) = table_if_free(py) else {
        return true;
    };
    let heard = events::heard(py, &mut table, code as usize, did);
    drop(table);
    match heard {
        Some(EventDispatch {
            tap: None,
            way:
                EventFollowUp {
                    again,
                    is_due: false,
                    looks_again: false,
                },
            ..
        }) => again,
        // SAFETY: the arguments are those of this event, as the caller promises.
        Some(heard) => unsafe { tell_all(&heard, did, arguments, count) },
        // SAFETY: the first argument of the event is a code object, which lives as long as it runs.
        None if did == TraceEventKind::Call => unsafe {
            let code = Bound::from_borrowed_ptr(py, code);
            meet(&code)
        },
        None => true,
    }
}

/// Code that nobody knows of begins: whether to be told again.
#[cold]
fn meet(code: &Bound<'_, PyAny>) -> bool {
    let py = code.py();
    if !setting::is_seeking() && !FOLLOWS.load(Ordering::Relaxed) {
        return true;
    }
    caught(|| {
        callees::began(code);
        if setting::is_seeking() {
            setting::seek(code);
        }
    });
    // If a trace wants it, this call counts already.
    let heard = table_if_free(py).and_then(|mut table| {
        events::heard(py, &mut table, code.as_ptr() as usize, TraceEventKind::Call)
    });
    heard.is_some_and(|heard| heard.way.again)
}

/// # Safety
///
/// As above.
#[inline(never)]
unsafe fn tell_all(
    heard: &EventDispatch,
    did: TraceEventKind,
    arguments: *const *mut PyObject,
    count: usize,
) -> bool {
    // SAFETY: the interpreter calls callbacks with the GIL held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: a code object, and with three arguments a value; borrowed.
    let (code, value) = unsafe {
        let value =
            (monitoring::count(count) > 2).then(|| Bound::from_borrowed_ptr(py, *arguments.add(2)));
        (*arguments as usize, value)
    };
    pass_on(py, heard, did, code, value.as_ref());
    heard.way.again
}

/// Tells taps, and looks at what all this costs when it is time to.
pub(crate) fn pass_on(
    py: Python<'_>,
    heard: &EventDispatch,
    did: TraceEventKind,
    code: usize,
    value: Option<&Bound<'_, PyAny>>,
) {
    if heard.way.is_due {
        caught(|| accounting::look(py, false));
    }
    if heard.way.looks_again {
        caught(|| restart(py));
    }
    let Some(tap) = heard.tap else {
        return;
    };
    // SAFETY: code that is told of is alive.
    let code = unsafe { Borrowed::from_ptr(py, code as *mut PyObject) };
    let at = EventContext {
        code,
        nanos: clock::now(),
    };
    if !heard.has_more {
        return tell_one(tap, did, at, value);
    }
    let taps =
        table_if_free(py).and_then(|table| table.entry(code.as_ptr() as usize).map(Entry::taps));
    for tap in taps.iter().flatten().flatten() {
        tell_one(*tap, did, at, value);
    }
}

fn tell_one(
    tap: &dyn Tap,
    did: TraceEventKind,
    at: EventContext<'_, '_>,
    value: Option<&Bound<'_, PyAny>>,
) {
    caught(|| match (did, value) {
        (TraceEventKind::Call, _) => tap.started(at),
        (TraceEventKind::Yield, _) => tap.yielded(at),
        (TraceEventKind::Resume, _) => tap.resumed(at),
        (TraceEventKind::Return, Some(value)) => tap.returned(at, value.as_borrowed()),
        (TraceEventKind::Exception, Some(value)) => tap.unwound(at, value.as_borrowed()),
        (TraceEventKind::Return | TraceEventKind::Exception, None) => {}
    });
}

/// # Safety
///
/// Called by the interpreter, with a code object, an offset and what is called.
unsafe extern "C" fn calls(
    _: *mut PyObject,
    arguments: *const *mut PyObject,
    _: usize,
    _: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the interpreter calls callbacks with the GIL held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: this event has three arguments: live objects, the first of which is code.
    let (caller, callable) = unsafe {
        let callable = Bound::from_borrowed_ptr(py, *arguments.add(2));
        (*arguments as usize, callable)
    };
    let heard = table_if_free(py).and_then(|mut table| events::calls(&mut table, caller));
    let way = heard.unwrap_or(EventFollowUp::ON);
    caught(|| {
        if way.again {
            callees::called(caller, &callable);
        }
        if way.is_due {
            accounting::look(py, false);
        }
    });
    monitoring::answer(py, way.again)
}

/// # Safety
///
/// Called by the interpreter, with a code object and two offsets.
unsafe extern "C" fn branched(
    _: *mut PyObject,
    arguments: *const *mut PyObject,
    _: usize,
    _: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the interpreter calls callbacks with the GIL held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the first argument of this event is a code object, which lives as long as it runs.
    let code: Borrowed<'_, '_, PyAny> = unsafe { Borrowed::from_ptr(py, *arguments) };
    let address = code.as_ptr() as usize;
    let taps = table_if_free(py).and_then(|table| table.entry(address).map(Entry::taps));
    let nanos = clock::now();
    for tap in taps.iter().flatten().flatten() {
        caught(|| tap.branched(EventContext { code, nanos }));
    }
    monitoring::answer(py, true)
}

/// # Safety
///
/// Called by the interpreter, with a code object and the number of a line.
unsafe extern "C" fn came_to_line(
    _: *mut PyObject,
    arguments: *const *mut PyObject,
    _: usize,
    _: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as the interpreter promises; with the GIL held.
    let (py, code, line) = unsafe {
        let line = ffi::PyLong_AsLong(*arguments.add(1));
        (Python::assume_attached(), *arguments as usize, line)
    };
    let again = u32::try_from(line).map_or(true, |line| at_line(py, code, line));
    monitoring::answer(py, again)
}

/// # Safety
///
/// Called by the interpreter, with a code object and two offsets.
unsafe extern "C" fn jumped(
    _: *mut PyObject,
    arguments: *const *mut PyObject,
    _: usize,
    _: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as the interpreter promises; with the GIL held.
    let (py, code, line) = unsafe {
        let offset = |index| ffi::PyLong_AsLong(*arguments.add(index)) as u32;
        let line = monitoring::line_come_to_anew(*arguments, offset(1), offset(2));
        (Python::assume_attached(), *arguments as usize, line)
    };
    let again = line.is_some_and(|line| at_line(py, code, line));
    monitoring::answer(py, again)
}

/// A thread comes to a line: whether to be told again at this place.
pub(crate) fn at_line(py: Python<'_>, code: usize, line: u32) -> bool {
    let mut again = true;
    caught(|| {
        let way = table_if_free(py).and_then(|mut table| lines::came(py, &mut table, code, line));
        let way = way.unwrap_or(EventFollowUp::ON);
        if way.is_due {
            accounting::look(py, false);
        }
        again = way.again;
    });
    again
}

/// No panic leaves the probe.
fn caught(work: impl FnOnce()) {
    drop(panic::catch_unwind(AssertUnwindSafe(work)));
}
