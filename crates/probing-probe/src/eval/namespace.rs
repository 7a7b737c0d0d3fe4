//! The names that evaluated code finds: those of `__main__`, or those of a frame that runs.

use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyString};

use crate::eval::code::{Code, Nested, Piece};
use crate::python::call::{call, release};
use crate::python::embedded::builtins;
use crate::python::frame;

const LAST: &str = "_";
/// `inspect.CO_OPTIMIZED`: the code of a function, whose locals are no dictionary.
const IS_FUNCTION: u32 = 0x1;

/// The namespaces of one eval.
pub(crate) struct Names {
    globals: Py<PyDict>,
    locals: Py<PyAny>,
    /// When `globals` had to be a copy: the program's, and the copy as it was.
    copied: Option<(Py<PyDict>, Py<PyDict>)>,
    standing: Option<FrameLocalsCopy>,
}

/// A frame that stands still, before 3.13: its locals are a copy, of which what was assigned is carried over.
struct FrameLocalsCopy {
    frame: Py<PyAny>,
    locals: Py<PyDict>,
    before: Py<PyDict>,
}

impl Names {
    /// Those of the program's `__main__`.
    pub(crate) fn of_main(
        py: Python<'_>,
        code: &Code,
        last: impl FnOnce() -> Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let main = main_namespace(py)?;
        let in_comprehension = || -> PyResult<bool> {
            let names = code.nested_names(py, Nested::Comprehensions)?;
            Ok(names.iter().any(|name| name == LAST))
        };
        // Looked for in this order: hardly any code has it.
        let at_top = code.mentions(py, LAST)?;
        let nested = in_comprehension()?;
        if (!at_top && !nested) || has(py, &main, LAST)? {
            return Ok(Self::plain(&main));
        }
        let Some(last) = last() else {
            return Ok(Self::plain(&main));
        };
        let mut names = Self::plain(&main);
        if nested {
            names.copy_globals(py, |copy| copy.set_item(LAST, &last))?;
        }
        let scope = Scope {
            names: main.into_any().unbind(),
            last: Some(last),
            fixed: Vec::new(),
        };
        names.locals = Bound::new(py, scope)?.into_any().unbind();
        Ok(names)
    }

    /// Those of a frame. On Pythons whose function frames only show a copy of their locals, these cannot be changed, and
    /// code that tries to is told so; unless the frame stands still.
    pub(crate) fn of_frame(
        py: Python<'_>,
        code: &Code,
        frame: &Bound<'_, PyAny>,
        last: impl FnOnce() -> Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        Self::of_any_frame(py, code, (frame, false), last)
    }

    /// Those of a frame of this very thread, which stands still: they can be assigned to.
    pub(crate) fn of_standing_frame(
        py: Python<'_>,
        code: &Code,
        frame: &Bound<'_, PyAny>,
        last: impl FnOnce() -> Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        Self::of_any_frame(py, code, (frame, true), last)
    }

    fn of_any_frame(
        py: Python<'_>,
        code: &Code,
        (frame, stands): (&Bound<'_, PyAny>, bool),
        last: impl FnOnce() -> Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let globals = frame.getattr("f_globals")?.cast_into::<PyDict>()?;
        let mut locals = frame.getattr("f_locals")?;
        if locals.is(&globals) {
            return Ok(Self::plain(&globals));
        }
        let running = frame.getattr("f_code")?;
        let flags: u32 = running.getattr("co_flags")?.extract()?;
        let shows_copy = flags & IS_FUNCTION != 0 && py.version_info() < (3, 13);
        let mut names = Self::plain(&globals);
        let mut fixed = Vec::new();
        if shows_copy {
            let copy = locals.cast_into::<PyDict>()?.copy()?;
            if stands {
                names.standing = Some(FrameLocalsCopy {
                    frame: frame.clone().unbind(),
                    before: copy.copy()?.unbind(),
                    locals: copy.clone().unbind(),
                });
            } else {
                for kind in ["co_varnames", "co_cellvars", "co_freevars"] {
                    fixed.extend(running.getattr(kind)?.extract::<Vec<String>>()?);
                }
            }
            locals = copy.into_any();
        }
        let nested = code.nested_names(py, Nested::Anything)?;
        let seen: Vec<&String> = nested
            .iter()
            .filter(|name| locals.contains(name.as_str()).unwrap_or(false))
            .collect();
        if !seen.is_empty() {
            names.copy_globals(py, |copy| {
                seen.iter().try_for_each(|name| {
                    copy.set_item(name.as_str(), locals.get_item(name.as_str())?)
                })
            })?;
        }
        let last = if code.mentions(py, LAST)? && !has(py, &globals, LAST)? {
            last()
        } else {
            None
        };
        names.locals = if !fixed.is_empty() || last.is_some() {
            let scope = Scope {
                names: locals.unbind(),
                last,
                fixed,
            };
            Bound::new(py, scope)?.into_any().unbind()
        } else {
            locals.unbind()
        };
        Ok(names)
    }

    fn plain(globals: &Bound<'_, PyDict>) -> Self {
        Self {
            globals: globals.clone().unbind(),
            locals: globals.clone().into_any().unbind(),
            copied: None,
            standing: None,
        }
    }

    /// Functions and comprehensions find names in the globals only. So that they find more than the program's, they get
    /// a copy; what they assign there is carried over by [`Names::settle`].
    fn copy_globals(
        &mut self,
        py: Python<'_>,
        add: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>,
    ) -> PyResult<()> {
        let copy = self.globals.bind(py).copy()?;
        add(&copy)?;
        let before = copy.copy()?.unbind();
        let program = std::mem::replace(&mut self.globals, copy.unbind());
        self.copied = Some((program, before));
        Ok(())
    }

    /// Runs a piece of code: its value, or the coroutine that it is.
    pub(crate) fn run<'py>(&self, py: Python<'py>, piece: &Piece) -> PyResult<Bound<'py, PyAny>> {
        let eval = builtins(py)?.eval.bind(py);
        let code = piece.code.bind(py);
        let result = call(eval, (code, self.globals.bind(py), self.locals.bind(py)));
        self.settle(py)?;
        result
    }

    /// Lets go of what may be the program's last references.
    pub(crate) fn release(self, py: Python<'_>) {
        release(self.locals.into_bound(py));
    }

    /// Gives the program what was assigned to a copy of its globals.
    pub(crate) fn settle(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(standing) = &self.standing {
            standing.settle(py)?;
        }
        let Some((program, before)) = &self.copied else {
            return Ok(());
        };
        for (name, value) in self.globals.bind(py).iter() {
            let was = before.bind(py).get_item(&name)?;
            if !was.is_some_and(|was| was.is(&value)) {
                program.bind(py).set_item(&name, &value)?;
                before.bind(py).set_item(name, value)?;
            }
        }
        Ok(())
    }
}

