//! Instrumented code of Python 3.10 and 3.11 that reports calls and returns of traced functions.
//!
//! Python 3.10 and 3.11, which have no `sys.monitoring`: a chosen function gets code that tells when it runs, and
//! only that function pays for it. That is its own with some calls more (`sites.rs`). Generators and coroutines,
//! and functions that can have no such twin, get code that calls a function with their own code. What has no
//! function that could get anything is told by a profile function (`profile.rs`).
#![expect(unsafe_code, reason = "finds code by its address")]

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use probing_proto::message::trace::Scope;
use probing_store::ring::packed::TraceEventKind;
use pyo3::exceptions::{PyStopAsyncIteration, PyStopIteration};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::breakpoints;
use crate::instrument::probe_call::{self, CallEvent};
use crate::instrument::profile;
use crate::python::call::call;
use crate::python::code_search;
use crate::python::embedded::embedded;
use crate::python::gil_cell::GilGuard;
use crate::trace::code_table::{Entry, Table, table, table_if_free};
use crate::trace::events;
use crate::trace::fast_path;
use crate::trace::function_stats::Tracing;
use crate::trace::monitoring_tool;

pub(crate) const NAME: &str = "bytecode instrumentation";

/// A function that has code that tells, or may get it: here, what is put around it.
struct Swap {
    function: Py<PyAny>,
    original: Py<PyAny>,
    /// Once it was made.
    telling: Option<InstrumentedFunction>,
    is_on: bool,
}

/// Code that tells, and the function that it calls, which has the function's own code, or its twin's.
struct InstrumentedFunction {
    code: Py<PyAny>,
    inner: Py<PyAny>,
}

impl InstrumentedFunction {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            code: self.code.clone_ref(py),
            inner: self.inner.clone_ref(py),
        }
    }
}

/// Reached with the GIL held only.
static SWAPS: Mutex<Vec<Swap>> = Mutex::new(Vec::new());

/// Notes that a function has this code, so that it can be told of.
pub(crate) fn know(function: &Bound<'_, PyAny>) {
    let Ok(code) = function.getattr("__code__") else {
        return;
    };
    let mut swaps = swaps();
    let is_known = swaps.iter().any(|swap| swap.function.is(function));
    if !is_known {
        swaps.push(Swap {
            function: function.clone().unbind(),
            original: probe_call::own_code(code).unbind(),
            telling: None,
            is_on: false,
        });
    }
}

/// Has a code object tell what is wanted of it now.
pub(crate) fn tell(code: &Bound<'_, PyAny>) {
    let py = code.py();
    let wanted = TraceMechanism::of(py, code.as_ptr() as usize);
    if wanted == TraceMechanism::ByFunction {
        learn(code);
    }
    let functions: Vec<_> = {
        let swaps = swaps();
        let its = swaps.iter().filter(|swap| swap.original.is(code));
        its.map(|swap| swap.function.bind(py).clone()).collect()
    };
    let has_twin = breakpoints::tell_trace(code, &functions);
    for function in &functions {
        // What cannot be swapped is told by the profile function.
        drop(swap(
            function,
            wanted == TraceMechanism::ByFunction && !has_twin,
        ));
    }
    let mut tells = has_twin;
    swaps().retain(|swap| {
        let is_its = swap.original.is(code);
        tells |= is_its && swap.is_on;
        wanted != TraceMechanism::Nothing || swap.is_on || !is_its
    });
    if let Some(entry) = table(py).entry_there(code.as_ptr() as usize) {
        entry.tells = tells;
    }
    profile::refresh(py);
}

/// How code is to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TraceMechanism {
    Nothing,
    ByFunction,
    ByProfile,
}

impl TraceMechanism {
    fn of(py: Python<'_>, code: usize) -> Self {
        let table = table_if_free(py);
        let entry = table.as_ref().and_then(|table| table.entry(code));
        let is_wanted = |entry: &&Entry| !entry.wants().is_none() && !entry.is_muted();
        let Some(entry) = entry.filter(is_wanted) else {
            return Self::Nothing;
        };
        let by_function = |tracing: &Tracing| {
            let is_module = matches!(tracing.trace.wanted.scope, Scope::Module { .. });
            tracing.is_root() && !is_module
        };
        if entry.tracing.as_ref().is_none_or(by_function) {
            Self::ByFunction
        } else {
            Self::ByProfile
        }
    }
}

