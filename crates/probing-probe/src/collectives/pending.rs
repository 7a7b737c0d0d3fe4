//! Operations that are not over yet, as far as is known.

use std::collections::VecDeque;

use probing_store::monotonic_nanos;
use pyo3::prelude::*;

use super::works::{Held, Seen, references};
use crate::guarded::call;
use crate::interned::interned;
use crate::recording::{self, Ledger, Operation, Outcome};

/// Operations of one group that are waited for; of more, the oldest are not seen to be done.
const MOST: usize = 1024;
/// Programs that are ahead of their devices issue an operation every few microseconds: not at each is the oldest asked about.
const REST_NANOS: i64 = 20_000;

/// An operation that was issued, or is about to be.
pub(super) struct Pending {
    pub(super) begun_at: i64,
    pub(super) operation: Operation,
    /// The number of its group.
    pub(super) group: usize,
    /// The frame of torch's that asks for it, by address, for as long as that runs.
    pub(super) call: Option<usize>,
    /// The thread does not go on before it is over.
    pub(super) is_waited_for: bool,
    pub(super) until: Until,
}

/// What tells that it is over.
pub(super) enum Until {
    /// The call, when it returns.
    Call,
    /// What torch will give for it as soon as it is issued.
    Issued,
    /// What torch gave to our hook, which has the work.
    Given(Held),
    /// The same, when the work can be asked without Python.
    Seen(Held, Seen),
    Work(Held),
}

/// Those that a call is busy with, or that were not issued, are few and looked through often. The others wait in the order
/// in which they began, those of each group by themselves: there may be many, of which the oldest is over first.
#[derive(Default)]
pub(super) struct Operations {
    begun: Vec<Pending>,
    issued: Vec<Queue>,
    count: usize,
}

#[derive(Default)]
struct Queue {
    all: VecDeque<Pending>,
    /// Until then the oldest is not asked about, which a moment ago was not over.
    rests_until: i64,
}

impl Operations {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn clear(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Adds one, and gives back one that is not waited for any more.
    pub(super) fn push(&mut self, pending: Pending) -> Option<Pending> {
        self.count += 1;
        let is_issued = !matches!(pending.until, Until::Call | Until::Issued);
        let oldest = if is_issued && pending.call.is_none() {
            let issued = &mut self.queue(pending.group).all;
            issued.push_back(pending);
            (issued.len() > MOST).then(|| issued.pop_front()).flatten()
        } else {
            self.begun.push(pending);
            (self.begun.len() > MOST).then(|| self.begun.remove(0))
        };
        self.count -= usize::from(oldest.is_some());
        oldest
    }

    fn queue(&mut self, group: usize) -> &mut Queue {
        if self.issued.len() <= group {
            self.issued.resize_with(group + 1, Queue::default);
        }
        &mut self.issued[group]
    }

    /// The one that this thread began last in a group, and that has not been issued.
    pub(super) fn take_unissued(&mut self, thread: u32, group: usize) -> Option<Pending> {
        self.take(|it| {
            it.group == group && it.operation.thread == thread && matches!(it.until, Until::Issued)
        })
    }

    /// One of those that a call asked for.
    pub(super) fn take_of(&mut self, call: usize, thread: u32) -> Option<Pending> {
        self.take(|it| it.call == Some(call) && it.operation.thread == thread)
    }

    fn take(&mut self, is_it: impl Fn(&Pending) -> bool) -> Option<Pending> {
        let place = self.begun.iter().rposition(is_it)?;
        self.count -= 1;
        Some(self.begun.remove(place))
    }

    /// The oldest of a group that somebody can be asked about now.
    pub(super) fn take_oldest(&mut self, group: usize, now: i64) -> Option<Pending> {
        let queue = self.issued.get_mut(group)?;
        let is_due = now >= queue.rests_until;
        let oldest = is_due.then(|| queue.all.pop_front()).flatten()?;
        self.count -= 1;
        Some(oldest)
    }

    /// Gives it back: it is not over.
    pub(super) fn put_oldest_back(&mut self, oldest: Pending, now: i64) {
        self.queue(oldest.group).rests_until = now + REST_NANOS;
        self.put_back(std::iter::once(oldest));
    }

    /// All that somebody can be asked about, each with those of its group, the oldest first.
    pub(super) fn take_askable(&mut self) -> Vec<Pending> {
        let queues = self.issued.iter_mut();
        let taken: Vec<Pending> = queues.flat_map(|it| std::mem::take(&mut it.all)).collect();
        self.count -= taken.len();
        taken
    }

    /// Gives back those that go on, before all that came later.
    pub(super) fn put_back(&mut self, pending: impl DoubleEndedIterator<Item = Pending>) {
        for one in pending.rev() {
            self.count += 1;
            self.queue(one.group).all.push_front(one);
        }
    }
}

impl Pending {
    pub(super) fn is_over(&self, py: Python<'_>, ledger: &Ledger, outcome: Outcome) {
        let took = monotonic_nanos() - self.begun_at;
        ledger.write(py, (self.begun_at, Some(took)), &self.operation, outcome);
    }

    /// Whether torch does not say that it is over, and its thread, which is this one, has gone on.
    pub(super) fn was_waited_for(&self, py: Python<'_>) -> bool {
        let has_gone_on = self.is_waited_for && self.operation.thread == recording::thread_id();
        has_gone_on && self.work(py).is_ok_and(|work| is_silent(&work))
    }

    /// Whether torch does not say that it is over, and nobody can wait for it any more.
    pub(super) fn is_let_go(&self, py: Python<'_>) -> bool {
        let Ok(work) = self.work(py) else {
            return false;
        };
        let own = match self.until {
            Until::Work(_) => 2,
            _ => 1,
        };
        let is_between_two = self.operation.seq.is_none();
        !is_between_two && references(&work) == own && is_silent(&work)
    }

    /// The object that the program has, too, if it holds the work.
    fn work<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.until {
            Until::Call | Until::Issued => Ok(py.None().into_bound(py)),
            Until::Work(work) => Ok(work.bind(py).clone()),
            Until::Given(given) | Until::Seen(given, _) => {
                given.bind(py).getattr(interned!(py, "work"))
            }
        }
    }

    /// What has become of it, as far as torch can tell.
    pub(super) fn outcome(&mut self, py: Python<'_>) -> PyResult<Outcome> {
        match &self.until {
            Until::Call | Until::Issued => Ok(Outcome::Enqueued),
            Until::Seen(_held, seen) => Ok(seen.outcome()),
            Until::Work(work) => asked(work.bind(py)),
            Until::Given(given) => {
                let work = given.bind(py).getattr(interned!(py, "work"))?;
                let outcome = asked(&work);
                self.until = Until::Work(Held::new(&work));
                outcome
            }
        }
    }
}

/// Some works do in `wait` what is left to do, and are not over for torch even behind that. They have no future.
fn is_silent(work: &Bound<'_, PyAny>) -> bool {
    !work.is_none() && future_of(work).is_err()
}

fn future_of<'py>(work: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    call(&work.getattr(interned!(work.py(), "get_future"))?, ())
}

fn asked(work: &Bound<'_, PyAny>) -> PyResult<Outcome> {
    let py = work.py();
    // The group does not tell of this one.
    if work.is_none() {
        return Ok(Outcome::Completed);
    }
    let is_done = call(&work.getattr(interned!(py, "is_completed"))?, ())?;
    if !is_done.is_truthy()? {
        return Ok(Outcome::Enqueued);
    }
    // `Work.exception` warns on the program's standard error, and works between two ranks have no future.
    let Ok(future) = future_of(work) else {
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
