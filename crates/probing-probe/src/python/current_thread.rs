//! The thread that an event is met in.
#![expect(unsafe_code, reason = "pthread_self() has no safe face")]

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::python::interned::interned;
use crate::python::own_names::{named, own_attribute};

/// The calling thread, by the number that Python knows it by.
pub(crate) fn own_thread() -> u64 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::pthread_self() }
}

/// As `threading` calls it. Runs no Python, and takes none of its locks.
pub(crate) fn name(py: Python<'_>) -> String {
    name_of(py, own_thread())
}

/// Of any thread.
pub(crate) fn name_of(py: Python<'_>, ident: u64) -> String {
    let Some(threading) = named(py, interned!(py, "threading")) else {
        return "MainThread".to_owned();
    };
    known(&threading, ident).unwrap_or_else(|| format!("Thread {ident}"))
}

fn known(threading: &Bound<'_, PyAny>, ident: u64) -> Option<String> {
    let names = threading.cast::<PyModule>().ok()?.dict();
    let active = names
        .get_item(interned!(threading.py(), "_active"))
        .ok()??;
    let thread = active.cast_into::<PyDict>().ok()?.get_item(ident).ok()??;
    let name = own_attribute(&thread, interned!(threading.py(), "_name"))?;
    let name = name.cast_into_exact::<PyString>().ok()?;
    name.to_str().ok().map(str::to_owned)
}

/// Whether it is the first of the process, to which Python brings signals.
pub(crate) fn is_main() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// The kernel's number of it.
pub(crate) fn id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}
