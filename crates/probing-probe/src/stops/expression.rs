//! Expressions of points, as compiled Python: a function of the variables that they mention.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Mutex, PoisonError};

use probing_proto::message::Failure;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::armed::Address;
use super::frame::{self, Names};
use crate::eval;
use crate::guarded::{call, call_plainly};
use crate::traceback;

/// Code objects that one expression is prepared for.
const MAX_PREPARED: usize = 256;

/// A condition, or the text of a log point.
pub(super) struct Expression {
    formula: Py<PyAny>,
    /// By the address of the code, which is kept.
    prepared: Mutex<ByCode>,
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
pub(super) enum Kind {
    Condition,
    Template,
}

impl Expression {
    pub(super) fn new(py: Python<'_>, kind: Kind, source: &str) -> Result<Self, Failure> {
        let maker = match kind {
            Kind::Condition => "condition",
            Kind::Template => "template",
        };
        let made = namespace(py)
            .and_then(|names| names.as_any().get_item(maker))
            .and_then(|maker| call(&maker, (source,)));
        match made {
            Ok(formula) => Ok(Self {
                formula: formula.unbind(),
                prepared: Mutex::default(),
            }),
            Err(error) => Err(Failure::new(format!("not an expression: {source}"))
                .with_hint(traceback::place(py, &error).trim().to_owned())),
        }
    }

    /// Its value in a frame. Runs code of the program.
    pub(super) fn value<'py>(&self, frame: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = frame.py();
        let prepared = self.prepared_for(frame)?;
        if let Some(values) = prepared.values(frame)? {
            return call_plainly(prepared.function.bind(py), &values);
        }
        let slowly = self.formula.bind(py).getattr("value_in")?;
        call(&slowly, (frame,))
    }

    /// Gets ready for frames of this code, with these names: what is made for that is there before a thread comes to it.
    pub(super) fn prepare_for(&self, code: &Bound<'_, PyAny>, globals: &Bound<'_, PyAny>) {
        // What fails here fails again where it is asked for, and is told there.
        drop(self.prepare(code.clone(), globals.clone()));
    }

    /// The same for a twin of code that it is ready for: they have the same variables.
    pub(super) fn prepare_for_twin(&self, original: &Bound<'_, PyAny>, twin: &Bound<'_, PyAny>) {
        let known = self.prepared().get(&(original.as_ptr() as usize)).cloned();
        if let Some(known) = known {
            self.keep(twin, Arc::new(known.of_twin(twin)));
        }
    }

    /// Lets go of the code that it was made ready for.
    pub(super) fn forget(&self) {
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
        let made = call(&maker, (&code, &globals))?;
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

/// The names in `expressions.py`.
fn namespace(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace = NAMESPACE.get_or_try_init(py, || {
        eval::namespace_of(py, include_str!("expressions.py"), "<probing>").map(Bound::unbind)
    })?;
    Ok(namespace.bind(py))
}
