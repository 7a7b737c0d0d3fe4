//! Operations that are not over yet, as far as is known.

use std::collections::VecDeque;

use probing_store::monotonic_nanos;
use pyo3::prelude::*;

use crate::guarded::call;
use crate::interned::interned;
use crate::recording::{Ledger, Operation, Outcome};

/// Operations that are waited for; of more, the oldest are not seen to be done.
const MOST: usize = 1024;

/// An operation that was issued, or is about to be.
pub(super) struct Pending {
    pub(super) begun_at: i64,
    pub(super) operation: Operation,
    /// The frame of torch's that asks for it, by address.
    pub(super) call: Option<usize>,
    pub(super) until: Until,
}

/// What tells that it is over.
pub(super) enum Until {
    /// The call, when it returns.
    Call,
    /// What torch will give for it as soon as it is issued.
    Issued,
    /// What torch gave to our hook, which has the work.
    Given(Py<PyAny>),
    Work(Py<PyAny>),
}

#[derive(Default)]
pub(super) struct Operations(VecDeque<Pending>);

impl Operations {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) -> VecDeque<Pending> {
        std::mem::take(&mut self.0)
    }

    pub(super) fn push(&mut self, pending: Pending) -> Option<Pending> {
        let oldest = (self.0.len() >= MOST).then(|| self.0.pop_front()).flatten();
        self.0.push_back(pending);
        oldest
    }

    /// The one that this thread began last in a group, and that has not been issued.
    pub(super) fn unissued(&mut self, thread: u32, group: u32) -> Option<&mut Pending> {
        let place = self.place_of_unissued(thread, group)?;
        self.0.get_mut(place)
    }

    pub(super) fn take_unissued(&mut self, thread: u32, group: u32) -> Option<Pending> {
        let place = self.place_of_unissued(thread, group)?;
        self.0.remove(place)
    }

    fn place_of_unissued(&self, thread: u32, group: u32) -> Option<usize> {
        self.0.iter().rposition(|it| {
            let operation = &it.operation;
            operation.thread == thread
                && operation.group == group
                && matches!(it.until, Until::Issued)
        })
    }

    /// Those that a call asked for.
    pub(super) fn take_of(&mut self, call: usize, thread: u32) -> Option<Pending> {
        let is_its = |it: &Pending| it.call == Some(call) && it.operation.thread == thread;
        let place = self.0.iter().rposition(is_its)?;
        self.0.remove(place)
    }

    /// Those that somebody can be asked about, the oldest first.
    pub(super) fn take_askable(&mut self, most: usize) -> Vec<Pending> {
        let mut taken = Vec::new();
        let mut place = 0;
        while taken.len() < most && place < self.0.len() {
            if matches!(self.0[place].until, Until::Given(_) | Until::Work(_)) {
                taken.extend(self.0.remove(place));
            } else {
                place += 1;
            }
        }
        taken
    }

    /// Gives back those that go on, before all that came later.
    pub(super) fn put_back(&mut self, pending: Vec<Pending>) {
        for one in pending.into_iter().rev() {
            self.0.push_front(one);
        }
    }
}

impl Pending {
    pub(super) fn is_over(&self, py: Python<'_>, ledger: &Ledger, outcome: Outcome) {
        let took = monotonic_nanos() - self.begun_at;
        ledger.write(py, (self.begun_at, Some(took)), &self.operation, outcome);
    }

    /// What has become of it, as far as torch can tell.
    pub(super) fn outcome(&self, py: Python<'_>) -> PyResult<Outcome> {
        let work = match &self.until {
            Until::Call | Until::Issued => return Ok(Outcome::Enqueued),
            Until::Given(given) => given.bind(py).getattr(interned!(py, "work"))?,
            Until::Work(work) => work.bind(py).clone(),
        };
        // The group does not tell of this one.
        if work.is_none() {
            return Ok(Outcome::Completed);
        }
        let is_done = call(&work.getattr(interned!(py, "is_completed"))?, ())?;
        if !is_done.is_truthy()? {
            return Ok(Outcome::Enqueued);
        }
        // `Work.exception` warns on the program's standard error, and works between two ranks have no future.
        let Ok(future) = call(&work.getattr(interned!(py, "get_future"))?, ()) else {
            return Ok(Outcome::Completed);
        };
        let is_failed = call(&future.getattr(interned!(py, "done"))?, ())?.is_truthy()?
            && call(&future.getattr(interned!(py, "value"))?, ()).is_err();
        Ok(if is_failed {
            Outcome::Failed
        } else {
            Outcome::Completed
        })
    }
}
