//! Embedded Python: code of ours in `python/` of this crate, loaded when it is first needed.
//!
//! It imports nothing that a program may lack: a tidy test has the list.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::python::call::call;
use crate::python::compile::{self, Mode};

/// The names that a file of `python/` defines.
macro_rules! embedded {
    ($py:expr, $file:literal) => {
        $crate::python::embedded::namespace_of(
            $py,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/python/", $file)),
            "<probing>",
        )
    };
}

pub(crate) use embedded;

/// Builtins as they were when the probe started: the program may replace or delete them.
pub(crate) struct Builtins {
    pub(crate) compile: Py<PyAny>,
    pub(crate) eval: Py<PyAny>,
    pub(crate) repr: Py<PyAny>,
}

/// `__future__.annotations.compiler_flag`
const FUTURE_ANNOTATIONS: u32 = 0x100_0000;

static BUILTINS: PyOnceLock<Builtins> = PyOnceLock::new();

/// Takes hold of what evals will need.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    BUILTINS.get_or_try_init(py, || {
        let builtins = py.import("builtins")?;
        let builtin = |name| builtins.getattr(name).map(Bound::unbind);
        Ok::<_, PyErr>(Builtins {
            compile: builtin("compile")?,
            eval: builtin("eval")?,
            repr: builtin("repr")?,
        })
    })?;
    Ok(())
}

/// Runs source of our own in a namespace of its own.
pub(crate) fn namespace_of<'py>(
    py: Python<'py>,
    source: &str,
    file: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let builtins = builtins(py)?;
    let namespace = PyDict::new(py);
    namespace.set_item("__name__", "probing._probe")?;
    // As `from __future__ import annotations` asks for: a program may be packed without that module.
    let code = compile::compile(py, source, file, Mode::Exec, FUTURE_ANNOTATIONS)?;
    call(builtins.eval.bind(py), (code, &namespace))?;
    Ok(namespace)
}

pub(crate) fn builtins(py: Python<'_>) -> PyResult<&Builtins> {
    BUILTINS
        .get(py)
        .ok_or_else(|| PyRuntimeError::new_err("the probe has not been started"))
}
