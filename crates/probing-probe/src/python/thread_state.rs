//! Thread states of Python 3.10 and 3.11, as far as trace and profile functions are concerned.
//!
//! A thread with a trace function is told of every line, at three times the price of running it, because a mark in its
//! innermost C frame says so. Exceptions are told without that mark: taken away, they alone are told, and nothing else costs.
#![expect(unsafe_code, reason = "reads and writes fields of thread states")]

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;

use pyo3::ffi::{self, PyThreadState};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::python::immortal::Immortal;
use crate::python::symbols::{TraceFunction, symbols};

/// Tells of a thread whether its trace function is one of the probe's that needs no lines.
static IS_IDLE: OnceLock<fn(State<'_>) -> bool> = OnceLock::new();

/// From now on, trace functions of the probe are known by this.
pub(crate) fn know_idle_functions(is_idle: fn(State<'_>) -> bool) {
    IS_IDLE.set(is_idle).ok();
}

/// Which of its two functions a thread calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    /// Told of lines and exceptions, too.
    Trace,
    /// Told of calls and returns.
    Profile,
}

/// What a thread is to tell us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TraceDemand {
    Nothing,
    Exceptions,
    All,
}

/// Where a thread state has what we look at.
struct Layout {
    version: (u8, u8),
    /// The innermost C frame, which begins with the mark.
    frame: usize,
    profile: usize,
    trace: usize,
    ident: usize,
}

const LAYOUTS: [Layout; 2] = [
    Layout {
        version: (3, 10),
        frame: 48,
        profile: 56,
        trace: 64,
        ident: 176,
    },
    Layout {
        version: (3, 11),
        frame: 56,
        profile: 64,
        trace: 72,
        ident: 152,
    },
];

/// Where both have how often a thread is silent, an `int`.
const TRACING: usize = 44;

/// A thread state of this interpreter, while the GIL is held: no thread comes or goes meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct State<'py> {
    at: *mut PyThreadState,
    layout: &'static Layout,
    _gil: PhantomData<Python<'py>>,
}

/// Of all threads; none where the Python is another one.
pub(crate) fn thread_states(py: Python<'_>) -> Vec<State<'_>> {
    let symbols = symbols();
    let (Some(interpreter), Some(first), Some(next), Some(layout)) = (
        symbols.current_interpreter,
        symbols.first_thread,
        symbols.next_thread,
        layout(py),
    ) else {
        return Vec::new();
    };
    let mut states = Vec::new();
    // SAFETY: the GIL is held, as `py` shows, so no thread comes or goes; each is a thread state of this interpreter.
    unsafe {
        let mut state = first(interpreter());
        while !state.is_null() {
            states.push(State::new(py, state, layout));
            state = next(state);
        }
    }
    // A thread that C code has just made is among them before it is complete: it needs no GIL for that, only to run.
    states.retain(|state| !state.field::<*const c_void>(layout.frame).is_null());
    states
}

/// Of this thread.
pub(crate) fn own(py: Python<'_>) -> Option<State<'_>> {
    // SAFETY: the GIL is held, so this thread has a state.
    let state = unsafe { ffi::PyThreadState_Get() };
    layout(py).map(|layout| State::new(py, state, layout))
}

/// Runs code of ours in this thread, of which no trace or profile function is told: the program's own would see a stranger.
/// From 3.12 on, `sys.monitoring` sees to that.
pub(crate) fn untraced<T>(py: Python<'_>, code: impl FnOnce() -> T) -> T {
    counted(py, 1, code)
}

/// Runs code inside of [`untraced`] of which they are told.
pub(crate) fn traced_again<T>(py: Python<'_>, code: impl FnOnce() -> T) -> T {
    counted(py, -1, code)
}

fn counted<T>(py: Python<'_>, more: i32, code: impl FnOnce() -> T) -> T {
    let Some(state) = own(py) else {
        return code();
    };
    let _counted = SilenceCount::new(state, more);
    code()
}

/// Until it is dropped, a thread is told more or less often to be silent. While it is, its mark is away: with it, 3.11 does
/// not get past the beginning of a function as long as a signal waits that may not be handled.
struct SilenceCount<'py> {
    state: State<'py>,
    more: i32,
    functions: [*const c_void; 2],
    is_marked: bool,
}

impl<'py> SilenceCount<'py> {
    fn new(state: State<'py>, more: i32) -> Self {
        let is_marked = state.is_marked();
        state.count_tracing(more);
        state.mark_as_counted();
        Self {
            state,
            more,
            functions: state.functions(),
            is_marked,
        }
    }
}

impl Drop for SilenceCount<'_> {
    fn drop(&mut self) {
        let state = self.state;
        state.count_tracing(-self.more);
        if state.functions() == self.functions {
            state.write_mark(self.is_marked);
        } else {
            state.mark_as_counted();
        }
    }
}

