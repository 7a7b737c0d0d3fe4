//! Source text made into code that can be run: the statements, then the expression at the end, whose value is wanted.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::python::call::call;
use crate::python::compile::{Mode, compile};
use crate::python::embedded::builtins;

/// `ast.PyCF_ONLY_AST`
const ONLY_AST: u32 = 0x400;
/// `ast.PyCF_ALLOW_TOP_LEVEL_AWAIT`
const TOP_LEVEL_AWAIT: u32 = 0x2000;
/// `inspect.CO_COROUTINE`
const IS_COROUTINE: u32 = 0x80;

/// Compiled code.
pub(crate) struct Code {
    pub(crate) pieces: Vec<Piece>,
}

/// What runs without a break: the statements, or the last expression.
pub(crate) struct Piece {
    pub(crate) code: Py<PyAny>,
    /// Running it gives a coroutine: it awaits something.
    pub(crate) is_coroutine: bool,
    pub(crate) is_last_expression: bool,
}

impl Code {
    pub(crate) fn compile<'py>(py: Python<'py>, source: &str, file: &str) -> PyResult<Self> {
        // Most evals are one expression: without a tree they take two thirds of the time. What is none fails here, and
        // says so below.
        if !source.trim_end().contains('\n')
            && let Ok(code) = compile(py, source, file, Mode::Eval, TOP_LEVEL_AWAIT)
        {
            let pieces = vec![Piece::new(&code, true)?];
            return Ok(Self { pieces });
        }
        let tree = compile(py, source, file, Mode::Exec, ONLY_AST)?;
        let compiler = builtins(py)?.compile.bind(py);
        let compile_tree = |tree: &Bound<'py, PyAny>, mode: Mode| {
            call(compiler, (tree, file, mode.name(), TOP_LEVEL_AWAIT, true))
        };
        let body = tree.getattr("body")?.cast_into::<PyList>()?;

        let mut pieces = Vec::new();
        if let Some(expression) = last_of(&body)? {
            body.del_item(body.len() - 1)?;
            let tree = call(&py.import("_ast")?.getattr("Expression")?, (expression,))?;
            let code = compile_tree(&tree, Mode::Eval)?;
            pieces.push(Piece::new(&code, true)?);
        }
        // A string that opens the code would become the program's `__doc__`.
        while !body.is_empty() && is_bare_string(&body.get_item(0)?)? {
            body.del_item(0)?;
        }
        if !body.is_empty() {
            let code = compile_tree(&tree, Mode::Exec)?;
            pieces.insert(0, Piece::new(&code, false)?);
        }
        Ok(Self { pieces })
    }

    /// Whether any of it awaits something.
    pub(crate) fn is_async(&self) -> bool {
        self.pieces.iter().any(|piece| piece.is_coroutine)
    }

    /// Whether a name occurs at the top level, where it is looked up in the locals first.
    pub(crate) fn mentions(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        for piece in &self.pieces {
            if piece.code.bind(py).getattr("co_names")?.contains(name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Names that occur inside, which are looked up in the globals.
    pub(crate) fn nested_names(&self, py: Python<'_>, inside: Nested) -> PyResult<Vec<String>> {
        let mut names = Vec::new();
        for piece in &self.pieces {
            collect_nested(piece.code.bind(py), inside, &mut names)?;
        }
        Ok(names)
    }
}

/// What code has code inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nested {
    /// Functions, lambdas, comprehensions.
    Anything,
    /// Only what runs at once.
    Comprehensions,
}

fn collect_nested(
    code: &Bound<'_, PyAny>,
    inside: Nested,
    names: &mut Vec<String>,
) -> PyResult<()> {
    const COMPREHENSIONS: [&str; 4] = ["<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"];
    for constant in code.getattr("co_consts")?.cast_into::<PyTuple>()? {
        if !constant.get_type().is(code.get_type()) {
            continue;
        }
        let called: String = constant.getattr("co_name")?.extract()?;
        if inside == Nested::Anything || COMPREHENSIONS.contains(&called.as_str()) {
            names.extend(constant.getattr("co_names")?.extract::<Vec<String>>()?);
            collect_nested(&constant, inside, names)?;
        }
    }
    Ok(())
}

impl Piece {
    fn new(code: &Bound<'_, PyAny>, is_last_expression: bool) -> PyResult<Self> {
        let flags: u32 = code.getattr("co_flags")?.extract()?;
        Ok(Self {
            code: code.clone().unbind(),
            is_coroutine: flags & IS_COROUTINE != 0,
            is_last_expression,
        })
    }
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
    Ok(is_a(&value, "Constant")? && value.getattr("value")?.is_instance_of::<PyString>())
}

fn is_a(node: &Bound<'_, PyAny>, class: &str) -> PyResult<bool> {
    Ok(node.get_type().name()? == class)
}
