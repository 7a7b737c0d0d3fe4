//! A program that has not imported torch yet.

use probing_proto::message::Failure;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::python::call::call;
use crate::python::embedded::embedded;
use crate::python::import_finder;
use crate::python::interned::interned;
use crate::python::signal_handlers;

/// Whether the program could import torch, as far as that can be known without importing it.
pub(crate) fn may_come(py: Python<'_>) -> bool {
    let found = function(py, "may_come").and_then(|may_come| call(&may_come, ()));
    found.is_ok_and(|found| found.is_truthy().unwrap_or(false))
}

/// Has Python tell when torch has been imported.
pub(crate) fn wait(py: Python<'_>) -> Result<(), Failure> {
    let arrived = wrap_pyfunction!(arrived, py);
    arrived
        .and_then(|arrived| {
            import_finder::wait_for(interned!(py, "torch").as_any(), arrived.as_any())
        })
        .map_err(|error| Failure::new(format!("cannot wait for the import of torch: {error}")))
}

/// Waits no longer.
pub(crate) fn forget(py: Python<'_>) {
    // It fails only when the interpreter ends.
    drop(import_finder::forget(interned!(py, "torch").as_any()));
}

/// torch has been imported.
#[pyfunction]
fn arrived(torch: &Bound<'_, PyAny>) {
    let listen = || {
        // There is nobody to tell; `torch status` shows that it waits still.
        drop(signal_handlers::aside(torch.py(), || {
            crate::recorders::torch::listen(torch)
        }));
    };
    drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(
        listen,
    )));
}

/// A function of `arrival.py`.
fn function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static OWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let own = OWN.get_or_try_init(py, || embedded!(py, "torch_import.py").map(Bound::unbind))?;
    own.bind(py).as_any().get_item(name)
}
