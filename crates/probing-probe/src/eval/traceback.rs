//! Exceptions as the user wants to read them.
//!
//! The reading is done by `traceback.py`, which is loaded when the first exception comes: a guest that nobody asks for
//! tracebacks does not import the module for them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use probing_proto::message::{Raised, TracebackFrame, fit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::python::call::call;
use crate::python::embedded::embedded;
use crate::python::text::text_of;

/// Sources of recent evals by file name: a function that one defined may raise in a later one.
static SOURCES: Mutex<VecDeque<(String, String)>> = Mutex::new(VecDeque::new());
const SOURCES_KEPT: usize = 32;
const MAX_SOURCE_BYTES: usize = 32 << 10;

/// Keeps the text of an eval for a while.
pub(crate) fn remember_source(file: String, source: &str) {
    if source.len() > MAX_SOURCE_BYTES {
        return;
    }
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    if sources.len() == SOURCES_KEPT {
        sources.pop_front();
    }
    sources.push_back((file, source.to_owned()));
}

/// The text of an eval, if it was kept.
pub(crate) fn source_of(file: &str) -> Option<String> {
    let sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    let found = sources.iter().find(|(own, _)| own == file);
    found.map(|(_, source)| source.clone())
}

/// All about an exception.
pub(crate) fn describe(py: Python<'_>, error: &PyErr) -> Raised {
    tell(py, error).unwrap_or_else(|_| {
        // The program has broken what tracebacks are made with.
        let exception = error
            .get_type(py)
            .name()
            .map_or_else(|_| String::new(), |name| text_of(name.as_any()));
        Raised {
            traceback: format!("{exception}\n"),
            exception,
            message: String::new(),
            frames: Vec::new(),
        }
    })
}

/// Where a syntax error is.
pub(crate) fn place(py: Python<'_>, error: &PyErr) -> String {
    let told = reader(py, "place").and_then(|place| call(&place, (error.value(py), sources())));
    fit(told.map_or_else(|_| "SyntaxError\n".to_owned(), |text| text_of(&text)))
}

fn tell(py: Python<'_>, error: &PyErr) -> PyResult<Raised> {
    let arguments = (
        error.get_type(py),
        error.value(py),
        error.traceback(py),
        sources(),
    );
    let told = call(&reader(py, "describe")?, arguments)?;
    let text = |index: usize| told.get_item(index).map(|text| fit(text_of(&text)));
    let frames = told.get_item(3)?;
    Ok(Raised {
        exception: text(0)?,
        message: text(1)?,
        traceback: text(2)?,
        frames: frames
            .try_iter()?
            .map(|frame| read_frame(&frame?))
            .collect::<PyResult<_>>()?,
    })
}

fn read_frame(frame: &Bound<'_, PyAny>) -> PyResult<TracebackFrame> {
    Ok(TracebackFrame {
        func: text_of(&frame.get_item(0)?),
        file: text_of(&frame.get_item(1)?),
        lineno: frame.get_item(2)?.extract()?,
    })
}

/// The source of a module that was imported from a zip file.
pub(crate) fn lines_in_archive(py: Python<'_>, file: &str) -> Option<Vec<String>> {
    let reader = reader(py, "lines_in_archive").ok()?;
    call(&reader, (file,)).ok()?.extract().ok()?
}

/// A function of `traceback.py`.
fn reader<'py>(py: Python<'py>, function: &str) -> PyResult<Bound<'py, PyAny>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace =
        NAMESPACE.get_or_try_init(py, || embedded!(py, "traceback_text.py").map(Bound::unbind))?;
    namespace.bind(py).as_any().get_item(function)
}

fn sources() -> Vec<(String, String)> {
    let sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    sources.iter().cloned().collect()
}