/// Has threads that begin later do something in their first function, always the same for a hook, or no more. A hook of another
/// tool stays.
pub(crate) fn on_new_threads(
    py: Python<'_>,
    hook: Hook,
    begin: Option<fn(Python<'_>)>,
) -> PyResult<()> {
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(threading) = modules.get_item("threading") else {
        return Ok(());
    };
    let name = match hook {
        Hook::Trace => "_trace_hook",
        Hook::Profile => "_profile_hook",
    };
    let there = threading.getattr(name)?;
    let ours = ON_NEW_THREADS[hook as usize].get(py);
    match begin {
        Some(begin) if there.is_none() => {
            let ours = ON_NEW_THREADS[hook as usize].get_or_try_init(py, || {
                Immortal::closure(py, c"probing", move |args| {
                    begin(args.py());
                    Ok(args.py().None())
                })
            })?;
            threading.setattr(name, ours.bind(py))
        }
        None if ours.is_some_and(|ours| there.is(ours.bind(py))) => {
            threading.setattr(name, py.None())
        }
        _ => Ok(()),
    }
}

/// What a new thread calls first, by hook: it replaces itself while it runs, and other threads take it away meanwhile.
static ON_NEW_THREADS: [PyOnceLock<Immortal>; 2] = [const { PyOnceLock::new() }; 2];

fn layout(py: Python<'_>) -> Option<&'static Layout> {
    // Asked once: to tell a version is to read it from a text.
    static LAYOUT: OnceLock<Option<&Layout>> = OnceLock::new();
    *LAYOUT.get_or_init(|| {
        let version = py.version_info();
        let own = (version.major, version.minor);
        LAYOUTS.iter().find(|layout| layout.version == own)
    })
}

impl<'py> State<'py> {
    fn new(_: Python<'py>, state: *mut PyThreadState, layout: &'static Layout) -> Self {
        Self {
            at: state,
            layout,
            _gil: PhantomData,
        }
    }

    fn field<T: Copy>(self, offset: usize) -> T {
        // SAFETY: a thread state of this version has a field of such a type there, and the GIL is held.
        unsafe { *self.at.byte_add(offset).cast::<T>() }
    }

    /// How often this thread is inside of what is not told.
    fn count_tracing(self, more: i32) {
        // SAFETY: a thread state of this version has an `int` there, and the GIL is held.
        unsafe { *self.at.byte_add(TRACING).cast::<i32>() += more };
    }

    /// Gives it the mark that its functions and what it is told need, or takes it away.
    fn mark_as_counted(self) {
        if self.field::<i32>(TRACING) != 0 {
            self.write_mark(false);
            return;
        }
        let is_traced = !self.function(Hook::Trace).is_null();
        self.mark(is_traced && !self.has_idle_function());
    }

    /// Whether its trace function is ours, and needs no lines.
    fn has_idle_function(self) -> bool {
        IS_IDLE.get().is_some_and(|is_idle| is_idle(self))
    }

    /// As `threading.get_ident` tells it.
    pub(crate) fn ident(self) -> u64 {
        self.field(self.layout.ident)
    }

    fn function(self, hook: Hook) -> *const c_void {
        self.field(match hook {
            Hook::Trace => self.layout.trace,
            Hook::Profile => self.layout.profile,
        })
    }

    fn functions(self) -> [*const c_void; 2] {
        [Hook::Trace, Hook::Profile].map(|hook| self.function(hook))
    }

    /// Whether its function is this one.
    pub(crate) fn has(self, hook: Hook, function: TraceFunction) -> bool {
        self.function(hook) == function as *const c_void
    }

    /// Whether it is another tool's.
    pub(crate) fn has_others(self, hook: Hook, ours: TraceFunction) -> bool {
        !self.function(hook).is_null() && !self.has(hook, ours)
    }

    /// Has it tell this, by that function. One that another tool traces is left as it is.
    pub(crate) fn tell(self, tells: TraceDemand, function: TraceFunction) {
        if !self.has_others(Hook::Trace, function) {
            self.replace(tells, function);
        }
    }

    /// The same, whoever traces it.
    pub(crate) fn replace(self, tells: TraceDemand, function: TraceFunction) {
        let is_set = self.has(Hook::Trace, function);
        if is_set != (tells != TraceDemand::Nothing) {
            self.set(
                Hook::Trace,
                (tells != TraceDemand::Nothing).then_some(function),
            );
        }
        if tells != TraceDemand::Nothing {
            self.mark(tells == TraceDemand::All);
        }
    }

    /// Gives it a function, or takes it away, whoever's it is.
    pub(crate) fn set(self, hook: Hook, function: Option<TraceFunction>) {
        let setter = match hook {
            Hook::Trace => symbols().set_trace,
            Hook::Profile => symbols().set_profile,
        };
        let Some(set) = setter else {
            return;
        };
        // SAFETY: a thread state, with the GIL held. It fails only where an audit hook refuses; then that thread tells nothing.
        unsafe {
            if set(self.at, function, ptr::null_mut()) != 0 {
                ffi::PyErr_Clear();
            }
        }
    }

    /// Has a thread with a trace function tell lines, or no longer. Those it returns to get the mark from it.
    fn mark(self, wanted: bool) {
        let is_profiled = !self.function(Hook::Profile).is_null();
        self.write_mark(wanted || is_profiled);
    }

    fn is_marked(self) -> bool {
        let frame: *mut c_void = self.field(self.layout.frame);
        // SAFETY: as for `write_mark`. The first byte of an `int` that is 0 or 1 says which.
        !frame.is_null() && unsafe { frame.cast::<u8>().read() } != 0
    }

    fn write_mark(self, wanted: bool) {
        let frame: *mut c_void = self.field(self.layout.frame);
        if frame.is_null() {
            return;
        }
        // SAFETY: the C frame of a thread lives as long as its thread state points to it. It begins with an `int` in 3.10,
        // with a byte that is a mask in 3.11; the thread that reads it needs the GIL, which is held here.
        unsafe {
            if self.layout.version == (3, 10) {
                frame.cast::<i32>().write(i32::from(wanted));
            } else {
                frame.cast::<u8>().write(if wanted { 255 } else { 0 });
            }
        }
    }

    /// The same, for the end of an exception's event in this very thread: it puts the mark back by itself when our function
    /// returns. What it then lets go of is the tuple it gave us; what is in that takes the mark away again.
    ///
    /// # Safety
    ///
    /// `told` is the argument of that event.
    pub(crate) unsafe fn tell_exceptions_only_after(told: *mut ffi::PyObject) {
        // SAFETY: a tuple of three, as the caller says. With one reference nobody else sees that an item is another one now;
        // the interpreter has references of its own to what was in it.
        unsafe {
            if told.is_null() || ffi::Py_REFCNT(told) != 1 || ffi::PyTuple_Size(told) != 3 {
                return;
            }
            let last =
                ffi::PyCapsule_New(MARK.as_ptr().cast_mut().cast(), MARK.as_ptr(), Some(unmark));
            if last.is_null() {
                ffi::PyErr_Clear();
                return;
            }
            // Takes the reference over, and lets go of what was there.
            if ffi::PyTuple_SetItem(told, 0, last) != 0 {
                ffi::PyErr_Clear();
            }
        }
    }
}

const MARK: &CStr = c"probing";

/// # Safety
///
/// Called by the interpreter, with the GIL held.
unsafe extern "C" fn unmark(_: *mut ffi::PyObject) {
    // SAFETY: the GIL is held.
    let py = unsafe { Python::assume_attached() };
    if let Some(state) = own(py)
        && state.has_idle_function()
    {
        state.mark(false);
    }
}
