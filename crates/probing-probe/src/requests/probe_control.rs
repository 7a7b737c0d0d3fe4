//! Starting and stopping the probe, for rooms below the one that does it.

use std::sync::OnceLock;

use pyo3::prelude::*;

static CONTROL: OnceLock<ProbeControl> = OnceLock::new();

/// What `server/lifecycle.rs` and `server/exit.rs` do.
pub(crate) struct ProbeControl {
    pub(crate) prepare: fn(Python<'_>) -> PyResult<()>,
    /// An error is told in words, with its hint.
    pub(crate) start: fn(Python<'_>) -> Result<bool, String>,
    pub(crate) stop: fn(Python<'_>) -> bool,
    pub(crate) may_be_started: fn() -> bool,
    pub(crate) follow_exit: fn(Python<'_>) -> PyResult<()>,
}

/// Called once, when the library is loaded.
pub(crate) fn register(control: ProbeControl) {
    CONTROL.set(control).ok();
}

fn control() -> &'static ProbeControl {
    CONTROL
        .get()
        .expect("registered when the library is loaded")
}

/// Does what is needed by all that works without a server, too.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    (control().prepare)(py)
}

/// Starts the probe; false when it runs already.
pub(crate) fn start(py: Python<'_>) -> Result<bool, String> {
    (control().start)(py)
}

/// Ends the probe; false when none runs.
pub(crate) fn stop(py: Python<'_>) -> bool {
    (control().stop)(py)
}

/// Whether the probe does not run, and nobody minds if it does.
pub(crate) fn may_be_started() -> bool {
    (control().may_be_started)()
}

/// From now on subsystems are told when the interpreter exits.
pub(crate) fn follow_exit(py: Python<'_>) -> PyResult<()> {
    (control().follow_exit)(py)
}
