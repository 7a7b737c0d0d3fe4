//! What torch's dispatcher calls for each operation of a group, where torch has no hooks.
//!
//! A function of C, not of Python: no signal and no debugger gets in between the program and its operation.

use probing_store::monotonic_nanos;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};

use crate::python::call::{call, call_with};
use crate::python::embedded::embedded;
use crate::python::immortal::Immortal;
use crate::python::interned::interned;
use crate::recorders::collectives::pending::CompletionSource;
use crate::recorders::collectives::tensors::{self, Tensors};
use crate::recorders::collectives::work_status::WorkObject;
use crate::recorders::collectives::{
    OperationInfo, is_on, noted, number_of_group, quietly, state, take_issued, wait_for, with_torch,
};
use crate::recording::Outcome;

/// One operation's.
struct Kernel {
    /// Its number among them.
    op: u8,
    places: ArgumentIndices,
    /// Calls the next one, behind us.
    redispatch: Py<PyAny>,
    behind: Py<PyAny>,
    /// Make objects that Python knows of those that the dispatcher has.
    group_of: Py<PyAny>,
    work_of: Py<PyAny>,
}

/// Where its arguments are.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ArgumentIndices {
    group: usize,
    /// Those that it takes, then those that it gives.
    tensors: Vec<usize>,
    root: Option<usize>,
    is_async: Option<usize>,
}

/// `Kernels` of `kernels.py`: children of a fork have their parent's.
pub(crate) fn kernel_table(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static ALL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let all = ALL.get_or_try_init(py, || {
        let names = embedded!(py, "dispatcher_kernels.py")?;
        let class = names.as_any().get_item("Kernels")?;
        PyResult::Ok(call(&class, (wrap_pyfunction!(kernel, py)?,))?.unbind())
    })?;
    Ok(all.bind(py))
}

#[pyfunction]
fn kernel(
    py: Python<'_>,
    op: u8,
    places: ArgumentIndices,
    hand_on: (Py<PyAny>, Py<PyAny>),
    unbox: (Py<PyAny>, Py<PyAny>),
) -> PyResult<Bound<'_, PyAny>> {
    let (redispatch, behind) = hand_on;
    let (group_of, work_of) = unbox;
    let kernel = Kernel {
        op,
        places,
        redispatch,
        behind,
        group_of,
        work_of,
    };
    let made = Immortal::closure(py, c"operation", move |given| {
        kernel.run(given).map(Bound::unbind)
    })?;
    Ok(made.bind(py).clone())
}

impl Kernel {
    /// `given` are keys of the dispatcher and the operation's arguments, of which none has to be named.
    fn run<'py>(&self, given: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let mut group = None;
        if is_on() {
            // What cannot be told is left out: an operation is not to fail by us.
            quietly(|| group = self.begins(given).ok().flatten());
        }
        let made = self.hand_on(given);
        if let Some(group) = group {
            quietly(|| self.is_issued(given.py(), group, made.as_ref().ok()));
        }
        made
    }

    fn hand_on<'py>(&self, given: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let py = given.py();
        let keys = given.get_item(0)?.bitand(&self.behind)?;
        let arguments = given.iter().skip(1);
        let given: Vec<_> = std::iter::once(keys).chain(arguments).collect();
        call_with(self.redispatch.bind(py), PyTuple::new(py, given)?, None)
    }

    /// Returns the number of the group, if it is one that is recorded.
    fn begins(&self, given: &Bound<'_, PyTuple>) -> PyResult<Option<usize>> {
        let py = given.py();
        let begun_at = monotonic_nanos();
        let group = argument(given, self.places.group)?;
        let group = call(self.group_of.bind(py), (group,))?;
        let kind = with_torch(py, |torch| {
            torch.operations.get(usize::from(self.op)).copied()
        });
        let (Some(number), Some(kind)) = (number_of_group(&group), kind.flatten()) else {
            return Ok(None);
        };
        let root = self.places.root.map(|place| argument(given, place));
        let look = OperationInfo {
            op: self.op,
            kind,
            is_async: self.is_async(given)?,
            root: root.map_or(Ok(-1), |root| root?.extract())?,
            tensor: None,
            has_no_tensors: false,
        };
        noted(py, number, begun_at, &look, self.tensors(given)?)?;
        Ok(Some(number))
    }

    fn is_async(&self, given: &Bound<'_, PyTuple>) -> PyResult<bool> {
        match self.places.is_async.map(|place| argument(given, place)) {
            Some(Ok(is_async)) => is_async.is_truthy(),
            // torch leaves out at the end what is as always, which for this is true.
            Some(Err(_)) => Ok(true),
            None => Ok(is_async_for_caller(given.py()).unwrap_or(true)),
        }
    }

    fn tensors(&self, given: &Bound<'_, PyTuple>) -> PyResult<Tensors> {
        let py = given.py();
        for place in &self.places.tensors {
            let tensors = argument(given, *place)?;
            let tensors = if tensors.is_instance_of::<PyList>() {
                tensors
            } else {
                PyList::new(py, [tensors])?.into_any()
            };
            if let Some(told) = tensors::describe_tensors(&tensors, None)? {
                return Ok(told);
            }
        }
        Ok(Tensors::none(py))
    }

    /// `made` is what it gave, if it has not failed: its work, perhaps behind tensors.
    fn is_issued(&self, py: Python<'_>, group: usize, made: Option<&Bound<'_, PyAny>>) {
        let Some(mut pending) = take_issued(py, group) else {
            return;
        };
        let Some(made) = made else {
            // Whether torch has counted it is not known.
            if let Some(mut state) = state(py) {
                if let Some(group) = state.groups.get_mut(group) {
                    group.count.forget();
                }
                pending.is_over(py, &state.ledger, Outcome::Failed);
            }
            return;
        };
        let work = match made.cast::<PyTuple>() {
            Ok(several) => several.get_item(several.len().saturating_sub(1)),
            Err(_) => Ok(made.clone()),
        };
        if let Ok(work) = work.and_then(|work| call(self.work_of.bind(py), (work,))) {
            pending.until = CompletionSource::Work(WorkObject::new(&work));
            wait_for(py, pending);
        }
    }
}

/// Behind the keys.
fn argument<'py>(given: &Bound<'py, PyTuple>, place: usize) -> PyResult<Bound<'py, PyAny>> {
    given.get_item(place + 1)
}

/// Whether the function of torch's that asks is to return at once. C++ has none that says so, and waits when it comes to that.
fn is_async_for_caller(py: Python<'_>) -> PyResult<bool> {
    let getframe = py
        .import(interned!(py, "sys"))?
        .getattr(interned!(py, "_getframe"))?;
    let locals = call(&getframe, ())?.getattr(interned!(py, "f_locals"))?;
    let get = locals.getattr(interned!(py, "get"))?;
    call(&get, (interned!(py, "async_op"), true))?.is_truthy()
}
