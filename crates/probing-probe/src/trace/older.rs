//! Python 3.10 and 3.11, which have no `sys.monitoring`: a chosen function gets code that tells when it runs, and only that
//! function pays for it. What has no function that could get it (all of a module, what a function calls) is told by a
//! profile function in C, on threads that need one.
//!
//! A thread that has a profile function already keeps it.
#![expect(unsafe_code, reason = "profile functions are set by the C interface")]

use std::ffi::c_int;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use probing_proto::trace::Scope;
use probing_store::packed::Did;
use pyo3::exceptions::{PyStopAsyncIteration, PyStopIteration};
use pyo3::ffi::{PyFrameObject, PyObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use super::events;
use super::quick;
use super::table::{Table, table, table_if_free};
use super::thread;
use super::tracing::Tracing;
use super::{accounts, arming, callees, tool};
use crate::codes;
use crate::eval;
use crate::guarded::call;
use crate::stops;
use crate::stops::lent::Lent;
use crate::stops::site::{self, Tells};
use crate::stops::states::{self, Hook, State};
use crate::stops::symbols::TraceFunction;
use crate::stops::{begins, code_of_frame, is_left_for_now};

/// A function whose code was swapped, or may be.
struct Swap {
    function: Py<PyAny>,
    original: Py<PyAny>,
    /// Once it was made.
    telling: Option<Telling>,
    is_on: bool,
}

/// Code that tells, and the function that it calls, which has the function's own code, or its twin's.
struct Telling {
    code: Py<PyAny>,
    inner: Py<PyAny>,
}

impl Telling {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            code: self.code.clone_ref(py),
            inner: self.inner.clone_ref(py),
        }
    }
}

/// Reached with the GIL held only.
static SWAPS: Mutex<Vec<Swap>> = Mutex::new(Vec::new());
/// Whether all threads have our profile function.
static EVERYWHERE: AtomicBool = AtomicBool::new(false);

/// Notes that a function has this code, so that it can be told of.
pub(super) fn know(function: &Bound<'_, PyAny>) {
    let Ok(code) = function.getattr("__code__") else {
        return;
    };
    let mut swaps = swaps();
    let is_known = swaps.iter().any(|swap| swap.function.is(function));
    if !is_known {
        swaps.push(Swap {
            function: function.clone().unbind(),
            original: site::own_code(code).unbind(),
            telling: None,
            is_on: false,
        });
    }
}

/// Has a code object tell what is wanted of it now.
pub(super) fn tell(code: &Bound<'_, PyAny>) {
    let py = code.py();
    let (is_wanted, by_function) = {
        let table = table();
        let entry = table.entry(code.as_ptr() as usize);
        let is_wanted = entry.is_some_and(|entry| !entry.wants().is_none() && !entry.is_muted());
        let tracing = entry.and_then(|entry| entry.tracing.as_ref());
        let by_function = |tracing: &Tracing| {
            let is_module = matches!(tracing.trace.wanted.scope, Scope::Module { .. });
            tracing.is_root() && !is_module
        };
        (is_wanted, tracing.is_none_or(by_function))
    };
    if is_wanted && by_function {
        learn(code);
    }
    let all: Vec<_> = {
        let swaps = swaps();
        let its = swaps.iter().filter(|swap| swap.original.is(code));
        its.map(|swap| swap.function.clone_ref(py)).collect()
    };
    for function in &all {
        // What cannot be swapped is told by the profile function.
        drop(swap(function.bind(py), is_wanted && by_function));
    }
    if !is_wanted {
        swaps().retain(|swap| swap.is_on || !swap.original.is(code));
    }
    refresh(py);
}

/// Finds the functions of a code object that was found.
fn learn(code: &Bound<'_, PyAny>) {
    let functions = || -> PyResult<Vec<Bound<'_, PyAny>>> {
        let names = codes::namespace(code.py())?;
        let found = call(&names.as_any().get_item("functions_of")?, (code,))?;
        found.try_iter()?.collect()
    };
    for function in functions().unwrap_or_default() {
        know(&function);
    }
}

/// Gives a function the code that tells, or its own again.
fn swap(function: &Bound<'_, PyAny>, wanted: bool) -> PyResult<()> {
    let py = function.py();
    let (original, telling, is_on) = {
        let swaps = swaps();
        let Some(swap) = swaps.iter().find(|swap| swap.function.is(function)) else {
            return Ok(());
        };
        let telling = swap.telling.as_ref().map(|telling| telling.clone_ref(py));
        (swap.original.clone_ref(py), telling, swap.is_on)
    };
    if is_on == wanted {
        return Ok(());
    }
    let now = function.getattr("__code__")?;
    let telling = match telling {
        Some(telling) => telling,
        None => match made(function, original.bind(py))? {
            Some(made) => made,
            None => return Ok(()),
        },
    };
    let (code, inner) = (telling.code.bind(py), telling.inner.bind(py));
    // Somebody else may have given it another code meanwhile, which then stays. Its own may be one with points in it.
    if wanted && site::own_code(now.clone()).is(&original) {
        inner.setattr("__code__", &now)?;
        function.setattr("__code__", code)?;
        stops::has_code_of(&original, inner);
    } else if !wanted && now.is(code) {
        function.setattr("__code__", inner.getattr("__code__")?)?;
        stops::has_code_of(&original, function);
    }
    let mut swaps = swaps();
    if let Some(swap) = swaps.iter_mut().find(|swap| swap.function.is(function)) {
        swap.telling = Some(telling);
        swap.is_on = wanted;
    }
    Ok(())
}

