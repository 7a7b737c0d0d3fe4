//! Expressions of points, as compiled Python: a function of the variables that they mention.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use probing_proto::message::Failure;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::frame;
use crate::eval;
use crate::guarded::{call, call_with};
use crate::traceback;

/// Code objects that one expression is prepared for.
const MAX_PREPARED: usize = 256;

/// A condition, or the text of a log point.
pub(super) struct Expression {
    formula: Py<PyAny>,
    /// By the address of the code, which is kept.
    prepared: Mutex<HashMap<usize, Arc<Prepared>>>,
}

/// The expression as a function, for the frames of one code object.
struct Prepared {
    _code: Py<PyAny>,
    globals: Py<PyAny>,
    function: Py<PyAny>,
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
        if let Some((function, arguments)) = self.prepared_call(frame)? {
            return call_with(&function, arguments, None);
        }
        let slowly = self.formula.bind(py).getattr("value_in")?;
        call(&slowly, (frame,))
    }

    /// The function and what it is called with; `None` when a variable is not bound.
    fn prepared_call<'py>(
        &self,
        frame: &Bound<'py, PyAny>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyTuple>)>> {
        let py = frame.py();
        let code = frame::code_of(frame);
        let globals = frame::globals(frame)?;
        // The body of a class, or what `exec` runs with locals of its own.
        if !frame::is_function(&code) && !frame.getattr("f_locals")?.is(&globals) {
            return Ok(None);
        }
        let key = code.as_ptr() as usize;
        let known = self
            .prepared()
            .get(&key)
            .filter(|prepared| prepared.globals.is(&globals))
            .cloned();
        let prepared = match known {
            Some(known) => known,
            None => self.prepare(code, globals)?,
        };
        let mut values = Vec::with_capacity(prepared.variables.len());
        for name in &prepared.variables {
            match frame::variable(frame, name.bind(py)) {
                Some(value) => values.push(value),
                None => return Ok(None),
            }
        }
        let arguments = PyTuple::new(py, values)?;
        Ok(Some((prepared.function.bind(py).clone(), arguments)))
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
            _code: code.clone().unbind(),
        });
        let mut all = self.prepared();
        let dropped = if all.len() >= MAX_PREPARED {
            std::mem::take(&mut *all)
        } else {
            HashMap::new()
        };
        let replaced = all.insert(code.as_ptr() as usize, Arc::clone(&prepared));
        drop(all);
        // Outside of the lock: with them may go the last references to code and modules of the program.
        drop((dropped, replaced));
        Ok(prepared)
    }

    fn prepared(&self) -> std::sync::MutexGuard<'_, HashMap<usize, Arc<Prepared>>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
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
