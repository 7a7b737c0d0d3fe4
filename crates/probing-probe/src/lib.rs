//! The probe: a guest in someone else's Python process.
//!
//! One thread waits on a private Unix socket and never touches the interpreter. Code that a client sends runs on a
//! thread of its own, made for it and gone after it. Nothing here prints, exits, installs a signal handler (but the one
//! that a watch of bytes asks for: `traps`), changes the environment, holds the GIL while it waits, or lets a panic or an
//! exception out.

mod agent;
mod code;
mod codes;
mod collectives;
mod compiling;
mod connection;
mod detached;
mod directory;
mod dispatch;
mod eval;
mod evals;
mod files;
mod forked;
mod forks;
mod gradients;
mod guarded;
mod handled;
mod handlers;
mod handoff;
mod heap;
mod immortal;
mod imports;
mod interned;
mod interrupt;
mod last;
mod life;
mod lifecycle;
mod locals;
mod main_thread;
mod memory;
mod moment;
mod monitoring;
mod names;
mod objects;
mod outbox;
mod output;
mod peer;
mod place;
mod recording;
mod request;
mod server;
mod signals;
mod sink;
mod step;
mod stops;
mod strangers;
mod task;
mod threading;
mod torch;
mod trace;
mod traceback;
mod tracers;
mod traps;
mod usage;
mod weak;
mod worker;

use pyo3::prelude::*;

/// Native half of the package ``probing``.
#[pymodule]
mod _probe {
    use std::panic::{self, AssertUnwindSafe};

    use pyo3::exceptions::PyOSError;
    use pyo3::prelude::*;

    use super::lifecycle;

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Start the probe. Returns False when it runs already.
    #[pyfunction]
    fn start(py: Python<'_>) -> PyResult<bool> {
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
        super::recording::add_to(module)?;
        super::step::add_to(module)?;
        super::tracers::add_to(module)?;
        super::trace::add_to(module)?;
        super::torch::add_to(module)?;
        super::stops::hooks::add_to(module)
    }

    /// Stop the caller of the caller, if somebody follows this process. Returns whether it did.
    #[pyfunction]
    fn breakpoint(py: Python<'_>) -> bool {
        panic::catch_unwind(AssertUnwindSafe(|| super::stops::here(py))).unwrap_or(false)
    }

    /// Take the probe out: its thread ends, its files are removed. Returns False when none runs.
    #[pyfunction]
    fn stop(py: Python<'_>) -> bool {
        lifecycle::stop(py)
    }
}
