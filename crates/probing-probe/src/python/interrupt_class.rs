//! The exception by which code of a client is interrupted.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// What comes to code that is interrupted: a `KeyboardInterrupt` in all but identity, so that it is not taken for the program's.
pub(crate) fn class(py: Python<'_>) -> Bound<'_, PyType> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        let base = py.get_type::<PyKeyboardInterrupt>();
        PyErr::new_type(py, c"builtins.KeyboardInterrupt", None, Some(&base), None)
    });
    match class {
        Ok(class) => class.bind(py).clone(),
        // Without memory for it.
        Err(_) => py.get_type::<PyKeyboardInterrupt>(),
    }
}

/// Whether an interrupt of ours is what was raised.
pub(crate) fn is_ours(py: Python<'_>, error: &PyErr) -> bool {
    error.get_type(py).is(class(py))
}
