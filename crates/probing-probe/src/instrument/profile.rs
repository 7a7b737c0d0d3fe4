//! The profile function in C of Python 3.10 and 3.11, for traced code that cannot be instrumented.
//!
//! Python 3.10 and 3.11: a profile function in C, for what has no function that could get code that tells
//! (`trace_instrument.rs`): all of a module, and what a function calls, on the threads that need it. All that these
//! threads call has to pass by here.
//!
//! A thread that has a profile function already keeps it.
#![expect(unsafe_code, reason = "profile functions are set by the C interface")]

use std::ffi::c_int;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use probing_store::ring::packed::TraceEventKind;
use pyo3::ffi::{PyFrameObject, PyObject};
use pyo3::prelude::*;

use crate::instrument::probe_call;
use crate::python::frame::{caller_of, code_of};
use crate::python::ignored_code::IgnoredCode;
use crate::python::symbols::TraceFunction;
use crate::python::thread_state::{self, Hook, State};
use crate::python::yield_points::YieldPoints;
use crate::trace::code_table::table_if_free;
use crate::trace::code_table::{Entry, table};
use crate::trace::events;
use crate::trace::fast_path;
use crate::trace::thread;
use crate::trace::{accounting, callees, setting, traces};

pub(crate) const NAME: &str = "profile function";

/// Whether all threads have it.
static EVERYWHERE: AtomicBool = AtomicBool::new(false);
/// Whether those have it that are inside a function whose calls are followed; and which these are, as `threading.get_ident`
/// tells it. Reached with the GIL held only.
static INSIDE: AtomicBool = AtomicBool::new(false);
static FOLLOWERS: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// Code that no trace wants.
static STRANGERS: IgnoredCode = IgnoredCode::new();
/// How often such code was told of since the last look: whoever had it told pays for that.
static PASSED_BY: AtomicU64 = AtomicU64::new(0);
/// So often at most.
const LOOK_EVERY: u64 = 4096;

/// Inside a function whose calls are followed, this thread has it, as long as a trace can pay.
pub(crate) fn set_on_this_thread() {
    let change = thread::with_own(|thread| {
        let follows = thread.open.iter().any(|open| open.levels > 0);
        let is_change = follows != thread.follows_calls;
        thread.follows_calls = follows;
        is_change.then_some(follows)
    });
    let Some(Some(follows)) = change else {
        return;
    };
    // SAFETY: the GIL is held by who is told of an event.
    let Some(state) = thread_state::own(unsafe { Python::assume_attached() }) else {
        return;
    };
    let mut followers = followers();
    followers.retain(|ident| *ident != state.ident());
    if follows {
        followers.push(state.ident());
    }
    drop(followers);
    if !EVERYWHERE.load(Ordering::Relaxed) {
        set(state, follows && traces::follow_calls_now());
    }
}

