//! Expressions of points, as compiled Python: a function of the variables that they mention.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Mutex, PoisonError};

use probing_proto::message::Failure;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::breakpoints::{events, warnings};
use crate::eval::traceback;
use crate::inspect::variables::Names;
use crate::python::address_hash::Address;
use crate::python::call::{call, call_plainly};
use crate::python::embedded::embedded;
use crate::python::frame;
use crate::python::immortal::Immortal;

/// Code objects that one expression is prepared for.
const MAX_PREPARED: usize = 256;
/// Different warnings that are kept of one expression.
const MAX_WARNINGS: usize = 4;

/// A condition, or the text of a log point.
pub(crate) struct Expression {
    formula: Py<PyAny>,
    /// By the address of the code, which is kept.
    prepared: Mutex<ByCode>,
    warnings: Mutex<Warnings>,
}

/// What Python has warned of when the expression was compiled or evaluated, each once.
#[derive(Default)]
struct Warnings {
    all: Vec<String>,
    /// How many of them were reported in a log line.
    logged: usize,
}

type ByCode = HashMap<usize, Arc<Prepared>, BuildHasherDefault<Address>>;

/// The expression as a function, for the frames of one code object.
struct Prepared {
    _code: Py<PyAny>,
    globals: Py<PyAny>,
    function: Py<PyAny>,
    /// Of the code; nothing for the body of a class, or what `exec` runs with locals of its own.
    names: Option<Names>,
    /// Those of them that the function takes.
    variables: Vec<Py<PyString>>,
}

/// What an expression is read as.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Condition,
    Template,
}

impl Expression {
    pub(crate) fn new(py: Python<'_>, kind: Kind, source: &str) -> Result<Self, Failure> {
        warnings::prepare(py);
        let compiled = || {
            let names = namespace(py)?.as_any();
            match kind {
                Kind::Condition => call(&names.get_item("condition")?, (source,)),
                Kind::Template => call(&names.get_item("template")?, (source, part(py)?)),
            }
        };
        let (formula, warnings) = warnings::caught(py, compiled);
        match formula {
            Ok(formula) => {
                let made = Self {
                    formula: formula.unbind(),
                    prepared: Mutex::default(),
                    warnings: Mutex::default(),
                };
                made.keep_warnings(warnings);
                Ok(made)
            }
            Err(error) => Err(Failure::new(format!("not an expression: {source}"))
                .with_hint(traceback::place(py, &error).trim().to_owned())),
        }
    }