fn made(function: &Bound<'_, PyAny>, original: &Bound<'_, PyAny>) -> PyResult<Option<Telling>> {
    let py = function.py();
    let names = namespace(py)?;
    let get = |name: &str| names.as_any().get_item(name);
    let inner = call(&get("original")?, (function, original))?;
    let told = Bound::new(
        py,
        Told {
            code: original.as_ptr() as usize,
            function: inner.clone().unbind(),
        },
    )?;
    let called = site::new(original, Tells::Call)?;
    let left = site::new(original, Tells::Return)?;
    let code = call(&get("telling")?, (original, (told, &inner, called, left)))?;
    Ok((!code.is_none()).then(|| Telling {
        code: code.unbind(),
        inner: inner.unbind(),
    }))
}

fn namespace(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace = NAMESPACE.get_or_try_init(py, || {
        eval::namespace_of(py, include_str!("older.py"), "<probing>").map(Bound::unbind)
    })?;
    Ok(namespace.bind(py))
}

fn swaps() -> MutexGuard<'static, Vec<Swap>> {
    SWAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What code that tells has among its constants.
#[pyclass(frozen, module = "probing._probe")]
struct Told {
    code: usize,
    #[pyo3(get)]
    function: Py<PyAny>,
}

#[pymethods]
impl Told {
    fn enter(&self, py: Python<'_>) {
        hear(py, self.code, Did::Call, None);
    }

    fn left(&self, value: &Bound<'_, PyAny>) {
        hear(value.py(), self.code, Did::Return, Some(value));
    }

    fn unwound(&self, error: &Bound<'_, PyAny>) {
        hear(error.py(), self.code, Did::Exception, Some(error));
    }

    /// A generator, a coroutine, or what one awaits, that tells each time it runs.
    fn around(&self, inner: Py<PyAny>) -> Around {
        Around {
            code: self.code,
            inner,
            begun: AtomicBool::new(false),
            is_step: false,
        }
    }

    /// One step of an asynchronous generator.
    fn step(&self, inner: Py<PyAny>, is_first: bool) -> Around {
        Around {
            begun: AtomicBool::new(!is_first),
            is_step: true,
            ..self.around(inner)
        }
    }
}

#[pyclass(frozen, module = "probing._probe")]
struct Around {
    code: usize,
    inner: Py<PyAny>,
    begun: AtomicBool,
    /// What ends it with a value is then no end of the generator.
    is_step: bool,
}

#[pymethods]
impl Around {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __await__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.send(&py.None().into_bound(py))
    }

    fn send<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let send = self.inner.bind(value.py()).getattr("send")?;
        self.run(value.py(), || call(&send, (value,)))
    }

    #[pyo3(signature = (*args))]
    fn throw<'py>(&self, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let throw = self.inner.bind(args.py()).getattr("throw")?;
        self.run(args.py(), || call(&throw, args.clone()))
    }

    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let close = self.inner.bind(py).getattr("close")?;
        call(&close, ())
    }
}

impl Around {
    fn run<'py>(
        &self,
        py: Python<'py>,
        run: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let did = if self.begun.swap(true, Ordering::Relaxed) {
            Did::Resume
        } else {
            Did::Call
        };
        hear(py, self.code, did, None);
        let came = run();
        match &came {
            Ok(value) => hear(py, self.code, Did::Yield, Some(value)),
            Err(error) => {
                let did = if error.is_instance_of::<PyStopAsyncIteration>(py) {
                    Did::Return
                } else if !error.is_instance_of::<PyStopIteration>(py) {
                    Did::Exception
                } else if self.is_step {
                    Did::Yield
                } else {
                    Did::Return
                };
                hear(py, self.code, did, Some(error.value(py).as_any()));
            }
        }
        came
    }
}

/// A function that tells was called; whether it is to be told the long way, by [`Told`].
#[inline]
pub(crate) fn called(code: usize) -> bool {
    let quick = |mut table: Lent<'_, Table>| quick::began(&mut table, code, Did::Call);
    table_if_free().and_then(quick).is_none()
}

/// The same when it has returned.
#[inline]
pub(crate) fn returned(code: usize) -> bool {
    let quick = |mut table: Lent<'_, Table>| quick::ended(&mut table, code, Did::Return);
    table_if_free().and_then(quick).is_none()
}

