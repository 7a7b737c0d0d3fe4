//! What torch calls before and after it issues an operation: callables with the number of the group that they are of.
//!
//! They stay registered for as long as the group lives and do nothing while nothing is recorded: to unregister one would free
//! what a thread of torch's may be inside of, waiting for the GIL.

use std::ffi::CStr;

use probing_store::monotonic_nanos;
use pyo3::prelude::*;

use crate::python::immortal::{Hook, Numbered};
use crate::python::interned::interned;
use crate::recorders::collectives::pending::CompletionSource;
use crate::recorders::collectives::prehook_args::asked;
use crate::recorders::collectives::tensors::{self, Tensors};
use crate::recorders::collectives::work_status::{WorkObject, is_as_told};
use crate::recorders::collectives::{
    OperationInfo, noted, state, take_issued, wait_for, with_torch,
};

static BEFORE: Numbered<Begins> = Numbered::new();
static AFTER: Numbered<Issued> = Numbered::new();

/// What is called before the group of this number issues an operation.
pub(crate) fn before(py: Python<'_>, number: usize) -> PyResult<Bound<'_, PyAny>> {
    BEFORE.get(py, number)
}

/// What is called after that.
pub(crate) fn after(py: Python<'_>, number: usize) -> PyResult<Bound<'_, PyAny>> {
    AFTER.get(py, number)
}

struct Begins;

impl Hook for Begins {
    const NAME: &'static CStr = c"operation_begins";

    fn is_on() -> bool {
        crate::recorders::collectives::is_on()
    }

    fn on_call(number: usize, given: &Bound<'_, PyAny>) {
        // What cannot be told is left out: an operation is not to fail by us.
        drop(begins(number, given));
    }
}

struct Issued;

impl Hook for Issued {
    const NAME: &'static CStr = c"operation_is_issued";

    fn is_on() -> bool {
        crate::recorders::collectives::is_on()
    }

    fn on_call(number: usize, given: &Bound<'_, PyAny>) {
        issued(number, given);
    }
}

/// A group is about to issue an operation.
fn begins(number: usize, given: &Bound<'_, PyAny>) -> PyResult<()> {
    let begun_at = monotonic_nanos();
    let look = look_at(given)?;
    let tensors = tensors_of(given, &look)?;
    noted(given.py(), number, begun_at, &look, tensors)
}

fn look_at(given: &Bound<'_, PyAny>) -> PyResult<OperationInfo> {
    let py = given.py();
    let nothing = || pyo3::exceptions::PyRuntimeError::new_err("no such operation");
    let seen = with_torch(py, |torch| torch.glance.at(given)).ok_or_else(nothing)?;
    let told = if let Some(seen) = seen {
        seen.in_words()
    } else {
        let told = asked(given)?;
        with_torch(py, |torch| torch.glance.compare(given, &told)).ok_or_else(nothing)?;
        told
    };
    let known = with_torch(py, |torch| {
        let kind = torch.operations.get(usize::from(told.op)).copied();
        let tensor = seen.and_then(|seen| torch.glance.tensor(&seen));
        kind.map(|kind| (kind, tensor))
    });
    let (kind, tensor) = known.flatten().ok_or_else(nothing)?;
    Ok(OperationInfo {
        op: told.op,
        kind,
        is_async: told.is_async,
        root: told.root,
        tensor,
        has_no_tensors: seen.is_some_and(|seen| !seen.has_tensors()),
    })
}

/// Each attribute that torch is asked for takes 100 ns and more: only where it says something new.
fn tensors_of(given: &Bound<'_, PyAny>, look: &OperationInfo) -> PyResult<Tensors> {
    let py = given.py();
    if let Some(tensor) = look.tensor
        && let Some(told) = state(py).and_then(|mut state| state.known.told(py, tensor))
    {
        return Ok(told);
    }
    let number = look.tensor.map(|(_, number)| number);
    for name in [
        interned!(py, "input_tensors"),
        interned!(py, "output_tensors"),
    ] {
        if look.has_no_tensors {
            break;
        }
        if let Some(told) = tensors::describe_tensors(&given.getattr(name)?, number)? {
            return Ok(told);
        }
    }
    Ok(Tensors::none(py))
}

/// Keeps what torch gives for an operation, until it is done.
fn issued(number: usize, given: &Bound<'_, PyAny>) {
    let py = given.py();
    if with_torch(py, |torch| torch.works.wants_comparison()) == Some(true) {
        let is_as_told = is_as_told(given).unwrap_or(Some(false));
        if let Some(is_as_told) = is_as_told {
            with_torch(py, |torch| torch.works.compared(is_as_told));
        }
    }
    if let Some(mut pending) = take_issued(py, number) {
        let held = WorkObject::new(given);
        let seen = with_torch(py, |torch| torch.works.of(given)).flatten();
        // It is looked into later.
        pending.until = match seen {
            Some(seen) => CompletionSource::Handle(held, seen),
            None => CompletionSource::Given(held),
        };
        wait_for(py, pending);
    }
}
