//! The probe: a guest in someone else's Python process.
//!
//! One thread waits on a private Unix socket and never touches the interpreter. Code that a client sends runs on a
//! thread of its own, made for it and gone after it. Nothing here prints, exits, installs a signal handler (but the one
//! that a watch of bytes asks for: `traps`), changes the environment, holds the GIL while it waits, or lets a panic or an
//! exception out.

mod breakpoints;
mod eval;
mod inspect;
mod instrument;
mod process;
mod python;
pub(crate) mod recorders;
mod recording;
mod requests;
mod server;
mod trace;
mod watchpoints;

use pyo3::prelude::*;

/// Native half of the package ``probing``.
#[pymodule]
mod _probe {
    use std::panic::{self, AssertUnwindSafe};

    use pyo3::exceptions::PyOSError;
    use pyo3::prelude::*;

    use crate::process::own_key;
    use crate::server::lifecycle;

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Start the probe. Returns False when it runs already. Who attaches says when the process has started.
    #[pyfunction]
    #[pyo3(signature = (start_ticks=None))]
    fn start(py: Python<'_>, start_ticks: Option<u64>) -> PyResult<bool> {
        if let Some(ticks) = start_ticks {
            own_key::tell_start_ticks(ticks);
        }
        // OSError and nothing else: the start-up hook, which must stay silent, expects no other.
        match panic::catch_unwind(AssertUnwindSafe(|| lifecycle::start(py))) {
            Ok(started) => started.map_err(|error| PyOSError::new_err(error.with_hint())),
            Err(_) => Err(PyOSError::new_err(
                "the probe failed; this is a defect of Probing",
            )),
        }
    }

    /// What records rows, and what they are counted by.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::recording::add_to(module)?;
        crate::recording::step::add_to(module)?;
        crate::recorders::add_to(module)?;
        crate::trace::add_to(module)?;
        crate::recorders::torch::add_to(module)?;
        crate::watchpoints::tensor_hooks::add_to(module)
    }

    /// Stop the caller of the caller, if somebody follows this process. Returns whether it did.
    #[pyfunction]
    fn breakpoint(py: Python<'_>) -> bool {
        panic::catch_unwind(AssertUnwindSafe(|| crate::breakpoints::here(py))).unwrap_or(false)
    }

    /// Take the probe out: its thread ends, its files are removed. Returns False when none runs.
    #[pyfunction]
    fn stop(py: Python<'_>) -> bool {
        lifecycle::stop(py)
    }
}
