//! Evaluated code may be the first to import `threading`, which then must still know the main thread.
//!
//! Before 3.13 it takes the thread that imports it first for the main thread, and the end of the program waits for that
//! one. So an eval first sees to it that `threading` is there and right. Neither the start of a program nor the moment of
//! an attach has to pay for that import.

use pyo3::prelude::*;

use crate::process::fork_guard;
use crate::python::embedded::embedded;

/// Before evaluated code runs, on its thread.
pub(crate) fn prepare(py: Python<'_>) {
    if py.version_info() >= (3, 13) || is_loaded(py) {
        return;
    }
    // The child of a fork in the middle of this would find the module's lock held.
    let imported = fork_guard::kept_out(py, || embedded!(py, "main_thread_name.py"));
    // A program with a damaged standard library hears of it when it needs it.
    drop(imported);
}

fn is_loaded(py: Python<'_>) -> bool {
    py.import("sys")
        .and_then(|sys| sys.getattr("modules"))
        .and_then(|modules| modules.contains("threading"))
        .unwrap_or(false)
}
