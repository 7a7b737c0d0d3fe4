//! What Python calls: `record`, `event`, `declare`, and the two ends of a span.
#![expect(
    unsafe_code,
    reason = "takes arguments as Python passes them: a dictionary of keywords would cost more than the row"
)]

use std::ffi::CStr;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;

use probing_store::Value;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi::{self, Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::recording::call_site_cache::Site;
use crate::recording::values::{Plain, fit, in_words, plain_of, simplified};
use crate::recording::{kind_named, storage, trace, with_tables};
use probing_proto::tables::schema::{Kind, Storage};

/// Puts the functions into the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add(module, &raw mut RECORD)?;
    add(module, &raw mut EVENT)?;
    module.add_function(wrap_pyfunction!(declare, module)?)?;
    module.add_function(wrap_pyfunction!(span_begin, module)?)?;
    module.add_function(wrap_pyfunction!(span_end, module)?)?;
    module.add_function(wrap_pyfunction!(storage_of_rows, module)?)
}

const RECORD_DOC: &CStr = c"record($module, table, /, **values)\n--\n\nAppend a row to a table.";
const EVENT_DOC: &CStr =
    c"event($module, name, /, **attributes)\n--\n\nRecord that something happened.";

static mut RECORD: ffi::PyMethodDef = method(c"record", record, RECORD_DOC);
static mut EVENT: ffi::PyMethodDef = method(c"event", event, EVENT_DOC);

const fn method(
    name: &'static CStr,
    function: ffi::PyCFunctionFastWithKeywords,
    doc: &'static CStr,
) -> ffi::PyMethodDef {
    ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFastWithKeywords: function,
        },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: doc.as_ptr(),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "functions of the module, which who calls them holds"
)]
fn add(module: &Bound<'_, PyModule>, definition: *mut ffi::PyMethodDef) -> PyResult<()> {
    let py = module.py();
    let name = module.name()?;
    // SAFETY: the definition is static and nobody changes it; module and name are live objects.
    let function = unsafe {
        let function = ffi::PyCFunction_NewEx(definition, module.as_ptr(), name.as_ptr());
        Bound::from_owned_ptr_or_err(py, function)?
    };
    let name = function.getattr("__name__")?;
    module.setattr(name.cast_into::<PyString>()?, function)
}

unsafe extern "C" fn record(
    _module: *mut PyObject,
    arguments: *const *mut PyObject,
    positional: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python calls this as it promises to.
    unsafe { called(arguments, positional, names, record_row) }
}

unsafe extern "C" fn event(
    _module: *mut PyObject,
    arguments: *const *mut PyObject,
    positional: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python calls this as it promises to.
    unsafe { called(arguments, positional, names, trace::event) }
}

/// What was passed: one argument by position, the others by name.
pub(super) struct CallArguments<'a, 'py> {
    pub(super) py: Python<'py>,
    first: *mut PyObject,
    /// A tuple, or null.
    names: *mut PyObject,
    objects: &'a [*mut PyObject],
}

/// Lets nothing out but exceptions.
///
/// # Safety
///
/// The arguments are those of a call by the interpreter with `METH_FASTCALL | METH_KEYWORDS`.
unsafe fn called(
    arguments: *const *mut PyObject,
    positional: Py_ssize_t,
    names: *mut PyObject,
    work: fn(&CallArguments<'_, '_>) -> PyResult<()>,
) -> *mut PyObject {
    let body = || {
        // SAFETY: whoever calls a function of a module has the GIL.
        let py = unsafe { Python::assume_attached() };
        if positional != 1 {
            return Err(PyTypeError::new_err(format!(
                "takes one positional argument, a name, and values by keyword ({positional} were given)"
            )));
        }
        let count = if names.is_null() {
            0
        } else {
            // SAFETY: a tuple, as Python promises.
            unsafe { ffi::PyTuple_Size(names) as usize }
        };
        // SAFETY: as Python promises: one positional argument, then one object for each name.
        let (first, objects) = unsafe {
            (
                *arguments,
                std::slice::from_raw_parts(arguments.add(1), count),
            )
        };
        work(&CallArguments {
            py,
            first,
            names,
            objects,
        })
    };
    let result = panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(PyRuntimeError::new_err(
            "recording failed; this is a defect of Probing",
        ))
    });
    // SAFETY: a function of Python is called with the GIL held; None is a new reference.
    unsafe {
        match result {
            Ok(()) => ffi::Py_NewRef(ffi::Py_None()),
            Err(error) => {
                error.restore(Python::assume_attached());
                ptr::null_mut()
            }
        }
    }
}

impl<'py> CallArguments<'_, 'py> {
    pub(super) fn first(&self) -> PyResult<Bound<'py, PyString>> {
        // SAFETY: an argument is alive while the call lasts.
        let first: Bound<'py, PyAny> = unsafe { Bound::from_borrowed_ptr(self.py, self.first) };
        if let Ok(name) = first.cast::<PyString>() {
            return Ok(name.clone());
        }
        let kind = first.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "the name is a str, not {kind}"
        )))
    }

    fn names(&self) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if self.names.is_null() {
            return Ok(None);
        }
        // SAFETY: a tuple that is alive while the call lasts.
        let names: Bound<'_, PyAny> = unsafe { Bound::from_borrowed_ptr(self.py, self.names) };
        Ok(Some(names.cast_into::<PyTuple>()?))
    }

    /// Values by name. Those that cannot be recorded as they are have been asked for a number or a text.
    pub(super) fn values(&self) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let Some(names) = self.names()? else {
            return Ok(Vec::new());
        };
        let pairs = names.iter().zip(self.objects);
        pairs
            .map(|(name, &object)| {
                // SAFETY: an argument is alive while the call lasts.
                let object = unsafe { Bound::from_borrowed_ptr(self.py, object) };
                Ok((name.extract()?, plainly(object)?))
            })
            .collect()
    }
}

