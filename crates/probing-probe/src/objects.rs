//! Answers what a prompt asks about live objects. The looking is done by `objects.py`, loaded when the first asks.

use probing_proto::message::{Event, Failure};
use probing_proto::names::{Complete, Completion, Description, Look, Step};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

use crate::eval;
use crate::guarded::call;
use crate::names;
use crate::traceback::text_of;

/// How the name may go on.
pub(crate) fn complete(py: Python<'_>, wanted: &Complete) -> Event {
    let look = match wanted.look {
        Look::Names => "names",
        Look::Own => "own",
        Look::Attributes => "attributes",
        Look::Keys => "keys",
        Look::Modules => "modules",
    };
    let found = || -> PyResult<Vec<Completion>> {
        let main = names::main_namespace(py)?;
        let arguments = (steps(py, &wanted.steps)?, look, &wanted.prefix, main);
        let found = call(&function(py, "complete")?, arguments)?;
        found.try_iter()?.map(|pair| completion(&pair?)).collect()
    };
    match found() {
        Ok(completions) => Event::Completions { completions },
        Err(error) => failed(error),
    }
}

/// What the object at the end of the steps is; `None` when it is not there or cannot be reached without running code.
pub(crate) fn describe(py: Python<'_>, way: &[Step]) -> Event {
    let told = || -> PyResult<Option<Description>> {
        let arguments = (steps(py, way)?, names::main_namespace(py)?);
        let told = call(&function(py, "describe")?, arguments)?;
        if told.is_none() {
            return Ok(None);
        }
        let more = told.get_item(1)?.cast_into::<PyDict>()?;
        let text = |name: &str| -> PyResult<Option<String>> {
            Ok(more.get_item(name)?.map(|value| text_of(&value)))
        };
        Ok(Some(Description {
            kind: text_of(&told.get_item(0)?),
            signature: text("signature")?,
            doc: text("doc")?,
            file: text("file")?,
            lineno: more
                .get_item("lineno")?
                .and_then(|line| line.extract().ok()),
            facts: told
                .get_item(2)?
                .try_iter()?
                .map(|fact| pair(&fact?))
                .collect::<PyResult<_>>()?,
        }))
    };
    match told() {
        Ok(description) => Event::Described { description },
        Err(error) => failed(error),
    }
}

fn steps<'py>(py: Python<'py>, steps: &[Step]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for step in steps {
        match step {
            Step::Name(name) => list.append(("name", name))?,
            Step::Index(index) => list.append(("index", index))?,
            Step::Key(key) => list.append(("key", key))?,
            Step::Module(module) => list.append(("module", module))?,
        }
    }
    Ok(list)
}

fn completion(found: &Bound<'_, PyAny>) -> PyResult<Completion> {
    let (text, kind) = pair(found)?;
    Ok(Completion { text, kind })
}

fn pair(pair: &Bound<'_, PyAny>) -> PyResult<(String, String)> {
    Ok((text_of(&pair.get_item(0)?), text_of(&pair.get_item(1)?)))
}

fn failed(error: PyErr) -> Event {
    let why = format!("the program's objects cannot be looked at: {error}");
    Event::Failed(Failure::new(why))
}

/// A function of `objects.py`.
fn function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace = NAMESPACE.get_or_try_init(py, || {
        eval::namespace_of(py, include_str!("objects.py"), "<probing>").map(Bound::unbind)
    })?;
    namespace.bind(py).as_any().get_item(name)
}
