//! Exceptions as the user wants to read them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use probing_proto::message::{Raised, TracebackFrame, fit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTraceback};

use crate::guarded::call;

/// Sources of recent evals, so that tracebacks can show their lines: a function defined in one may raise in a later one.
static SOURCES: Mutex<VecDeque<(String, String)>> = Mutex::new(VecDeque::new());
const SOURCES_KEPT: usize = 32;
const LONGEST_SOURCE_KEPT: usize = 32 << 10;
/// Frames told of an endless recursion, at each end.
const FRAMES_AT_EACH_END: usize = 100;

/// Keeps the text of an eval for a while.
pub(crate) fn remember_source(file: String, source: &str) {
    if source.len() > LONGEST_SOURCE_KEPT {
        return;
    }
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    if sources.len() == SOURCES_KEPT {
        sources.pop_front();
    }
    sources.push_back((file, source.to_owned()));
}

/// All about an exception.
pub(crate) fn describe(py: Python<'_>, error: &PyErr) -> Raised {
    let exception = class_name(error.get_type(py).as_any());
    let message = error.value(py).str().map_or_else(
        |_| "<message not available>".to_owned(),
        |text| text_of(text.as_any()),
    );
    let traceback = formatted(py, error, "format_exception")
        .unwrap_or_else(|_| format!("{exception}: {message}\n"));
    Raised {
        frames: error.traceback(py).map(frames).unwrap_or_default(),
        exception,
        message: fit(message),
        traceback: fit(traceback),
    }
}

/// A syntax error: the place in the code, without the frames that led to compiling it.
pub(crate) fn without_frames(py: Python<'_>, error: &PyErr) -> String {
    fit(formatted(py, error, "format_exception_only").unwrap_or_else(|_| error.to_string()))
}

/// `"".join(traceback.<function>(error))`, with the evals' lines at hand.
fn formatted(py: Python<'_>, error: &PyErr, function: &str) -> PyResult<String> {
    let lines_known = py
        .import("linecache")?
        .getattr("cache")?
        .cast_into::<PyDict>()?;
    let sources = SOURCES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    for (file, source) in &sources {
        let lines: Vec<&str> = source.split_inclusive('\n').collect();
        lines_known.set_item(file, (source.len(), py.None(), lines, file))?;
    }
    let format = py.import("traceback")?.getattr(function)?;
    let lines = match function {
        // Before 3.12 the value does not know its traceback unless Python code has seen it.
        "format_exception" => call(
            &format,
            (error.get_type(py), error.value(py), error.traceback(py)),
        ),
        _ => call(&format, (error.value(py),)),
    };
    let text = lines
        .and_then(|lines| PyString::new(py, "").call_method1("join", (lines,)))
        .map(|text| text_of(&text));
    for (file, _) in &sources {
        // Another eval may have taken it out meanwhile.
        drop(lines_known.del_item(file));
    }
    text
}

fn frames(traceback: Bound<'_, PyTraceback>) -> Vec<TracebackFrame> {
    let mut frames = VecDeque::new();
    let mut next = Some(traceback.into_any());
    while let Some(entry) = next {
        if frames.len() == 2 * FRAMES_AT_EACH_END {
            frames.remove(FRAMES_AT_EACH_END);
        }
        frames.extend(frame(&entry).ok());
        next = entry
            .getattr("tb_next")
            .ok()
            .filter(|entry| !entry.is_none());
    }
    frames.into()
}

fn frame(entry: &Bound<'_, PyAny>) -> PyResult<TracebackFrame> {
    let code = entry.getattr("tb_frame")?.getattr("f_code")?;
    Ok(TracebackFrame {
        func: text_of(&code.getattr("co_name")?),
        file: text_of(&code.getattr("co_filename")?),
        lineno: entry.getattr("tb_lineno")?.extract().unwrap_or(0),
    })
}

fn class_name(class: &Bound<'_, PyAny>) -> String {
    let part = |name| {
        class
            .getattr(name)
            .map(|text| text_of(&text))
            .unwrap_or_default()
    };
    match part("__module__").as_str() {
        "builtins" | "__main__" => part("__qualname__"),
        module => format!("{module}.{}", part("__qualname__")),
    }
}

/// A Python string as text; what has no UTF-8 form (lone surrogates) is escaped.
pub(crate) fn text_of(string: &Bound<'_, PyAny>) -> String {
    if let Ok(text) = string.extract::<String>() {
        return text;
    }
    string
        .call_method1("encode", ("utf-8", "backslashreplace"))
        .and_then(|bytes| bytes.extract::<Vec<u8>>())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}
