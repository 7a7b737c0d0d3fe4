//! Live objects for the completion and help of a prompt.
//!
//! The looking is done by `objects.py`, loaded when the first asks.

use probing_proto::message::completion::{
    Complete, Completion, CompletionKind, Describe, Description, Scope, Step,
};
use probing_proto::message::{Event, Failure, FrameSelector};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyMapping};

use crate::eval::namespace;
use crate::eval::thread_lookup::Thread;
use crate::eval::traceback::text_of;
use crate::python::call::call;
use crate::python::embedded::embedded;
use crate::python::main_thread_name;

/// How the name may go on.
pub(crate) fn complete(py: Python<'_>, wanted: &Complete) -> Event {
    let look = match wanted.look {
        CompletionKind::Names => "names",
        CompletionKind::Own => "own",
        CompletionKind::Attributes => "attributes",
        CompletionKind::Keys => "keys",
        CompletionKind::Modules => "modules",
    };
    let found = |names: Names<'_>| -> PyResult<Vec<Completion>> {
        let steps = steps(py, &wanted.steps)?;
        let arguments = (steps, look, &wanted.prefix, names.own, names.all);
        let found = call(&function(py, "complete")?, arguments)?;
        found.try_iter()?.map(|pair| completion(&pair?)).collect()
    };
    let names = names_in(py, &wanted.scope);
    names.map_or_else(Event::Failed, |names| match found(names) {
        Ok(completions) => Event::Completions { completions },
        Err(error) => Event::Failed(failed(error)),
    })
}

/// What the object at the end of the steps is; `None` when it is not there or cannot be reached without running code.
pub(crate) fn describe(py: Python<'_>, wanted: &Describe) -> Event {
    let told = |names: Names<'_>| -> PyResult<Option<Description>> {
        let arguments = (steps(py, &wanted.steps)?, names.all);
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
    let names = names_in(py, &wanted.scope);
    names.map_or_else(Event::Failed, |names| match told(names) {
        Ok(description) => Event::Described { description },
        Err(error) => Event::Failed(failed(error)),
    })
}

/// Names that code in a scope finds: those that are its own, and all but the builtins.
struct Names<'py> {
    own: Bound<'py, PyDict>,
    all: Bound<'py, PyDict>,
}

fn names_in<'py>(py: Python<'py>, scope: &Scope) -> Result<Names<'py>, Failure> {
    let Some(depth) = scope.frame else {
        let main = namespace::main_namespace(py).map_err(failed)?;
        let (own, all) = (main.clone(), main);
        return Ok(Names { own, all });
    };
    main_thread_name::prepare(py);
    let thread = Thread::find(py, scope.thread.as_deref().unwrap_or("main"))?;
    let frame = thread.frame(py, &FrameSelector::from(depth))?;
    let names = || -> PyResult<Names<'py>> {
        let own = PyDict::new(py);
        own.update(frame.getattr("f_locals")?.cast::<PyMapping>()?)?;
        let all = frame.getattr("f_globals")?.cast::<PyDict>()?.copy()?;
        all.update(own.as_mapping())?;
        Ok(Names { own, all })
    };
    names().map_err(failed)
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

fn failed(error: impl Into<PyErr>) -> Failure {
    let error = error.into();
    Failure::new(format!("cannot read the program's objects: {error}"))
}

/// A function of `objects.py`.
fn function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace =
        NAMESPACE.get_or_try_init(py, || embedded!(py, "objects.py").map(Bound::unbind))?;
    namespace.bind(py).as_any().get_item(name)
}
