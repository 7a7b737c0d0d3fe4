//! The memory of tensors on a GPU.
//!
//! Asking torch takes longer than a row: once in a step, unless more is asked for.

use probing_proto::message::torch::MemoryRead;
use pyo3::prelude::*;

use crate::python::call::call;
use crate::python::interned::interned;
use crate::python::signal_handlers;
use crate::recorders::torch::state;

pub(crate) fn after_module(py: Python<'_>) -> Option<(i64, i64)> {
    state::reads_module_memory().then(|| read(py)).flatten()
}

pub(crate) fn after_step(py: Python<'_>) -> Option<(i64, i64)> {
    let asked = state::state(py)?.memory_read();
    (asked != MemoryRead::Never).then(|| read(py)).flatten()
}

/// Bytes now, and at most so far. `None` where no GPU is in use.
fn read(py: Python<'_>) -> Option<(i64, i64)> {
    let cuda = state::state(py)?.torch.as_ref()?.cuda.clone_ref(py);
    let cuda = cuda.into_bound(py);
    // What `is_initialized` asks first. Where there is no such name, that is asked.
    let begun = cuda.getattr(interned!(py, "_initialized"));
    if begun.is_ok_and(|begun| !begun.is_truthy().unwrap_or(true)) {
        return None;
    }
    let ask = |name: &str| call(&cuda.getattr(name)?, ());
    let bytes = |name: &str| ask(name)?.extract::<i64>();
    let read = || {
        let is_begun = ask("is_initialized")?.is_truthy()?;
        let read = || Ok((bytes("memory_allocated")?, bytes("max_memory_allocated")?));
        is_begun.then(read).transpose()
    };
    signal_handlers::given_aside(py, read)?
}