/// Something happened to a function that tells.
fn hear(py: Python<'_>, code: usize, did: Did, value: Option<&Bound<'_, PyAny>>) {
    let heard = table_if_free().and_then(|mut table| events::heard(&mut table, code, did));
    let Some(heard) = heard else {
        return;
    };
    if heard.tap.is_some() || heard.way.is_due {
        tool::pass_on(py, &heard, did, code, value);
    }
    if !heard.way.again && matches!(did, Did::Call | Did::Resume) {
        // Muted, or over: the function gets its own code again, and costs nothing.
        drop(panic::catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the entry keeps the code alive while it is in the table, and it was just found there.
            let code = unsafe { Bound::from_borrowed_ptr(py, code as *mut PyObject) };
            tell(&code);
        })));
    }
    profile_this_thread();
}

/// Inside a function whose calls are followed, this thread has the profile function.
pub(super) fn profile_this_thread() {
    if EVERYWHERE.load(Ordering::Relaxed) {
        return;
    }
    let wants = thread::with_own(|thread| {
        let follows = thread.open.iter().any(|open| open.levels > 0);
        let is_change = follows != thread.is_profiled;
        thread.is_profiled = follows;
        is_change.then_some(follows)
    });
    if let Some(Some(follows)) = wants {
        // SAFETY: the GIL is held by who is told of an event.
        if let Some(state) = states::own(unsafe { Python::assume_attached() }) {
            set(state, follows);
        }
    }
}

/// Sets the profile function on all threads, or takes it from them, as is wanted now.
pub(super) fn refresh(py: Python<'_>) {
    let wanted = arming::is_seeking() || {
        let by_profile: Vec<usize> = table().told_by_profile();
        let swaps = swaps();
        by_profile.iter().any(|code| {
            !swaps
                .iter()
                .any(|swap| swap.is_on && swap.original.as_ptr() as usize == *code)
        })
    };
    if EVERYWHERE.swap(wanted, Ordering::AcqRel) == wanted {
        return;
    }
    for state in states::all(py) {
        set(state, wanted);
    }
    let begin = wanted.then_some(begin_here as fn(Python<'_>));
    // Without it, threads that begin later are not profiled.
    drop(states::on_new_threads(py, Hook::Profile, begin));
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
        && let Some(state) = states::own(py)
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
    if what != CALL && what != RETURN {
        return 0;
    }
    // SAFETY: the interpreter calls profile functions with the GIL held, and the frame is alive.
    unsafe {
        let py = Python::assume_attached();
        let frame = Bound::from_borrowed_ptr(py, frame.cast());
        drop(panic::catch_unwind(AssertUnwindSafe(|| {
            if what == CALL {
                at_call(&frame);
            } else {
                at_return(&frame, argument.is_null());
            }
        })));
    }
    0
}

fn at_call(frame: &Bound<'_, PyAny>) {
    let code = site::own_code(code_of_frame(frame));
    let address = code.as_ptr() as usize;
    if is_swapped(address) {
        return;
    }
    let is_known = table_if_free().is_none_or(|table| table.entry(address).is_some());
    if !is_known {
        if let Some(levels) = thread::with_own(|thread| thread.levels()).flatten() {
            callees::follow(code.clone(), levels);
        } else if arming::is_seeking() {
            arming::seek_in(&code, frame);
        }
    }
    let did = if begins(frame, &code) {
        Did::Call
    } else {
        Did::Resume
    };
    profile(frame.py(), address, did);
}

fn at_return(frame: &Bound<'_, PyAny>, by_exception: bool) {
    let address = site::own_code(code_of_frame(frame)).as_ptr() as usize;
    let is_known = table_if_free().is_some_and(|table| table.entry(address).is_some());
    if !is_known || is_swapped(address) {
        return;
    }
    let did = match by_exception {
        true => Did::Exception,
        false if is_left_for_now(frame) => Did::Yield,
        false => Did::Return,
    };
    profile(frame.py(), address, did);
}

fn profile(py: Python<'_>, code: usize, did: Did) {
    let heard = table_if_free().and_then(|mut table| events::heard(&mut table, code, did));
    let Some(heard) = heard else {
        return;
    };
    if heard.way.is_due {
        accounts::look(py, false);
    }
    if !heard.way.again && did == Did::Call {
        // Muted: where nothing else is told, threads need no profile function for a while.
        refresh(py);
    }
}

/// Whether a code object is one that tells by itself, or stands in the place of one.
fn is_swapped(code: usize) -> bool {
    let swaps = swaps();
    swaps.iter().any(|swap| {
        let is_it = |other: &Py<PyAny>| other.as_ptr() as usize == code;
        let telling = swap.telling.as_ref().map(|telling| &telling.code);
        swap.is_on && (is_it(&swap.original) || telling.is_some_and(is_it))
    })
}

/// In the child of a fork, and at the end: every function has its own code again.
pub(super) fn forget(py: Python<'_>) {
    let all: Vec<_> = swaps()
        .iter()
        .map(|swap| swap.function.clone_ref(py))
        .collect();
    for function in &all {
        drop(swap(function.bind(py), false));
    }
    let forgotten = std::mem::take(&mut *swaps());
    drop(forgotten);
    refresh(py);
}