/// Whether functions of this code are to tell where they begin and end, by a twin.
pub(crate) fn wants_calls(py: Python<'_>, code: usize) -> bool {
    let suspends =
        |table: GilGuard<'_, Table>| table.entry(code).is_some_and(|entry| entry.suspends);
    !table_if_free(py).is_some_and(suspends)
        && TraceMechanism::of(py, code) == TraceMechanism::ByFunction
}

/// Whether they are to tell each line, by a twin.
pub(crate) fn wants_lines(py: Python<'_>, code: usize) -> bool {
    let has_lines = |table: GilGuard<'_, Table>| {
        let tracing = table.entry(code).and_then(|entry| entry.tracing.as_ref());
        tracing.is_some_and(|tracing| tracing.lines.is_some())
    };
    table_if_free(py).is_some_and(has_lines)
        && TraceMechanism::of(py, code) == TraceMechanism::ByFunction
}

/// Whether somebody wants to know of this code, be it muted.
pub(crate) fn knows(py: Python<'_>, code: usize) -> bool {
    table_if_free(py).is_some_and(|table| table.entry(code).is_some())
}

/// Finds the functions of a code object that was found.
fn learn(code: &Bound<'_, PyAny>) {
    let functions = || -> PyResult<Vec<Bound<'_, PyAny>>> {
        let names = code_search::namespace(code.py())?;
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
    if wanted && probe_call::own_code(now.clone()).is(&original) {
        inner.setattr("__code__", &now)?;
        function.setattr("__code__", code)?;
        breakpoints::has_code_of(&original, inner);
    } else if !wanted && now.is(code) {
        function.setattr("__code__", inner.getattr("__code__")?)?;
        breakpoints::has_code_of(&original, function);
    }
    let mut swaps = swaps();
    if let Some(swap) = swaps.iter_mut().find(|swap| swap.function.is(function)) {
        swap.telling = Some(telling);
        swap.is_on = wanted;
    }
    Ok(())
}

fn made(
    function: &Bound<'_, PyAny>,
    original: &Bound<'_, PyAny>,
) -> PyResult<Option<InstrumentedFunction>> {
    let py = function.py();
    let names = namespace(py)?;
    let get = |name: &str| names.as_any().get_item(name);
    let inner = call(&get("original")?, (function, original))?;
    let told = Bound::new(
        py,
        TraceConstant {
            code: original.as_ptr() as usize,
            function: inner.clone().unbind(),
        },
    )?;
    let [called, left, unwound] = [CallEvent::Call, CallEvent::Return, CallEvent::Unwind]
        .map(|tells| probe_call::new(original, tells));
    let ours = (told, &inner, called?, left?, unwound?);
    let code = call(&get("telling")?, (original, ours))?;
    Ok((!code.is_none()).then(|| InstrumentedFunction {
        code: code.unbind(),
        inner: inner.unbind(),
    }))
}

fn namespace(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace = NAMESPACE.get_or_try_init(py, || {
        embedded!(py, "trace_instrument.py").map(Bound::unbind)
    })?;
    Ok(namespace.bind(py))
}

fn swaps() -> MutexGuard<'static, Vec<Swap>> {
    SWAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What code that tells has among its constants.
#[pyclass(frozen, module = "probing._probe")]
struct TraceConstant {
    code: usize,
    #[pyo3(get)]
    function: Py<PyAny>,
}

#[pymethods]
impl TraceConstant {
    /// A generator, a coroutine, or what one awaits, that tells each time it runs.
    fn around(&self, inner: Py<PyAny>) -> Around {
        Around {
            code: self.code,
            inner,
            begun: AtomicBool::new(false),
            ended: AtomicBool::new(false),
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
    ended: AtomicBool,
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
        // It goes on, and is left by the exception that closes it.
        let goes_on = self.begun.load(Ordering::Relaxed) && !self.ended.load(Ordering::Relaxed);
        if goes_on {
            hear(py, self.code, TraceEventKind::Resume, None);
        }
        let closed = call(&close, ());
        if goes_on {
            self.ended.store(true, Ordering::Relaxed);
            hear(py, self.code, TraceEventKind::Exception, None);
        }
        closed
    }
}

impl Around {
    fn run<'py>(
        &self,
        py: Python<'py>,
        run: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let did = if self.begun.swap(true, Ordering::Relaxed) {
            TraceEventKind::Resume
        } else {
            TraceEventKind::Call
        };
        hear(py, self.code, did, None);
        let came = run();
        match &came {
            Ok(value) => hear(py, self.code, TraceEventKind::Yield, Some(value)),
            Err(error) => {
                self.ended.store(true, Ordering::Relaxed);
                let did = if error.is_instance_of::<PyStopAsyncIteration>(py) {
                    TraceEventKind::Return
                } else if !error.is_instance_of::<PyStopIteration>(py) {
                    TraceEventKind::Exception
                } else if self.is_step {
                    TraceEventKind::Yield
                } else {
                    TraceEventKind::Return
                };
                hear(py, self.code, did, Some(error.value(py).as_any()));
            }
        }
        came
    }
}

