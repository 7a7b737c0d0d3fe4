//! How we speak with `door.py`: what we have it do, and what it tells when torch and its groups are there.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};

use crate::process::fork_child;
use crate::python::call::{call, release, release_error};
use crate::python::embedded::embedded;
use crate::python::import_finder;
use crate::python::monitoring;
use crate::python::signal_handlers;
use crate::python::weak::weak_of;
use crate::recorders::collectives::call_taps::{Call, Failed};
use crate::recorders::collectives::hooks;
use crate::recorders::collectives::kernels;
use crate::recorders::collectives::prehook_args::PreHookReader;
use crate::recorders::collectives::sequence::Count;
use crate::recorders::collectives::work_status::WorkReader;
use crate::recorders::collectives::world;
use crate::recorders::collectives::{
    Group, GroupInfo, Kind, Torch, number_of_group, state, with_torch,
};
use crate::recording::collective_symbol;
use crate::trace::{self, Tap};

/// Calls a method of `Watch`.
pub(crate) fn asked_of_watch<'py>(
    py: Python<'py>,
    method: &str,
    args: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error: Into<PyErr>>,
) -> PyResult<Bound<'py, PyAny>> {
    let watch = state(py).map(|state| state.watch.clone_ref(py));
    let Some(watch) = watch else {
        return Err(pyo3::exceptions::PyRuntimeError::new_err("it was never on"));
    };
    // Torch calls hooks in threads of the program.
    signal_handlers::aside(py, || call(&watch.bind(py).getattr(method)?, args))
}

/// Calls a function of `door.py` in a thread of the program, which gets nothing of what that raises: in words, or `None`.
#[pyfunction]
#[pyo3(signature = (function, *args))]
fn aside(function: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> Option<String> {
    let py = function.py();
    signal_handlers::aside(py, || match call(function, args.clone()) {
        Ok(nothing) => {
            release(nothing);
            None
        }
        Err(error) => {
            let trouble = error.to_string();
            signal_handlers::give_back(py, &error);
            release_error(py, error);
            Some(trouble)
        }
    })
}

/// `Watch` of `door.py`, with what it calls.
pub(crate) fn watch(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let names = embedded!(py, "process_groups.py")?;
    let natives = (
        wrap_pyfunction!(torch_is_there, py)?,
        wrap_pyfunction!(group_is_there, py)?,
        kernels::kernel_table(py)?,
        (
            wrap_pyfunction!(import_finder::wait_for, py)?,
            wrap_pyfunction!(import_finder::forget, py)?,
        ),
        world::function(py, "job_of")?,
        wrap_pyfunction!(aside, py)?,
        fork_child::generation(),
    );
    call(&names.as_any().get_item("Watch")?, natives)
}

/// What operations and calls torch has, and the size of what it gives to hooks. A call that fails branches, or else has
/// other code called. Returns whether the calls tell of their end.
#[pyfunction]
fn torch_is_there(
    names: Vec<String>,
    folder: String,
    given: (Bound<'_, PyType>, usize),
    codes: (Bound<'_, PyList>, Option<Bound<'_, PyAny>>),
) -> bool {
    let (work, size) = given;
    let py = work.py();
    let operations = names.iter().map(|name| Kind {
        name: collective_symbol(py, name),
        has_root: matches!(&**name, "broadcast" | "reduce" | "scatter" | "gather"),
        is_between_two: matches!(&**name, "send" | "recv"),
    });
    let torch = Torch {
        glance: PreHookReader::new(size),
        works: WorkReader::new(size),
        operations: operations.collect(),
        work: work.unbind(),
        calls_tell: false,
    };
    if let Some(mut state) = state(py) {
        state.torch = Some(torch);
        state.sites.torch_is_at(folder);
    }
    let (calls, failure) = codes;
    // Before 3.12 no code tells.
    if !monitoring::is_there(py) || calls.is_empty() {
        return false;
    }
    let mut tell = true;
    let call: &'static dyn Tap = match failure {
        None => &Call { branches: true },
        Some(_) => &Call { branches: false },
    };
    for code in calls {
        tell &= tapped(&code, call);
        if let Some(mut state) = state(py) {
            state.sites.is_call(&code);
        }
    }
    if let Some(failure) = failure.filter(|_| tell) {
        tapped(&failure, &Failed);
    }
    with_torch(py, |torch| torch.calls_tell = tell);
    tell
}

fn tapped(code: &Bound<'_, PyAny>, tap: &'static dyn Tap) -> bool {
    let is_tapped = trace::tap(code, tap).is_ok();
    if is_tapped && let Some(mut state) = state(code.py()) {
        state.taps.push((code.clone().unbind(), tap));
    }
    is_tapped
}

/// A group, named by its job and its own name. Returns what it is to call before its operations; nothing when it does already.
#[pyfunction]
fn group_is_there<'py>(
    group: &Bound<'py, PyAny>,
    names: (Option<String>, String),
    place: (i64, i64),
    waits: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = group.py();
    let (job, name) = names;
    let job = job.map(|job| collective_symbol(py, &job));
    let name = collective_symbol(py, &name);
    let weak = weak_of(group).ok_or_else(|| PyTypeError::new_err("not a process group"))?;
    // From here to where it is noted nobody else can have the GIL: no group gets its hooks twice.
    if number_of_group(group).is_some() {
        return Ok(None);
    }
    let Some(mut state) = state(py) else {
        return Ok(None);
    };
    let number = state.groups.len();
    let calls_tell = state.torch.as_ref().is_some_and(|it| it.calls_tell);
    state.groups.push(Group {
        weak,
        about: GroupInfo {
            job,
            name,
            rank: place.0,
            size: place.1,
            waits,
            returns_when_over: waits && calls_tell,
            has_after: false,
        },
        count: Count::default(),
    });
    drop(state);
    hooks::before(py, number).map(Some)
}
