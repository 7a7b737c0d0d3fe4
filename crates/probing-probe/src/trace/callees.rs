//! What a traced function calls: found where it calls it, so that nothing else need tell.
#![expect(
    unsafe_code,
    reason = "asks for attributes of classes without running anything"
)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use probing_proto::message::breakpoints::SourceLocation;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::instrument::probe_call;
use crate::python::code_search::{self, FoundCode};
use crate::python::interned::interned;
use crate::python::{frame, symbols};
use crate::trace::code_table::table_if_free;
use crate::trace::function_stats::Role;
use crate::trace::tap::EventSet;
use crate::trace::traces::Trace;
use crate::trace::{monitoring_tool, setting, thread};

/// The folder of the files whose functions are ours, not the program's.
static OWN_FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Follows nothing in this file and those beside it.
pub(crate) fn leave_out(file: &str) {
    OWN_FOLDER.get_or_init(|| {
        let folder = Path::new(file).parent();
        folder.map(Path::to_owned).unwrap_or_default()
    });
}

fn is_ours(file: &str) -> bool {
    let folder = Path::new(file).parent();
    OWN_FOLDER.get().is_some_and(|own| Some(&**own) == folder)
}

/// A function that is followed calls something: from now on that is followed, too.
pub(crate) fn called(caller: usize, callable: &Bound<'_, PyAny>) {
    let py = callable.py();
    let Some(code) = code_of(callable) else {
        return;
    };
    let Some(levels) = thread::with_own(|thread| thread.levels_of(caller)).flatten() else {
        return;
    };
    let trace = {
        let Some(mut table) = table_if_free(py) else {
            return;
        };
        let there = table.entry_there(code.as_ptr() as usize);
        if let Some(known) = there.and_then(|entry| entry.tracing.as_mut()) {
            let is_deeper = levels > 1 && !known.wants.has(EventSet::CALLS);
            if !is_deeper {
                return;
            }
            known.wants = known.wants.and(EventSet::CALLS);
            drop(table);
            monitoring_tool::tell(&code);
            return;
        }
        let Some(tracing) = table
            .entry_there(caller)
            .and_then(|entry| entry.tracing.as_ref())
        else {
            return;
        };
        Arc::clone(&tracing.trace)
    };
    let name = frame::name_of(&code);
    follow_for(&trace, (code, name), levels);
}

/// Code that nobody knows of begins: it may have been called by a function that is followed, through C, which does not say
/// what it calls.
pub(crate) fn began(code: &Bound<'_, PyAny>) {
    let inside = thread::with_own(|thread| thread.follows()).flatten();
    if let Some(inside) = inside
        && let Some(frame) = frame::current(code.py())
    {
        follow(code.clone(), &frame, inside);
    }
}

/// Code that nobody knows of begins in this frame, inside a function whose calls are followed so far. Whether it is followed,
/// too: not if something in between is not; and a trace may have ended before the function did.
pub(crate) fn follow(
    code: Bound<'_, PyAny>,
    frame: &Bound<'_, PyAny>,
    (caller, levels): (usize, u32),
) -> bool {
    let py = code.py();
    let is_its = frame::caller_of(frame).is_some_and(|frame| {
        probe_call::own_code(frame::code_of(&frame)).as_ptr() as usize == caller
    });
    let trace = table_if_free(py).and_then(|mut table| {
        let tracing = table.entry_there(caller)?.tracing.as_ref()?;
        Some(Arc::clone(&tracing.trace))
    });
    match trace.filter(|_| is_its) {
        Some(trace) => {
            let name = code_search::qualname_of(&code, frame);
            follow_for(&trace, (code, name), levels);
            true
        }
        None => false,
    }
}

fn follow_for(trace: &Arc<Trace>, (code, func): (Bound<'_, PyAny>, String), levels: u32) {
    let file = frame::file_of(&code);
    if trace.is_over() || is_ours(&file) {
        return;
    }
    let spot = SourceLocation {
        func,
        file,
        lineno: frame::first_line_of(&code),
    };
    let role = Role::Callee { levels: levels - 1 };
    setting::bind(trace, vec![FoundCode { code, spot }], role);
}

/// The code that a call runs, if it is of Python. Runs none.
pub(crate) fn code_of<'py>(callable: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let py = callable.py();
    let kinds = kinds(py)?;
    let kind = callable.get_type().as_ptr() as usize;
    let found = if kind == kinds.function {
        callable.clone()
    } else if kind == kinds.method {
        callable.getattr(interned!(py, "__func__")).ok()?
    } else if let Ok(class) = callable.cast::<PyType>() {
        of_class(class, interned!(py, "__init__"))?
    } else {
        of_class(&callable.get_type(), interned!(py, "__call__"))?
    };
    let is_function = found.get_type().as_ptr() as usize == kinds.function;
    let code = is_function.then(|| found.getattr(interned!(py, "__code__")).ok())?;
    code.map(probe_call::own_code)
}

/// The classes of functions and of bound methods, which live as long as the interpreter.
struct Kinds {
    function: usize,
    method: usize,
}

fn kinds(py: Python<'_>) -> Option<&'static Kinds> {
    static KINDS: OnceLock<Option<Kinds>> = OnceLock::new();
    let kinds = KINDS.get_or_init(|| {
        let types = py.import("types").ok()?;
        let address = |name: &str| types.getattr(name).ok().map(|kind| kind.as_ptr() as usize);
        Some(Kinds {
            function: address("FunctionType")?,
            method: address("MethodType")?,
        })
    });
    kinds.as_ref()
}

/// What a class has under a name, as it is stored.
pub(crate) fn of_class<'py>(
    class: &Bound<'py, PyType>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    let lookup = symbols::symbols().type_lookup?;
    // SAFETY: a class and a string, and the GIL is held; what comes back is borrowed, or null without an exception.
    unsafe {
        Bound::from_borrowed_ptr_or_opt(class.py(), lookup(class.as_ptr().cast(), name.as_ptr()))
    }
}