/// A function that tells was called. There is nothing to show.
#[inline]
pub(crate) fn called(py: Python<'_>, code: usize) -> bool {
    let quick =
        |mut table: GilGuard<'_, Table>| fast_path::began(&mut table, code, TraceEventKind::Call);
    if table_if_free(py).and_then(quick).is_none() {
        hear_calmly(py, code, TraceEventKind::Call, None);
    }
    false
}

/// It returns: whether somebody wants to see what.
#[inline]
pub(crate) fn returned(py: Python<'_>, code: usize) -> bool {
    let quick =
        |mut table: GilGuard<'_, Table>| fast_path::ended(&mut table, code, TraceEventKind::Return);
    table_if_free(py).and_then(quick).is_none() && !returned_unseen(py, code)
}

/// The same the long way, where nobody wants to see what; false: somebody does.
#[cold]
fn returned_unseen(py: Python<'_>, code: usize) -> bool {
    let has_tap =
        |table: GilGuard<'_, Table>| table.entry(code).is_some_and(|entry| entry.tap.is_some());
    let is_seen = table_if_free(py).is_some_and(has_tap);
    if !is_seen {
        hear_calmly(py, code, TraceEventKind::Return, None);
    }
    !is_seen
}

/// A function that tells its lines has come to one.
pub(crate) fn at_line(py: Python<'_>, code: usize, line: u32) {
    // Muted, or over: it gets its own code again when it is called next.
    monitoring_tool::at_line(py, code, line);
}

/// It returns this.
pub(crate) fn left(code: usize, value: &Bound<'_, PyAny>) {
    hear_calmly(value.py(), code, TraceEventKind::Return, Some(value));
}

/// It is left by this exception.
pub(crate) fn unwound(code: usize, error: &Bound<'_, PyAny>) {
    hear_calmly(error.py(), code, TraceEventKind::Exception, Some(error));
}

/// As [`hear`], for who is called by the interpreter: no panic leaves the probe.
fn hear_calmly(py: Python<'_>, code: usize, did: TraceEventKind, value: Option<&Bound<'_, PyAny>>) {
    drop(panic::catch_unwind(AssertUnwindSafe(|| {
        hear(py, code, did, value);
    })));
}

/// Something happened to a function that tells.
fn hear(py: Python<'_>, code: usize, did: TraceEventKind, value: Option<&Bound<'_, PyAny>>) {
    let heard = table_if_free(py).and_then(|mut table| events::heard(py, &mut table, code, did));
    let Some(heard) = heard else {
        return;
    };
    if heard.tap.is_some() || heard.way.is_due {
        monitoring_tool::pass_on(py, &heard, did, code, value);
    }
    if !heard.way.again && matches!(did, TraceEventKind::Call | TraceEventKind::Resume) {
        // Muted, or over: the function gets its own code again, and costs nothing.
        drop(panic::catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the entry keeps the code alive while it is in the table, and it was just found there.
            let code = unsafe { Bound::from_borrowed_ptr(py, code as *mut PyObject) };
            tell(&code);
        })));
    }
    profile::set_on_this_thread();
}

/// In the child of a fork, and at the end: every function has its own code again.
pub(crate) fn forget(py: Python<'_>) {
    let all: Vec<_> = swaps()
        .iter()
        .map(|swap| swap.function.clone_ref(py))
        .collect();
    for function in &all {
        drop(swap(function.bind(py), false));
    }
    let forgotten = std::mem::take(&mut *swaps());
    drop(forgotten);
    profile::forget_followers();
    profile::refresh(py);
}
