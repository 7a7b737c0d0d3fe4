//! The trace function in C of Python 3.10 and 3.11, for code that cannot be instrumented and for steps.
//!
//! Python 3.10 and 3.11: a trace function in C, on threads that run what cannot call us (`sites.rs`), and on all
//! while somebody takes a step or looks for code that is not loaded yet. Exceptions alone are told at no price
//! (`thread_state.rs`).
//!
//! A thread that has a trace function already (a debugger, coverage) keeps it: two do not go together on these Pythons. What a
//! program sets itself takes the place of ours: now and then we look, say so, and come back when it has gone.
#![expect(unsafe_code, reason = "trace functions are set by the C interface")]

use std::ffi::c_int;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use probing_proto::message::Failure;
use pyo3::ffi::{PyFrameObject, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::breakpoints::events;
use crate::breakpoints::exceptions;
use crate::breakpoints::index::{EventMatch, try_breakpoint_index};
use crate::breakpoints::setting;
use crate::eval::interrupt::own_thread;
use crate::instrument::{probe_call, sites};
use crate::python::current_thread;
use crate::python::frame::{code_of, line_of, suspends};
use crate::python::ignored_code::IgnoredCode;
use crate::python::interned::interned;
use crate::python::signal_handlers;
use crate::python::symbols::symbols;
use crate::python::thread_state::{self, Hook, State, TraceDemand};
use crate::watchpoints;

pub(crate) const NAME: &str = "trace function";

/// What the interpreter tells.
const CALL: c_int = 0;
const EXCEPTION: c_int = 1;
const LINE: c_int = 2;
const RETURN: c_int = 3;

const YIELD_VALUE: u8 = 86;
/// Of 3.10.
const YIELD_FROM: u8 = 72;
/// Of 3.11; its argument is 0 where a function begins.
const RESUME: u8 = 151;

/// Code in which nothing is armed.
static STRANGERS: IgnoredCode = IgnoredCode::new();

static IS_SET: AtomicBool = AtomicBool::new(false);
/// Whether all threads tell lines, and all tell exceptions.
static LINES: AtomicBool = AtomicBool::new(false);
static RAISES: AtomicBool = AtomicBool::new(false);
/// Threads that tell lines because they run code that is older than what was armed in it.
static OLDER: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// When to look again whether it still is.
static NEXT_LOOK: Mutex<Option<Instant>> = Mutex::new(None);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What to say of threads that are left out. Read without the GIL, too.
static LEFT_OUT: Mutex<Option<String>> = Mutex::new(None);

/// Whether this Python has what it takes.
pub(crate) fn claim() -> Result<(), Failure> {
    let symbols = symbols();
    let has_all = symbols.set_trace.is_some()
        && symbols.current_interpreter.is_some()
        && symbols.first_thread.is_some()
        && symbols.next_thread.is_some();
    if has_all {
        return Ok(());
    }
    Err(Failure::new("this Python does not allow trace functions")
        .with_hint("breakpoints need CPython 3.10 or newer"))
}

/// What to say when threads are left out, because another tool traces them; as of the last look.
pub(crate) fn left_out() -> Option<String> {
    lock(&LEFT_OUT).clone()
}

/// When to look again; `None` while nothing is traced.
pub(crate) fn next_look() -> Option<Instant> {
    *lock(&NEXT_LOOK)
}

/// Whether it is time to look. The next time is later.
pub(crate) fn is_due() -> bool {
    let mut next = lock(&NEXT_LOOK);
    let now = Instant::now();
    let is_due = next.is_some_and(|next| next <= now);
    if is_due {
        *next = Some(now + LOOK_EVERY);
    }
    is_due
}

/// Traces threads whose trace function the program has taken away, no longer those that need not be, and sees who traces
/// others.
pub(crate) fn look_again(py: Python<'_>) {
    if !setting::has_monitoring(py) {
        sites::try_again(py);
        apply(py, ThreadScope::PreviousThreads);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn traced_by_others(py: Python<'_>) -> Option<String> {
    let states = thread_state::thread_states(py).into_iter();
    let others = states.filter(|state| state.has_others(Hook::Trace, traced));
    let idents: Vec<u64> = others.map(State::ident).collect();
    // The main one comes first, not last.
    let names: Vec<_> = idents
        .iter()
        .rev()
        .map(|ident| current_thread::name_of(py, *ident))
        .collect();
    let (who, are) = match names.as_slice() {
        [] => return None,
        [one] => (one.clone(), "is"),
        [first, others @ ..] => (format!("{first} and {} more threads", others.len()), "are"),
    };
    Some(format!(
        "{who} {are} traced by another tool (a debugger, coverage): Python before 3.12 allows one, so no breakpoint is hit there"
    ))
}

/// What threads are to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceRequirements {
    /// Lines, of all threads; else of those that run code that cannot call us.
    pub(crate) lines: bool,
    pub(crate) raises: bool,
    /// Whether functions of code that is armed may appear yet.
    pub(crate) again: bool,
}

/// Traces threads as far as that is needed.
pub(crate) fn set(py: Python<'_>) {
    apply(py, ThreadScope::AllThreads);
}

/// Which threads may run what needs to be traced: any, or only those that did before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadScope {
    AllThreads,
    PreviousThreads,
}

fn apply(py: Python<'_>, look: ThreadScope) {
    // This runs Python, during which others may arm, or begin a step: what is wanted is looked at after it.
    let have_sleepers = sites::have_sleepers(py);
    let before = (look == ThreadScope::PreviousThreads).then(|| lock(&OLDER).clone());
    let older = sites::older_in(py, before.as_deref());
    let mut wanted = setting::wanted_of_threads(py);
    wanted.lines |= have_sleepers;
    let needs_lines = wanted.lines || !older.is_empty();
    let is_set = needs_lines || wanted.raises;
    LINES.store(wanted.lines, Ordering::Release);
    RAISES.store(wanted.raises, Ordering::Release);
    *lock(&OLDER) = older;
    let was_set = IS_SET.swap(is_set, Ordering::AcqRel);
    if is_set || was_set {
        for state in thread_state::thread_states(py) {
            state.tell(wanted_of(state.ident()), traced);
        }
    }
    if was_set != is_set {
        let begin = is_set.then_some(begin_here as fn(Python<'_>));
        // Without it, threads that begin later are not traced.
        drop(thread_state::on_new_threads(py, Hook::Trace, begin));
    }
    let looks = is_set || wanted.again;
    let mut next = lock(&NEXT_LOOK);
    if !looks || next.is_none() {
        *next = looks.then(|| Instant::now() + LOOK_EVERY);
    }
    drop(next);
    *lock(&LEFT_OUT) = if is_set { traced_by_others(py) } else { None };
    if !wanted.lines {
        forget_seen(py);
    }
}

/// Whether some thread is to tell lines.
pub(crate) fn needs_lines() -> bool {
    LINES.load(Ordering::Acquire) || !lock(&OLDER).is_empty()
}

/// Whether this one is.
pub(crate) fn wants_lines(ident: u64) -> bool {
    LINES.load(Ordering::Acquire) || lock(&OLDER).contains(&ident)
}

fn wanted_of(ident: u64) -> TraceDemand {
    if wants_lines(ident) {
        TraceDemand::All
    } else if RAISES.load(Ordering::Acquire) {
        TraceDemand::Exceptions
    } else {
        TraceDemand::Nothing
    }
}

/// Whether we trace a thread.
pub(crate) fn is_ours(state: State<'_>) -> bool {
    state.has(Hook::Trace, traced)
}

/// Whether another tool traces this thread, so that we cannot.
pub(crate) fn is_left_out(py: Python<'_>) -> bool {
    thread_state::own(py).is_some_and(|state| state.has_others(Hook::Trace, traced))
}

/// Has code be looked at again that was nobody's.
pub(crate) fn forget_seen(py: Python<'_>) {
    STRANGERS.forget(py);
}

/// Traces this new thread from here on, as far as it is needed. It has a trace function of Python's that leads here.
fn begin_here(py: Python<'_>) {
    if IS_SET.load(Ordering::Acquire)
        && let Some(state) = thread_state::own(py)
    {
        state.replace(wanted_of(state.ident()), traced);
    }
}

/// Called by the interpreter, with the GIL held, for all that its threads do.
///
/// # Safety
///
/// As `PyEval_SetTrace` says.
unsafe extern "C" fn traced(
    _: *mut PyObject,
    frame: *mut PyFrameObject,
    what: c_int,
    argument: *mut PyObject,
) -> c_int {
    // SAFETY: the interpreter calls trace functions with the GIL held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the frame is alive during the call; borrowed.
    let frame = unsafe { Bound::from_borrowed_ptr(py, frame.cast()) };
    let tell = || match what {
        LINE => at_line(&frame),
        CALL => at_call(&frame),
        RETURN => {
            // SAFETY: what is returned, borrowed; nothing when an exception leaves the function.
            let value = unsafe { Bound::from_borrowed_ptr_or_opt(py, argument) };
            at_return(&frame, value.as_ref());
        }
        EXCEPTION => {
            at_exception(&frame, argument);
            if !wants_lines(own_thread()) {
                // SAFETY: the argument of this event.
                unsafe { State::tell_exceptions_only_after(argument) };
            }
        }
        _ => {}
    };
    drop(panic::catch_unwind(AssertUnwindSafe(|| {
        signal_handlers::kept_out(py, tell);
    })));
    if signal_handlers::may_wait() {
        // Where an exception is under way, or a value, another would take its place.
        if !matches!(what, LINE | CALL) {
            signal_handlers::run_soon();
        } else if !signal_handlers::run(py) {
            return -1;
        }
    }
    0
}

/// Whether local variables of this code are watched.
fn has_stores(py: Python<'_>, code: usize) -> bool {
    try_breakpoint_index(py).is_some_and(|armed| {
        let arms = armed.code(code);
        arms.is_some_and(|arms| !arms.stores.is_empty())
    })
}

fn at_line(frame: &Bound<'_, PyAny>) {
    let py = frame.py();
    let line = line_of(frame);
    let seen = sites::seen(code_of(frame).as_ptr() as usize, line, frame);
    let code = seen.code;
    if watchpoints::look_at_lines() {
        watchpoints::compare_at(py, code, line, Some(frame));
    }
    if watchpoints::look_at_locals() && has_stores(py, code) {
        watchpoints::compare_locals(frame, code, Some(line));
    }
    if let Some(begins) = seen.call {
        // What our call would tell next is told here, where a thread that stops can be sent elsewhere.
        let at = sites::offset_of(frame);
        events::line_of_call(frame, (code, line, begins));
        sites::mark_reported(frame, at);
        return;
    }
    // Of what our calls tell, only steps end here.
    let armed_in = if seen.is_told { 0 } else { code };
    if events::is_special() {
        events::line(py, armed_in, line, Some(frame));
        return;
    }
    let Some(armed) = try_breakpoint_index(py) else {
        return;
    };
    let met = match armed.code(armed_in) {
        Some(arms) => arms.at_line(line, || Some(frame.as_borrowed())),
        None => return,
    };
    drop(armed);
    if let EventMatch::Hits(points) = met {
        events::points(py, Some(frame), points);
    }
}

fn at_call(frame: &Bound<'_, PyAny>) {
    let code = code_of(frame);
    if !events::is_special() && STRANGERS.know(frame.py(), code.as_ptr() as usize) {
        return;
    }
    let after = if begins(frame, &code) {
        events::start(&code, Some(frame))
    } else {
        events::resume(&code, Some(frame))
    };
    if after == events::After::Never && !events::is_special() {
        STRANGERS.add(code);
    }
}

fn at_return<'py>(frame: &Bound<'py, PyAny>, value: Option<&Bound<'py, PyAny>>) {
    if watchpoints::look_at_locals() {
        let code = probe_call::own_code(code_of(frame)).as_ptr() as usize;
        if has_stores(frame.py(), code) {
            watchpoints::compare_locals(frame, code, None);
        }
    }
    if events::is_special() && (value.is_none() || !is_left_for_now(frame)) {
        events::end(frame.py(), Some(frame), value);
    }
}

fn at_exception(frame: &Bound<'_, PyAny>, argument: *mut PyObject) {
    let py = frame.py();
    if try_breakpoint_index(py).is_none_or(|armed| armed.raises.is_empty()) {
        return;
    }
    // SAFETY: for this event a tuple of class, exception and traceback; borrowed.
    let triple = unsafe { Bound::from_borrowed_ptr_or_opt(frame.py(), argument) };
    if let Some(triple) = triple
        && let (Ok(exception), Ok(traceback)) = (triple.get_item(1), triple.get_item(2))
        && exceptions::may_be_wanted(&exception.get_type())
    {
        events::raised(Some(frame), &exception, &traceback);
    }
}

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
