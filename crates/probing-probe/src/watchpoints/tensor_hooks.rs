//! Tensors that the program itself has hooked: what its package calls for them.

use probing_proto::message::Failure;
use probing_proto::message::breakpoints::{BreakpointId, SetBreakpoint, SourceLocation};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::breakpoints::setting;
use crate::python::current_thread;
use crate::python::embedded;
use crate::recording::{self, Variable};
use crate::requests::request::Pending;
use crate::watchpoints;

/// Puts the functions into the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(arm, module)?)?;
    module.add_function(wrap_pyfunction!(disarm, module)?)?;
    module.add_function(wrap_pyfunction!(tensor_in_words, module)?)?;
    module.add_function(wrap_pyfunction!(tensor_changed, module)?)
}

/// Arm a point, as a message has it (as JSON); what came of it (as JSON).
#[pyfunction]
fn arm(py: Python<'_>, wanted: &str) -> PyResult<String> {
    embedded::prepare(py)?;
    let wanted: SetBreakpoint =
        serde_json::from_str(wanted).map_err(|error| PyValueError::new_err(error.to_string()))?;
    match setting::try_arm(py, wanted, (None, Pending::of_program()), None) {
        Ok(point) => serde_json::to_string(&point)
            .map_err(|error| PyRuntimeError::new_err(error.to_string())),
        Err(Failure { error, hint }) => {
            let hint = hint.map(|hint| format!("\nhint: {hint}"));
            Err(PyRuntimeError::new_err(error + &hint.unwrap_or_default()))
        }
    }
}

/// Disarm a point.
#[pyfunction]
fn disarm(py: Python<'_>, point: u32) {
    drop(setting::disarm(py, &[BreakpointId(point)]));
}

/// A tensor and its numbers, in words.
#[pyfunction]
fn tensor_in_words(tensor: &Bound<'_, PyAny>) -> PyResult<String> {
    embedded::prepare(tensor.py())?;
    Ok(watchpoints::with_numbers(tensor))
}

/// Record a change of a tensor that an operation has told of.
#[pyfunction]
fn tensor_changed(
    py: Python<'_>,
    name: &str,
    operation: &str,
    old: Option<&str>,
    new: &str,
    at: (String, String, u32),
) {
    let (func, file, lineno) = at;
    let at = SourceLocation { func, file, lineno };
    let row = Variable {
        point: None,
        name,
        old,
        new: Some(new),
        thread: None,
        thread_name: &current_thread::name(py),
        at: Some(&at),
        operation: Some(operation),
    };
    recording::variable(py, &row);
}
