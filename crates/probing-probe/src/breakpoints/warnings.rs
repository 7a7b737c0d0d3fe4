//! Python warnings of expressions: caught in the thread that evaluates, and reported with the breakpoint.
//!
//! `warnings` hands what its filters let through to its function `_showwarnmsg`. While an expression is evaluated, a function
//! of ours stands there: it keeps what a thread that evaluates warns of, and passes on what others do. The filters and
//! `showwarning` stay the program's.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

use crate::eval::traceback::text_of;
use crate::python::call::call;
use crate::python::embedded::embedded;
use crate::python::gil_cell::GilCell;
use crate::python::immortal::Immortal;
use crate::python::interned::interned;

/// Different warnings that are kept of one evaluation.
const MAX_WARNINGS: usize = 4;

/// How many threads catch warnings, and what is called with those of others.
static SHOWING: GilCell<WarningCapture> = GilCell::new(WarningCapture {
    catching: 0,
    before: None,
});

struct WarningCapture {
    catching: u32,
    before: Option<Py<PyAny>>,
}

thread_local! {
    /// What this thread has been warned of, while it catches.
    static CAUGHT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs code of an expression in this thread; what it came to, and what Python warned of.
pub(crate) fn caught<T>(py: Python<'_>, code: impl FnOnce() -> T) -> (T, Vec<String>) {
    let is_caught = CAUGHT.with_borrow(Option::is_some);
    let Some(_catching) = (!is_caught).then(|| Catching::begin(py)).flatten() else {
        return (code(), Vec::new());
    };
    let result = code();
    let warnings = CAUGHT.with_borrow_mut(|caught| caught.as_mut().map(std::mem::take));
    (result, warnings.unwrap_or_default())
}

/// Loads what warnings are caught by. Without it, Python writes them to the program's standard error by itself.
pub(crate) fn prepare(py: Python<'_>) {
    drop(py.import("warnings"));
}

/// In a forked child only this thread is left.
pub(crate) fn after_fork(py: Python<'_>) {
    let is_caught = CAUGHT.with_borrow(Option::is_some);
    SHOWING.borrow_mut(py).catching = u32::from(is_caught);
    if !is_caught {
        put_back(py);
    }
}

/// This thread catches warnings until this is dropped.
struct Catching<'py>(Python<'py>);

impl<'py> Catching<'py> {
    fn begin(py: Python<'py>) -> Option<Self> {
        let names = names_of_warnings(py)?;
        let ours = ours(py).ok()?;
        let there = names.get_item(interned!(py, "_showwarnmsg")).ok()??;
        if !there.is(ours) {
            names.set_item(interned!(py, "_showwarnmsg"), ours).ok()?;
            let replaced = SHOWING.borrow_mut(py).before.replace(there.unbind());
            drop(replaced);
        }
        SHOWING.borrow_mut(py).catching += 1;
        CAUGHT.set(Some(Vec::new()));
        Some(Self(py))
    }
}

impl Drop for Catching<'_> {
    fn drop(&mut self) {
        CAUGHT.set(None);
        let is_last = {
            let mut showing = SHOWING.borrow_mut(self.0);
            showing.catching = showing.catching.saturating_sub(1);
            showing.catching == 0
        };
        if is_last {
            put_back(self.0);
        }
    }
}

/// Puts the function back that was there, unless the program has put another.
fn put_back(py: Python<'_>) {
    let before = SHOWING
        .borrow_mut(py)
        .before
        .as_ref()
        .map(|it| it.clone_ref(py));
    if let (Some(names), Some(before), Ok(ours)) = (names_of_warnings(py), before, ours(py))
        && let Ok(Some(there)) = names.get_item(interned!(py, "_showwarnmsg"))
        && there.is(ours)
    {
        // A dictionary of names takes a value for a name that it has.
        drop(names.set_item(interned!(py, "_showwarnmsg"), before));
    }
}

/// Those of the module that is loaded now.
fn names_of_warnings(py: Python<'_>) -> Option<Bound<'_, PyDict>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let modules = MODULES.get_or_try_init(py, || {
        let modules = py.import("sys")?.getattr("modules")?;
        Ok::<_, PyErr>(modules.cast_into::<PyDict>()?.unbind())
    });
    let module = modules.ok()?.bind(py).get_item(interned!(py, "warnings"));
    let module = module.ok()??.cast_into::<PyModule>().ok()?;
    Some(module.dict())
}

/// What stands in the place of `_showwarnmsg`.
fn ours(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static OURS: PyOnceLock<Immortal> = PyOnceLock::new();
    let ours = OURS.get_or_try_init(py, || {
        Immortal::closure(py, c"_showwarnmsg", |args| {
            let py = args.py();
            let warning = args.get_item(0)?;
            if CAUGHT.with_borrow(Option::is_some) {
                keep(&warning)?;
                return Ok(py.None());
            }
            let before = SHOWING
                .borrow_mut(py)
                .before
                .as_ref()
                .map(|it| it.clone_ref(py));
            match before {
                Some(before) => call(before.bind(py), (warning,)).map(Bound::unbind),
                None => Ok(py.None()),
            }
        })
    })?;
    Ok(ours.bind(py))
}

fn keep(warning: &Bound<'_, PyAny>) -> PyResult<()> {
    let told = text_of(&call(&capture_function(warning.py())?, (warning,))?);
    CAUGHT.with_borrow_mut(|caught| {
        if let Some(caught) = caught
            && caught.len() < MAX_WARNINGS
            && !caught.contains(&told)
        {
            caught.push(told);
        }
    });
    Ok(())
}

/// The function of `warned.py`.
fn capture_function(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace = NAMESPACE.get_or_try_init(py, || {
        embedded!(py, "warning_capture.py").map(Bound::unbind)
    })?;
    namespace.bind(py).as_any().get_item("told")
}
