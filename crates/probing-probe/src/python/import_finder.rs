//! A finder of modules that waits for modules which the program has not imported yet.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::python::call::call;
use crate::python::embedded::embedded;
use crate::python::immortal::Immortal;

/// `Finder` of `imports.py`, once a module was awaited.
static FINDER: PyOnceLock<Immortal> = PyOnceLock::new();

/// Has a function called with a module as soon as that has been imported.
#[pyfunction(name = "wait")]
pub(crate) fn wait_for(module: &Bound<'_, PyAny>, arrived: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = module.py();
    let finder = FINDER.get_or_try_init(py, || {
        let names = embedded!(py, "import_finder.py")?;
        let finder = call(&names.as_any().get_item("Finder")?, ())?;
        PyResult::Ok(Immortal::new(finder))
    })?;
    let wait = finder.bind(py).getattr("wait")?;
    call(&wait, (module, arrived)).map(drop)
}

/// Waits for it no longer.
#[pyfunction]
pub(crate) fn forget(module: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = module.py();
    match FINDER.get(py) {
        Some(finder) => call(&finder.bind(py).getattr("forget")?, (module,)).map(drop),
        None => Ok(()),
    }
}