/// The value, or what can be recorded in its place.
pub(super) fn plainly(object: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    if plain_of(&object) == Plain::Odd {
        simplified(&object)
    } else {
        Ok(object)
    }
}

fn record_row(passed: &CallArguments<'_, '_>) -> PyResult<()> {
    let CallArguments {
        py,
        first,
        names,
        objects,
    } = *passed;
    // SAFETY: arguments of a call, with the GIL held.
    let done = with_tables(py, |tables| unsafe {
        tables.append_known(first, names, objects)
    });
    if done { Ok(()) } else { record_new(passed) }
}

/// A row of a table, or with keys, or with values that have not been seen before.
#[cold]
fn record_new(passed: &CallArguments<'_, '_>) -> PyResult<()> {
    let name = passed.first()?;
    let mut values = passed.values()?;
    let table = name.to_str()?;
    loop {
        let wanted: Vec<(&str, Kind)> = values
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), plain_of(value).kind()?)))
            .collect();
        let outcome = with_tables(passed.py, |tables| -> PyResult<Result<Outcome, usize>> {
            let index = tables.table_for(table, &wanted)?;
            tables.note_left_out(index, &wanted);
            let Some(table) = tables.get(index) else {
                return Ok(Ok(Outcome::default()));
            };
            let mut row = vec![Value::Null; table.kinds.len()];
            let mut places = Vec::with_capacity(values.len());
            for (number, (name, value)) in values.iter().enumerate() {
                let place = table.place(name);
                places.push(place.map_or(table.without_column(), |place| place as u16));
                let Some(place) = place else { continue };
                match (fit(plain_of(value), table.kinds[place]), table.kinds[place]) {
                    (Ok(value), _) => row[place] = value,
                    // A number in a column of text is told in words, for which Python must be asked.
                    (Err(_), Kind::Text) => return Ok(Err(number)),
                    // The columns of this table have changed too often: this value is left out.
                    (Err(_), _) => {}
                }
            }
            let changes = table.changes;
            table.append(&row);
            Ok(Ok(Outcome {
                index,
                changes,
                places,
            }))
        })?;
        match outcome {
            Ok(outcome) => return remember(passed, &name, outcome),
            Err(number) => values[number].1 = in_words(&values[number].1)?,
        }
    }
}

#[derive(Default)]
struct Outcome {
    index: usize,
    changes: u32,
    places: Vec<u16>,
}

/// So that the next row from the same line is written without looking anything up.
fn remember(
    passed: &CallArguments<'_, '_>,
    name: &Bound<'_, PyString>,
    outcome: Outcome,
) -> PyResult<()> {
    let Some(names) = passed.names()? else {
        return Ok(());
    };
    // A type derived from `str` could do something when it is let go of.
    if !name.is_exact_instance_of::<PyString>() {
        return Ok(());
    }
    let site = Site {
        table: name.clone().into_any().unbind(),
        names: names.into_any().unbind(),
        index: outcome.index,
        changes: outcome.changes,
        places: outcome.places,
    };
    let forgotten = with_tables(passed.py, |tables| tables.sites.remember(site));
    drop(forgotten);
    Ok(())
}

/// Declare the columns of a table: names, and `bool`, `int`, `float` or `str`.
#[pyfunction]
fn declare(py: Python<'_>, table: &str, columns: Vec<(String, String)>) -> PyResult<()> {
    let columns = columns
        .iter()
        .map(|(name, kind)| Ok((name.as_str(), kind_named(kind)?)))
        .collect::<PyResult<Vec<(&str, Kind)>>>()?;
    with_tables(py, |tables| tables.declare(table, &columns))?;
    Ok(())
}

/// Note that a span is entered. Returns its number, and when that was.
#[pyfunction]
#[pyo3(signature = (name, parent, attributes))]
fn span_begin(
    py: Python<'_>,
    name: &str,
    parent: Option<i64>,
    attributes: &Bound<'_, PyDict>,
) -> PyResult<(i64, i64)> {
    trace::begin(py, name, parent, attributes)
}

/// Note that a span is left.
#[pyfunction]
#[pyo3(signature = (span, name, parent, error, attributes))]
fn span_end(
    py: Python<'_>,
    span: (i64, i64),
    name: &str,
    parent: Option<i64>,
    error: Option<&str>,
    attributes: &Bound<'_, PyDict>,
) -> PyResult<()> {
    trace::end(
        py,
        name,
        &trace::EndedSpan {
            span,
            parent,
            error,
        },
        attributes,
    )
}

/// Where rows go: None before the first, `"shared"`, or why they are in this process's memory only.
#[pyfunction]
#[pyo3(name = "storage")]
fn storage_of_rows(py: Python<'_>) -> Option<String> {
    storage(py).map(|storage| match storage {
        Storage::Shared => "shared".to_owned(),
        Storage::Heap { reason } => format!("heap: {reason}"),
    })
}