/// Sets it on all threads, or on those that are inside a function whose calls are followed, or takes it from them, as is
/// wanted now.
pub(crate) fn refresh(py: Python<'_>) {
    let everywhere = setting::seeks_now() || table(py).needs_profile();
    let inside = traces::follow_calls_now();
    let was_everywhere = EVERYWHERE.swap(everywhere, Ordering::AcqRel);
    let was_inside = INSIDE.swap(inside, Ordering::AcqRel);
    if (everywhere, inside) == (was_everywhere, was_inside) {
        return;
    }
    let followers = followers().clone();
    for state in thread_state::thread_states(py) {
        let wanted = everywhere || inside && followers.contains(&state.ident());
        if wanted != state.has(Hook::Profile, profiled) {
            set(state, wanted);
        }
    }
    if everywhere || inside {
        thread::silence_ends();
    }
    if everywhere != was_everywhere {
        let begin = everywhere.then_some(begin_here as fn(Python<'_>));
        // Without it, threads that begin later are not profiled.
        drop(thread_state::on_new_threads(py, Hook::Profile, begin));
    }
}

/// How many threads tell another tool, so that what they call is not seen. Those that tell nobody, as such a tool has ended,
/// tell us again.
pub(crate) fn renew(py: Python<'_>) -> usize {
    let everywhere = EVERYWHERE.load(Ordering::Acquire);
    if !everywhere && !INSIDE.load(Ordering::Acquire) {
        return 0;
    }
    let followers = followers().clone();
    let mut others = 0;
    let mut is_news = false;
    for state in thread_state::thread_states(py) {
        let wanted = everywhere || followers.contains(&state.ident());
        if state.has_others(Hook::Profile, profiled) {
            others += 1;
        } else if wanted && !state.has(Hook::Profile, profiled) {
            set(state, true);
            is_news = true;
        }
    }
    if is_news {
        thread::silence_ends();
    }
    if everywhere {
        // As in `refresh`; one of another tool stays.
        drop(thread_state::on_new_threads(
            py,
            Hook::Profile,
            Some(begin_here),
        ));
    }
    others
}

/// In the child of a fork: threads of the parent are not there.
pub(crate) fn forget_followers() {
    followers().clear();
}

fn followers() -> MutexGuard<'static, Vec<u64>> {
    FOLLOWERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has all code be asked again whether a trace wants it.
pub(crate) fn restart(py: Python<'_>) {
    STRANGERS.forget(py);
}

/// How often it was told of something that no trace wants, since this was last asked.
pub(crate) fn passed_by() -> u64 {
    PASSED_BY.swap(0, Ordering::Relaxed)
}

/// Has a thread tell, or no more; one that another tool profiles is left as it is.
fn set(state: State<'_>, wanted: bool) {
    if !state.has_others(Hook::Profile, profiled) {
        state.set(Hook::Profile, wanted.then_some(profiled as TraceFunction));
    }
}

/// A new thread has a profile function of Python's that leads here.
fn begin_here(py: Python<'_>) {
    if EVERYWHERE.load(Ordering::Acquire)
        && let Some(state) = thread_state::own(py)
    {
        state.set(Hook::Profile, Some(profiled));
    }
}

/// Called by the interpreter, with the GIL held, for all that a thread calls.
///
/// # Safety
///
/// As `PyEval_SetProfile` says.
unsafe extern "C" fn profiled(
    _: *mut PyObject,
    frame: *mut PyFrameObject,
    what: c_int,
    argument: *mut PyObject,
) -> c_int {
    const CALL: c_int = 0;
    const RETURN: c_int = 3;
    let did = match what {
        CALL => TraceEventKind::Call,
        RETURN if argument.is_null() => TraceEventKind::Exception,
        RETURN => TraceEventKind::Return,
        // Functions of C are nobody's.
        _ => {
            if pass_by() >= LOOK_EVERY {
                // SAFETY: the interpreter calls profile functions with the GIL held.
                let py = unsafe { Python::assume_attached() };
                drop(panic::catch_unwind(|| accounting::look(py, false)));
            }
            return 0;
        }
    };
    // SAFETY: the interpreter calls profile functions with the GIL held, and the frame is alive.
    let frame = unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), frame.cast()) };
    let code = code_of(&frame);
    if thread::with_own(thread::Thread::has_been_silent) == Some(true) {
        look_what_runs(&frame, did);
    }
    if !is_done_with(&frame, code.as_ptr() as usize, did) {
        drop(panic::catch_unwind(AssertUnwindSafe(|| {
            if PASSED_BY.load(Ordering::Relaxed) >= LOOK_EVERY {
                accounting::look(frame.py(), false);
            }
            if did == TraceEventKind::Call {
                at_call(&frame, code);
            } else {
                at_return(&frame, code, did);
            }
        })));
    }
    0
}

/// Has this thread forget what it was in and has left meanwhile. What begins now it is not in yet.
#[cold]
fn look_what_runs(frame: &Bound<'_, PyAny>, did: TraceEventKind) {
    let begins = did == TraceEventKind::Call;
    let mut next = if begins {
        caller_of(frame)
    } else {
        Some(frame.clone())
    };
    let mut running = Vec::new();
    while let Some(frame) = next {
        running.push(probe_call::own_code(code_of(&frame)).as_ptr() as usize);
        next = caller_of(&frame);
    }
    running.reverse();
    thread::with_own(|thread| thread.forget_unless_among(&running));
}

