//! Calls of torch's that wait for operations: what they asked for is over when they are.

use std::sync::atomic::Ordering;

use probing_store::monotonic_nanos;
use pyo3::Borrowed;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::recorders::collectives::pending::CompletionSource;
use crate::recorders::collectives::work_status::WorkObject;
use crate::recorders::collectives::{PENDING, count, poll_group, quietly, state, with_torch};
use crate::recording::{self, Outcome};
use crate::trace::{EventContext, EventSet, Tap};

/// A function of torch's that asks for operations. When it returns, what it waited for is over.
pub(crate) struct Call {
    /// It does only where it has failed, whatever was raised.
    pub(crate) branches: bool,
}

impl Tap for Call {
    fn wants(&self) -> EventSet {
        if self.branches {
            EventSet::RETURNS.and(EventSet::BRANCHES)
        } else {
            EventSet::RETURNS
        }
    }

    fn branched(&self, at: EventContext<'_, '_>) {
        quietly(|| call_is_over(at.code.py(), None));
    }

    fn returned(&self, at: EventContext<'_, '_>, value: Borrowed<'_, '_, PyAny>) {
        quietly(|| call_is_over(at.code.py(), Some(&value)));
    }
}

/// One has failed: torch is about to say so in its log.
pub(crate) struct Failed;

impl Tap for Failed {
    fn wants(&self) -> EventSet {
        EventSet::STARTS
    }

    fn started(&self, at: EventContext<'_, '_>) {
        quietly(|| call_is_over(at.code.py(), None));
    }
}

/// `value` is what it returns, if it does.
fn call_is_over(py: Python<'_>, value: Option<&Bound<'_, PyAny>>) {
    if PENDING.load(Ordering::Acquire) == 0 {
        return;
    }
    let thread = recording::thread_id();
    let here = state(py).and_then(|state| Some((state.ledger, state.sites.call_here()?)));
    let Some((ledger, call)) = here else {
        return;
    };
    let work = value.filter(|value| is_work(value));
    if value.is_none()
        && let Some(mut state) = state(py)
    {
        // Whether torch has counted one that failed is not known.
        state.groups.iter_mut().for_each(|it| it.count.forget());
    }
    let mut group = None;
    loop {
        let taken = state(py).and_then(|mut state| state.pending.take_of(call, thread));
        let Some(mut pending) = taken else {
            break;
        };
        group = Some(pending.group);
        match (value, work, &pending.until) {
            (None, ..) => pending.is_over(py, &ledger, Outcome::Failed),
            (_, Some(work), CompletionSource::Call) => {
                pending.until = CompletionSource::Work(WorkObject::new(work));
                pending.call = None;
            }
            (_, None, CompletionSource::Call) => pending.is_over(py, &ledger, Outcome::Completed),
            _ => pending.call = None,
        }
        if value.is_some() && !matches!(pending.until, CompletionSource::Call) {
            let forgotten = state(py).and_then(|mut state| state.pending.push(pending));
            drop(forgotten);
        }
    }
    if let Some(state) = state(py) {
        count(&state);
    }
    let is_any_left = PENDING.load(Ordering::Acquire) > 0;
    if let Some(group) = group.filter(|_| is_any_left && work.is_none()) {
        poll_group(py, group, monotonic_nanos());
    }
}

#[expect(unsafe_code, reason = "a class is compared without asking it")]
fn is_work(value: &Bound<'_, PyAny>) -> bool {
    let is_work = with_torch(value.py(), |torch| {
        // SAFETY: a live object and a live class.
        unsafe { ffi::PyObject_TypeCheck(value.as_ptr(), torch.work.as_ptr().cast()) != 0 }
    });
    is_work == Some(true)
}