impl FrameLocalsCopy {
    /// Gives the frame what was assigned to the copy of its locals, and takes from it what was deleted there.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        let (now, before) = (self.locals.bind(py), self.before.bind(py));
        let is_changed = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let was = before.get_item(name).ok().flatten();
            !was.is_some_and(|was| was.is(&value))
        };
        if now.len() == before.len() && !now.iter().any(is_changed) {
            return Ok(());
        }
        let frame = self.frame.bind(py);
        let own = frame.getattr("f_locals")?.cast_into::<PyDict>()?;
        for name in before.keys() {
            if !now.contains(&name)? && own.contains(&name)? {
                own.del_item(&name)?;
            }
        }
        own.update(now.as_mapping())?;
        before.clear();
        before.update(now.as_mapping())?;
        frame::take_over_locals(frame);
        Ok(())
    }
}

/// Locals of evaluated code that are not simply a dictionary of the program.
#[pyclass(mapping, frozen, module = "probing._probe")]
struct Scope {
    names: Py<PyAny>,
    last: Option<Py<PyAny>>,
    /// Names that cannot be assigned to.
    fixed: Vec<String>,
}

#[pymethods]
impl Scope {
    fn __getitem__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        match (self.names.bind(py).get_item(name), &self.last) {
            (Ok(value), _) => Ok(value.unbind()),
            (Err(error), Some(last))
                if error.is_instance_of::<PyKeyError>(py) && name.eq(LAST)? =>
            {
                Ok(last.clone_ref(py))
            }
            (Err(error), _) => Err(error),
        }
    }

    fn __setitem__(&self, name: &Bound<'_, PyString>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check_free(name)?;
        self.names.bind(name.py()).set_item(name, value)
    }

    fn __delitem__(&self, name: &Bound<'_, PyString>) -> PyResult<()> {
        self.check_free(name)?;
        self.names.bind(name.py()).del_item(name)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.names.bind(py).len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.names.bind(py).try_iter().map(Bound::into_any)
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.names.bind(name.py()).contains(name)
    }

    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.names.bind(py).cast::<PyMapping>()?.keys()
    }
}

impl Scope {
    fn check_free(&self, name: &Bound<'_, PyString>) -> PyResult<()> {
        let py = name.py();
        let name = name.to_string_lossy();
        if !self.fixed.iter().any(|fixed| *fixed == name) {
            return Ok(());
        }
        let version = py.version_info();
        Err(PyRuntimeError::new_err(format!(
            "Python {}.{} cannot change the locals of a function that runs (3.13 and newer can): {name}",
            version.major, version.minor
        )))
    }
}

fn has(py: Python<'_>, globals: &Bound<'_, PyDict>, name: &str) -> PyResult<bool> {
    Ok(globals.contains(name)? || py.import("builtins")?.getattr("__dict__")?.contains(name)?)
}

pub(crate) fn main_namespace(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let modules = py.import("sys")?.getattr("modules")?;
    Ok(modules
        .get_item("__main__")?
        .getattr("__dict__")?
        .cast_into::<PyDict>()?)
}