/// What most calls need: whether no more is to be done about one.
#[inline]
fn is_done_with(frame: &Bound<'_, PyAny>, code: usize, did: TraceEventKind) -> bool {
    let py = frame.py();
    let Some(mut table) = table_if_free(py) else {
        return true;
    };
    let Some(entry) = table.entry(code) else {
        drop(table);
        return is_nobodys(py, code, did);
    };
    if entry.tells {
        return true;
    }
    let did = exactly(did, frame, entry.yields.as_ref());
    let told = match did {
        TraceEventKind::Call | TraceEventKind::Resume => fast_path::began(&mut table, code, did),
        TraceEventKind::Return | TraceEventKind::Yield => fast_path::ended(&mut table, code, did),
        TraceEventKind::Exception => None,
    };
    told.is_some()
}

/// What it did: to profile functions, to go on is to be called, and to yield is to return.
#[inline]
fn exactly(
    did: TraceEventKind,
    frame: &Bound<'_, PyAny>,
    yields: Option<&YieldPoints>,
) -> TraceEventKind {
    match (did, yields) {
        (TraceEventKind::Call, Some(yields)) if !yields.begins(frame) => TraceEventKind::Resume,
        (TraceEventKind::Return, Some(yields)) if yields.is_left_for_now(frame) => {
            TraceEventKind::Yield
        }
        _ => did,
    }
}

/// Whether code that nobody knows of is passed by: of such only the beginning may be news.
#[inline]
fn is_nobodys(py: Python<'_>, code: usize, did: TraceEventKind) -> bool {
    let passed_by = pass_by();
    let is_news = did == TraceEventKind::Call
        && (follows().is_some() || setting::is_seeking() && !STRANGERS.know(py, code));
    !is_news && passed_by < LOOK_EVERY
}

/// Counts what is told and nobody wants: how often, since the last look.
#[inline]
fn pass_by() -> u64 {
    // With the GIL nobody else counts meanwhile.
    let passed_by = PASSED_BY.load(Ordering::Relaxed) + 1;
    PASSED_BY.store(passed_by, Ordering::Relaxed);
    passed_by
}

/// The function whose calls this thread follows now, and how much further.
fn follows() -> Option<(usize, u32)> {
    thread::with_own(|thread| thread.follows()).flatten()
}

fn at_call(frame: &Bound<'_, PyAny>, running: Bound<'_, PyAny>) {
    let py = frame.py();
    let code = probe_call::own_code(running.clone());
    let address = code.as_ptr() as usize;
    let known = table_if_free(py).map(|table| table.entry(address).map(|entry| entry.tells));
    match known {
        None | Some(Some(true)) => return,
        Some(Some(false)) => {}
        Some(None) => {
            let is_followed =
                follows().is_some_and(|inside| callees::follow(code.clone(), frame, inside));
            if !is_followed && setting::is_seeking() && !setting::seek_in(&code, frame) {
                STRANGERS.add(running);
                return;
            }
        }
    }
    tell(frame, (&running, address), TraceEventKind::Call);
}

fn at_return(frame: &Bound<'_, PyAny>, running: Bound<'_, PyAny>, did: TraceEventKind) {
    let py = frame.py();
    let address = probe_call::own_code(running.clone()).as_ptr() as usize;
    let is_told = |entry: &Entry| !entry.tells;
    if table_if_free(py).is_some_and(|table| table.entry(address).is_some_and(is_told)) {
        tell(frame, (&running, address), did);
    }
}

/// What runs may be a twin of what is traced, which yields at other places.
fn tell(
    frame: &Bound<'_, PyAny>,
    (running, code): (&Bound<'_, PyAny>, usize),
    did: TraceEventKind,
) {
    let py = frame.py();
    let is_twin = running.as_ptr() as usize != code;
    let of_twin = is_twin.then(|| YieldPoints::of(running)).flatten();
    let heard = table_if_free(py).and_then(|mut table| {
        let yields = of_twin.as_ref().or(table.entry(code)?.yields.as_ref());
        let did = exactly(did, frame, yields);
        events::heard(py, &mut table, code, did)
    });
    let Some(heard) = heard else {
        return;
    };
    if heard.way.is_due {
        accounting::look(frame.py(), false);
    }
    if !heard.way.again && did == TraceEventKind::Call {
        // Muted: where nothing else is told, threads need no profile function for a while.
        refresh(frame.py());
    }
}
