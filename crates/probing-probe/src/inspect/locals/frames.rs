//! Who is where with which variables, at one moment: all frames of the threads asked for.
//!
//! Between two frames of a thread no bytecode runs, so they belong together. No code of the program is called.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyModule, PyString, PyTuple, PyType};

use crate::inspect::locals::slots;
use crate::python::call::{call, release_error};
use crate::python::interned::interned;
use crate::python::text::text_of;

/// Variables of a frame.
const MAX_VARIABLES: usize = 100;
/// Different values, of all frames.
const MAX_VALUES: usize = 10_000;
/// Of all threads.
const MAX_FRAMES: usize = 20_000;
/// Names of a module; one with more is data in disguise.
const MAX_GLOBALS: usize = 10_000;
/// `CO_OPTIMIZED`: variables are in slots.
const OPTIMIZED: u32 = 1;

/// All that was seen. Values are kept once, however many variables name them.
#[derive(Default)]
pub(super) struct LocalsSnapshot {
    pub(super) threads: Vec<(u64, Vec<Frame>)>,
    pub(super) values: Vec<Value>,
    by_address: HashMap<usize, usize>,
    frames: usize,
}

pub(super) struct Frame {
    pub(super) func: String,
    pub(super) file: String,
    pub(super) line: Option<u32>,
    /// Names and indices of values. `None`: they could not be read, or there are too many frames.
    pub(super) variables: Option<Vec<(String, usize)>>,
    pub(super) more: usize,
}

pub(super) struct Value {
    pub(super) object: Py<PyAny>,
    pub(super) kind: String,
}

/// What is looked up once, in `locals.py`.
pub(super) struct LocalsHelpers<'py> {
    /// `type.__name__` as a function, which classes cannot replace.
    type_name: Bound<'py, PyAny>,
    function: Bound<'py, PyType>,
    cell: Bound<'py, PyType>,
}

/// The frames of these threads, in this order; of all but `own` if none is named.
pub(super) fn see(
    words: &Bound<'_, PyDict>,
    threads: &[u64],
    own: u64,
) -> PyResult<LocalsSnapshot> {
    let py = words.py();
    let current = py.import("sys")?.getattr("_current_frames")?.call0()?;
    let current: HashMap<u64, Bound<'_, PyAny>> = current.extract()?;
    let mut all: Vec<u64> = current.keys().copied().filter(|it| *it != own).collect();
    all.sort_unstable();
    let wanted = if threads.is_empty() { &all } else { threads };
    let look = LocalsHelpers::new(words)?;
    let mut seen = LocalsSnapshot::default();
    for ident in wanted {
        if let Some(frame) = current.get(ident) {
            let frames = seen.frames_of(&look, frame.clone())?;
            seen.threads.push((*ident, frames));
        }
    }
    Ok(seen)
}

/// These frames, as those of one thread.
pub(super) fn see_these(
    words: &Bound<'_, PyDict>,
    frames: &[Bound<'_, PyAny>],
) -> PyResult<LocalsSnapshot> {
    let look = LocalsHelpers::new(words)?;
    let mut seen = LocalsSnapshot::default();
    let frames = frames.iter().map(|frame| seen.frame(&look, frame));
    let frames = frames.collect::<PyResult<_>>()?;
    seen.threads.push((0, frames));
    Ok(seen)
}

impl<'py> LocalsHelpers<'py> {
    pub(super) fn new(words: &Bound<'py, PyDict>) -> PyResult<Self> {
        let words = words.as_any();
        Ok(Self {
            type_name: words.get_item("name_of")?,
            function: words.get_item("FUNCTION")?.cast_into()?,
            cell: words.get_item("CELL")?.cast_into()?,
        })
    }

    /// Whether it is what a module or class body defines or imports, not what it computes.
    fn is_definition(&self, value: &Bound<'py, PyAny>) -> bool {
        value.is_instance_of::<PyModule>()
            || value.is_instance_of::<PyType>()
            || value.is_instance_of::<PyCFunction>()
            || value.get_type().is(&self.function)
    }
}

impl LocalsSnapshot {
    fn frames_of<'py>(
        &mut self,
        look: &LocalsHelpers<'py>,
        innermost: Bound<'py, PyAny>,
    ) -> PyResult<Vec<Frame>> {
        let mut frames = Vec::new();
        let mut next = Some(innermost);
        while let Some(frame) = next.filter(|_| self.frames < MAX_FRAMES) {
            self.frames += 1;
            frames.push(self.frame(look, &frame)?);
            let outer = frame.getattr("f_back")?;
            next = Some(outer).filter(|outer| !outer.is_none());
        }
        Ok(frames)
    }

    fn frame<'py>(
        &mut self,
        look: &LocalsHelpers<'py>,
        frame: &Bound<'py, PyAny>,
    ) -> PyResult<Frame> {
        let code = frame.getattr("f_code")?;
        let name = if frame.py().version_info() >= (3, 11) {
            "co_qualname"
        } else {
            "co_name"
        };
        let variables = if self.values.len() < MAX_VALUES {
            variables(look, frame, &code)?
        } else {
            None
        };
        let found = variables.as_ref().map_or(0, Vec::len);
        let mut named = Vec::new();
        for (name, value) in variables.iter().flatten().take(MAX_VARIABLES) {
            named.push((name.clone(), self.index_of(look, value)?));
        }
        Ok(Frame {
            func: text_of(&code.getattr(name)?),
            file: text_of(&code.getattr("co_filename")?),
            line: frame.getattr("f_lineno")?.extract()?,
            variables: variables.is_some().then_some(named),
            more: found.saturating_sub(MAX_VARIABLES),
        })
    }

    fn index_of<'py>(
        &mut self,
        look: &LocalsHelpers<'py>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<usize> {
        let address = value.as_ptr() as usize;
        if let Some(index) = self.by_address.get(&address) {
            return Ok(*index);
        }
        let kind = call(&look.type_name, (value.get_type(),))?;
        self.values.push(Value {
            object: value.clone().unbind(),
            kind: text_of(&kind),
        });
        self.by_address.insert(address, self.values.len() - 1);
        Ok(self.values.len() - 1)
    }
}

