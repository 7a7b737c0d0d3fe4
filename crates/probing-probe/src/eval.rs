//! Running a piece of code in the program's live `__main__` namespace.
//!
//! The interpreter's own `exec` and `eval` are called from here, so no frame of ours is in any traceback.

use std::sync::atomic::{AtomicU64, Ordering};

use probing_proto::message::{Outcome, fit};
use pyo3::exceptions::{PyRuntimeError, PySyntaxError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

use crate::guarded::{call, release};
use crate::interrupt::Interrupt;
use crate::traceback::{self, text_of};

/// `ast.PyCF_ONLY_AST`
const ONLY_AST: u32 = 0x400;

/// Builtins as they were when the probe started: the program may replace or delete them.
struct Builtins {
    compile: Py<PyAny>,
    exec: Py<PyAny>,
    eval: Py<PyAny>,
    repr: Py<PyAny>,
}

static BUILTINS: PyOnceLock<Builtins> = PyOnceLock::new();

/// Takes hold of what evals will need.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    BUILTINS.get_or_try_init(py, || {
        let builtins = py.import("builtins")?;
        let builtin = |name| builtins.getattr(name).map(Bound::unbind);
        Ok::<_, PyErr>(Builtins {
            compile: builtin("compile")?,
            exec: builtin("exec")?,
            eval: builtin("eval")?,
            repr: builtin("repr")?,
        })
    })?;
    Ok(())
}

/// Runs `source` until it ends or is interrupted.
pub(crate) fn run(py: Python<'_>, source: &str, interrupt: &Interrupt) -> Outcome {
    let file = next_file_name();
    let code = match compile(py, source, &file) {
        Ok(code) => code,
        Err(error) if is_syntax_error(py, &error) => {
            return Outcome::SyntaxError {
                text: traceback::place(py, &error),
            };
        }
        Err(error) => return Outcome::Raised(traceback::describe(py, &error)),
    };
    traceback::remember_source(file, source);
    match interrupt.allow(py, || code.run(py)) {
        Ok(value) => Outcome::Finished { value },
        Err(error) => {
            let raised = traceback::describe(py, &error);
            // With it go the frames it came through and all that they held.
            release(error.into_value(py).into_bound(py).into_any());
            Outcome::Raised(raised)
        }
    }
}

/// Each eval's own, so that tracebacks find the lines of the right one.
fn next_file_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    format!("<eval {}>", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Compiled code: what to execute, then what to evaluate.
struct Code<'py> {
    statements: Option<Bound<'py, PyAny>>,
    last_expression: Option<Bound<'py, PyAny>>,
}

fn compile<'py>(py: Python<'py>, source: &str, file: &str) -> PyResult<Code<'py>> {
    let builtins = builtins(py)?;
    let compiler = builtins.compile.bind(py);
    let compile_as = |what: &Bound<'py, PyAny>, mode: &str, flags: u32| {
        call(compiler, (what, file, mode, flags, true))
    };
    let tree = compile_as(source.into_pyobject(py)?.as_any(), "exec", ONLY_AST)?;
    let body = tree.getattr("body")?.cast_into::<PyList>()?;

    let mut last_expression = None;
    if let Some(expression) = last_of(&body)? {
        body.del_item(body.len() - 1)?;
        let tree = call(&py.import("_ast")?.getattr("Expression")?, (expression,))?;
        last_expression = Some(compile_as(&tree, "eval", 0)?);
    }
    // A string that opens the code would become the program's `__doc__`.
    while !body.is_empty() && is_bare_string(&body.get_item(0)?)? {
        body.del_item(0)?;
    }
    let statements = if body.is_empty() {
        None
    } else {
        Some(compile_as(&tree, "exec", 0)?)
    };
    Ok(Code {
        statements,
        last_expression,
    })
}

/// The expression that the last statement consists of, if it does.
fn last_of<'py>(body: &Bound<'py, PyList>) -> PyResult<Option<Bound<'py, PyAny>>> {
    match body.iter().next_back() {
        Some(last) if is_a(&last, "Expr")? => last.getattr("value").map(Some),
        _ => Ok(None),
    }
}

fn is_bare_string(statement: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !is_a(statement, "Expr")? {
        return Ok(false);
    }
    let value = statement.getattr("value")?;
    Ok(is_a(&value, "Constant")?
        && value
            .getattr("value")?
            .is_instance_of::<pyo3::types::PyString>())
}

fn is_a(node: &Bound<'_, PyAny>, class: &str) -> PyResult<bool> {
    Ok(node.get_type().name()? == class)
}

fn is_syntax_error(py: Python<'_>, error: &PyErr) -> bool {
    // Before 3.12 a NUL in the source is a ValueError.
    error.is_instance_of::<PySyntaxError>(py) || error.is_instance_of::<PyValueError>(py)
}

impl Code<'_> {
    /// The `repr` of the last expression's value, unless that is `None`.
    fn run(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let builtins = builtins(py)?;
        let globals = main_namespace(py)?;
        if let Some(code) = &self.statements {
            call(builtins.exec.bind(py), (code, &globals))?;
        }
        let Some(code) = &self.last_expression else {
            return Ok(None);
        };
        let value = call(builtins.eval.bind(py), (code, &globals))?;
        if value.is_none() {
            return Ok(None);
        }
        let shown = call(builtins.repr.bind(py), (value,))?;
        Ok(Some(fit(text_of(&shown))))
    }
}

/// Runs a few bytecodes, which is when an exception that is pending for this thread comes.
pub(crate) fn run_nothing(py: Python<'_>) -> PyResult<()> {
    let nothing = ("for _ in (0, 0): pass", PyDict::new(py));
    call(builtins(py)?.exec.bind(py), nothing).map(drop)
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
    let code = call(builtins.compile.bind(py), (source, file, "exec", 0, true))?;
    call(builtins.exec.bind(py), (code, &namespace))?;
    Ok(namespace)
}

fn builtins(py: Python<'_>) -> PyResult<&Builtins> {
    BUILTINS
        .get(py)
        .ok_or_else(|| PyRuntimeError::new_err("the probe has not been started"))
}

fn main_namespace(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let modules = py.import("sys")?.getattr("modules")?;
    Ok(modules
        .get_item("__main__")?
        .getattr("__dict__")?
        .cast_into::<PyDict>()?)
}