    /// Its value in a frame. Runs code of the program; what Python warns of meanwhile is kept.
    pub(crate) fn value<'py>(&self, frame: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (value, warnings) = warnings::caught(frame.py(), || self.value_in(frame));
        self.keep_warnings(warnings);
        value
    }

    /// What Python has warned of, in words.
    pub(crate) fn warnings(&self) -> Option<String> {
        let warnings = self.warnings_kept();
        (!warnings.all.is_empty()).then(|| format!("warned: {}", warnings.all.join(", ")))
    }

    /// Warnings that no log line has reported yet.
    pub(crate) fn warnings_to_log(&self) -> Vec<String> {
        let mut warnings = self.warnings_kept();
        let count = warnings.all.len();
        let logged = std::mem::replace(&mut warnings.logged, count);
        warnings.all[logged..].to_vec()
    }

    fn keep_warnings(&self, more: Vec<String>) {
        if more.is_empty() {
            return;
        }
        let mut warnings = self.warnings_kept();
        for warning in more {
            if warnings.all.len() < MAX_WARNINGS && !warnings.all.contains(&warning) {
                warnings.all.push(warning);
            }
        }
    }

    fn warnings_kept(&self) -> std::sync::MutexGuard<'_, Warnings> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn value_in<'py>(&self, frame: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = frame.py();
        let prepared = self.prepared_for(frame)?;
        if let Some(values) = prepared.values(frame)? {
            return call_plainly(prepared.function.bind(py), &values);
        }
        let slowly = self.formula.bind(py).getattr("value_in")?;
        call(&slowly, (frame,))
    }

    /// Gets ready for frames of this code, with these names: what is made for that is there before a thread comes to it.
    pub(crate) fn prepare_for(&self, code: &Bound<'_, PyAny>, globals: &Bound<'_, PyAny>) {
        // What fails here fails again where it is asked for, and is told there.
        drop(self.prepare(code.clone(), globals.clone()));
    }

    /// The same for a twin of code that it is ready for: they have the same variables.
    pub(crate) fn prepare_for_twin(&self, original: &Bound<'_, PyAny>, twin: &Bound<'_, PyAny>) {
        let known = self.prepared().get(&(original.as_ptr() as usize)).cloned();
        if let Some(known) = known {
            self.keep(twin, Arc::new(known.of_twin(twin)));
        }
    }

    /// Lets go of the code that it was made ready for.
    pub(crate) fn forget(&self) {
        let forgotten = std::mem::take(&mut *self.prepared());
        drop(forgotten);
    }

    fn prepared_for(&self, frame: &Bound<'_, PyAny>) -> PyResult<Arc<Prepared>> {
        let code = frame::code_of(frame);
        let globals = frame::globals(frame)?;
        let known = self
            .prepared()
            .get(&(code.as_ptr() as usize))
            .filter(|prepared| prepared.globals.is(&globals))
            .cloned();
        match known {
            Some(known) => Ok(known),
            None => self.prepare(code, globals),
        }
    }

    fn prepare<'py>(
        &self,
        code: Bound<'py, PyAny>,
        globals: Bound<'py, PyAny>,
    ) -> PyResult<Arc<Prepared>> {
        let py = code.py();
        let maker = self.formula.bind(py).getattr("function_in")?;
        // It is compiled once more: what Python warns of is known.
        let (made, _) = warnings::caught(py, || call(&maker, (&code, &globals)));
        let made = made?;
        let names = made.get_item(1)?.cast_into::<PyTuple>()?;
        let variables = names
            .iter()
            .map(|name| Ok(name.cast_into::<PyString>()?.unbind()));
        let prepared = Arc::new(Prepared {
            function: made.get_item(0)?.unbind(),
            variables: variables.collect::<PyResult<_>>()?,
            globals: globals.unbind(),
            names: frame::is_function(&code).then(|| Names::of(&code)),
            _code: code.clone().unbind(),
        });
        self.keep(&code, Arc::clone(&prepared));
        Ok(prepared)
    }

    fn keep(&self, code: &Bound<'_, PyAny>, prepared: Arc<Prepared>) {
        let mut all = self.prepared();
        let dropped = if all.len() >= MAX_PREPARED {
            std::mem::take(&mut *all)
        } else {
            ByCode::default()
        };
        let replaced = all.insert(code.as_ptr() as usize, prepared);
        drop(all);
        // Outside of the lock: with them may go the last references to code and modules of the program.
        drop((dropped, replaced));
    }

    fn prepared(&self) -> std::sync::MutexGuard<'_, ByCode> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Prepared {
    fn of_twin(&self, twin: &Bound<'_, PyAny>) -> Self {
        let py = twin.py();
        let variables = self.variables.iter();
        Self {
            _code: twin.clone().unbind(),
            globals: self.globals.clone_ref(py),
            function: self.function.clone_ref(py),
            names: self.names.is_some().then(|| Names::of(twin)),
            variables: variables.map(|name| name.clone_ref(py)).collect(),
        }
    }

    /// What the function is called with; `None` when a variable is not bound, or they are not the frame's own.
    fn values<'py>(&self, frame: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let py = frame.py();
        match &self.names {
            Some(names) => {
                let values = self.variables.iter();
                let values = values.map(|name| names.variable(frame, name.bind(py)));
                Ok(values.collect())
            }
            // The body of a module: all its names are globals.
            None if frame.getattr("f_locals")?.is(&self.globals) => Ok(Some(Vec::new())),
            None => Ok(None),
        }
    }
}

/// What calls a part of a text: one that fails shows its error in its place. What is no `Exception` ends the whole.
fn part(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static PART: PyOnceLock<Immortal> = PyOnceLock::new();
    let part = PART.get_or_try_init(py, || {
        Immortal::closure(py, c"part", |args| {
            let py = args.py();
            match call(&args.get_item(0)?, ()) {
                Ok(text) => Ok(text.unbind()),
                Err(error) if error.is_instance_of::<PyException>(py) => {
                    let text = format!("<raised {}>", events::in_words(py, error));
                    Ok(PyString::new(py, &text).into_any().unbind())
                }
                Err(error) => Err(error),
            }
        })
    })?;
    Ok(part.bind(py))
}

/// The names in `expressions.py`.
fn namespace(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace =
        NAMESPACE.get_or_try_init(py, || embedded!(py, "expressions.py").map(Bound::unbind))?;
    Ok(namespace.bind(py))
}
