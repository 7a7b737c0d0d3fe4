//! A program that has not imported torch yet.

use probing_proto::message::Failure;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::eval;
use crate::guarded::call;
use crate::imports;
use crate::interned::interned;

/// Whether the program could import torch, as far as that can be known without importing it.
pub(super) fn may_come(py: Python<'_>) -> bool {
    let found = function(py, "may_come").and_then(|may_come| call(&may_come, ()));
    found.is_ok_and(|found| found.is_truthy().unwrap_or(false))
}

/// Has Python tell when torch has been imported.
pub(super) fn wait(py: Python<'_>) -> Result<(), Failure> {
    let arrived = wrap_pyfunction!(arrived, py);
    arrived
        .and_then(|arrived| imports::wait_for(interned!(py, "torch").as_any(), arrived.as_any()))
        .map_err(|error| Failure::new(format!("torch cannot be waited for: {error}")))
}

/// Waits no longer.
pub(super) fn forget(py: Python<'_>) {
    // It fails only when the interpreter ends.
    drop(imports::forget(interned!(py, "torch").as_any()));
}

/// torch has been imported.
#[pyfunction]
fn arrived(torch: &Bound<'_, PyAny>) {
    let listen = || {
        // There is nobody to tell; `torch status` shows that it waits still.
        drop(super::listen(torch));
    };
    drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(
        listen,
    )));
}

/// A function of `arrival.py`.
fn function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static OWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let own = OWN.get_or_try_init(py, || {
        eval::namespace_of(py, include_str!("arrival.py"), "<probing>").map(Bound::unbind)
    })?;
    own.bind(py).as_any().get_item(name)
}