pub(super) type Variables<'py> = Vec<(String, Bound<'py, PyAny>)>;

/// The bound variables of a frame; `None` if they cannot be read without a trace.
pub(super) fn variables<'py>(
    look: &LocalsHelpers<'py>,
    frame: &Bound<'py, PyAny>,
    code: &Bound<'py, PyAny>,
) -> PyResult<Option<Variables<'py>>> {
    let flags: u32 = code.getattr("co_flags")?.extract()?;
    if flags & OPTIMIZED == 0 {
        return names_of_a_body(look, &frame.getattr("f_locals")?).map(Some);
    }
    if frame.py().version_info() >= (3, 13) {
        let items = frame.getattr("f_locals")?.call_method0("items")?;
        let items = items.try_iter()?.map(|item| {
            let item = item?;
            Ok((text_of(&item.get_item(0)?), item.get_item(1)?))
        });
        return items.collect::<PyResult<_>>().map(Some);
    }
    let names = slot_names(code)?;
    let Some(values) = slots::read(frame, code, names.len())? else {
        return Ok(None);
    };
    let mut found = Vec::new();
    for ((name, shared), value) in names.into_iter().zip(values) {
        let Some(value) = value else { continue };
        if !shared || !value.get_type().is(&look.cell) {
            found.push((name, value));
            continue;
        }
        match value.getattr("cell_contents") {
            Ok(content) => found.push((name, content)),
            Err(is_empty) => release_error(frame.py(), is_empty),
        }
    }
    Ok(Some(found))
}

/// What a name is to a function.
pub(super) enum NameBinding<'py> {
    /// A variable of its own, perhaps not bound.
    Alone(Option<Bound<'py, PyAny>>),
    /// One that it shares with functions around or inside it.
    Shared,
    Nothing,
}

/// Looks a variable up, quickly where it is the function's alone.
pub(super) fn own_variable<'py>(
    frame: &Bound<'py, PyAny>,
    code: &Bound<'py, PyAny>,
    name: &str,
) -> PyResult<NameBinding<'py>> {
    let py = frame.py();
    let index_in = |names: Bound<'py, PyAny>| -> Option<usize> {
        let names = names.cast_into::<PyTuple>().ok()?;
        names.iter().position(|own| {
            let own = own.cast::<PyString>();
            own.is_ok_and(|own| own.to_str().is_ok_and(|own| own == name))
        })
    };
    if index_in(code.getattr(interned!(py, "co_cellvars"))?).is_some() {
        return Ok(NameBinding::Shared);
    }
    if let Some(index) = index_in(code.getattr(interned!(py, "co_varnames"))?) {
        let slots = slots::read(frame, code, index + 1)?;
        return Ok(slots.map_or(NameBinding::Shared, |mut slots| {
            NameBinding::Alone(slots.pop().flatten())
        }));
    }
    let is_free = index_in(code.getattr(interned!(py, "co_freevars"))?).is_some();
    Ok(if is_free {
        NameBinding::Shared
    } else {
        NameBinding::Nothing
    })
}

/// Names of a function's slots, and whether functions inside or around it share them.
fn slot_names(code: &Bound<'_, PyAny>) -> PyResult<Vec<(String, bool)>> {
    let names = |attribute: &str| -> PyResult<Vec<String>> {
        let tuple = code.getattr(attribute)?.cast_into::<PyTuple>()?;
        Ok(tuple.iter().map(|name| text_of(&name)).collect())
    };
    let (own, cells) = (names("co_varnames")?, names("co_cellvars")?);
    // From 3.11 on a parameter that is shared has one slot; before, its value moves to another.
    let one_each = code.py().version_info() >= (3, 11);
    let is_shared = |name: &String| one_each && cells.contains(name);
    let more_cells = cells.iter().filter(|name| !one_each || !own.contains(name));
    let shared = more_cells.cloned().chain(names("co_freevars")?);
    let own = own.iter().map(|name| (name.clone(), is_shared(name)));
    Ok(own.chain(shared.map(|name| (name, true))).collect())
}

/// What the body of a module or a class has computed. Any mapping serves `exec`; only dictionaries are read.
fn names_of_a_body<'py>(
    look: &LocalsHelpers<'py>,
    names: &Bound<'py, PyAny>,
) -> PyResult<Variables<'py>> {
    let Ok(names) = names.cast_exact::<PyDict>() else {
        return Ok(Vec::new());
    };
    if names.len() > MAX_GLOBALS {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for item in names.items() {
        let (name, value) = (item.get_item(0)?, item.get_item(1)?);
        let Ok(name) = name.cast_exact::<PyString>() else {
            continue;
        };
        let name = text_of(name.as_any());
        let is_pythons_own = name.starts_with("__") && name.ends_with("__");
        if !is_pythons_own && !look.is_definition(&value) {
            found.push((name, value));
        }
    }
    Ok(found)
}
