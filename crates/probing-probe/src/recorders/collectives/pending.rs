//! Operations that are not over yet, as far as is known.

use std::collections::VecDeque;

use probing_store::monotonic_nanos;
use pyo3::prelude::*;

use crate::python::call::call;
use crate::python::interned::interned;
use crate::recorders::collectives::work_status::{WorkHandle, WorkObject, references};
use crate::recording::{self, Ledger, Operation, Outcome};

/// Operations of one group that are waited for; of more, the oldest are not seen to be done.
const MAX_PENDING: usize = 1024;
/// Programs that are ahead of their devices issue an operation every few microseconds: not at each is the oldest asked about.
const REST_NANOS: i64 = 20_000;

/// An operation that was issued, or is about to be.
pub(crate) struct Pending {
    pub(crate) begun_at: i64,
    pub(crate) operation: Operation,
    /// The number of its group.
    pub(crate) group: usize,
    /// The frame of torch's that asks for it, by address, for as long as that runs.
    pub(crate) call: Option<usize>,
    /// The thread does not go on before it is over.
    pub(crate) is_waited_for: bool,
    pub(crate) until: CompletionSource,
}

/// What tells that it is over.
pub(crate) enum CompletionSource {
    /// The call, when it returns.
    Call,
    /// What torch will give for it as soon as it is issued.
    Issued,
    /// What torch gave to our hook, which has the work.
    Given(WorkObject),
    /// The same, when the work can be asked without Python.
    Handle(WorkObject, WorkHandle),
    Work(WorkObject),
}

/// Those that a call is busy with, or that were not issued, are few and looked through often. The others wait in the order
/// in which they began, those of each group by themselves: there may be many, of which the oldest is over first.
#[derive(Default)]
pub(crate) struct Operations {
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
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn clear(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Adds one, and gives back one that is not waited for any more.
    pub(crate) fn push(&mut self, pending: Pending) -> Option<Pending> {
        self.count += 1;
        let is_issued = !matches!(
            pending.until,
            CompletionSource::Call | CompletionSource::Issued
        );
        let oldest = if is_issued && pending.call.is_none() {
            let issued = &mut self.queue(pending.group).all;
            issued.push_back(pending);
            (issued.len() > MAX_PENDING)
                .then(|| issued.pop_front())
                .flatten()
        } else {
            self.begun.push(pending);
            (self.begun.len() > MAX_PENDING).then(|| self.begun.remove(0))
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
    pub(crate) fn take_unissued(&mut self, thread: u32, group: usize) -> Option<Pending> {
        self.take(|it| {
            it.group == group
                && it.operation.thread == thread
                && matches!(it.until, CompletionSource::Issued)
        })
    }

    /// One of those that a call asked for.
    pub(crate) fn take_of(&mut self, call: usize, thread: u32) -> Option<Pending> {
        self.take(|it| it.call == Some(call) && it.operation.thread == thread)
    }

    fn take(&mut self, is_it: impl Fn(&Pending) -> bool) -> Option<Pending> {
        let place = self.begun.iter().rposition(is_it)?;
        self.count -= 1;
        Some(self.begun.remove(place))
    }

    /// The oldest of a group that somebody can be asked about now.
    pub(crate) fn take_oldest(&mut self, group: usize, now: i64) -> Option<Pending> {
        let queue = self.issued.get_mut(group)?;
        let is_due = now >= queue.rests_until;
        let oldest = is_due.then(|| queue.all.pop_front()).flatten()?;
        self.count -= 1;
        Some(oldest)
    }

    /// Gives it back: it is not over.
    pub(crate) fn put_oldest_back(&mut self, oldest: Pending, now: i64) {
        self.queue(oldest.group).rests_until = now + REST_NANOS;
        self.put_back(std::iter::once(oldest));
    }

    /// All that somebody can be asked about, each with those of its group, the oldest first.
    pub(crate) fn take_askable(&mut self) -> Vec<Pending> {
        let queues = self.issued.iter_mut();
        let taken: Vec<Pending> = queues.flat_map(|it| std::mem::take(&mut it.all)).collect();
        self.count -= taken.len();
        taken
    }

    /// Gives back those that go on, before all that came later.
    pub(crate) fn put_back(&mut self, pending: impl DoubleEndedIterator<Item = Pending>) {
        for one in pending.rev() {
            self.count += 1;
            self.queue(one.group).all.push_front(one);
        }
    }
}

impl Pending {
    pub(crate) fn is_over(&self, py: Python<'_>, ledger: &Ledger, outcome: Outcome) {
        let took = monotonic_nanos() - self.begun_at;
        ledger.write(py, (self.begun_at, Some(took)), &self.operation, outcome);
    }

    /// Whether torch does not say that it is over, and its thread, which is this one, has gone on.
    pub(crate) fn was_waited_for(&self, py: Python<'_>) -> bool {
        let has_gone_on = self.is_waited_for && self.operation.thread == recording::thread_id();
        has_gone_on && self.work(py).is_ok_and(|work| is_silent(&work))
    }

    /// Whether torch does not say that it is over, and nobody can wait for it any more.
    pub(crate) fn is_released_by_program(&self, py: Python<'_>) -> bool {
        let Ok(work) = self.work(py) else {
            return false;
        };
        let own = match self.until {
            CompletionSource::Work(_) => 2,
            _ => 1,
        };
        let is_between_two = self.operation.seq.is_none();
        !is_between_two && references(&work) == own && is_silent(&work)
    }

    /// The object that the program has, too, if it holds the work.
    fn work<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.until {
            CompletionSource::Call | CompletionSource::Issued => Ok(py.None().into_bound(py)),
            CompletionSource::Work(work) => Ok(work.bind(py).clone()),
            CompletionSource::Given(given) | CompletionSource::Handle(given, _) => {
                given.bind(py).getattr(interned!(py, "work"))
            }
        }
    }

    /// What has become of it, as far as torch can tell.
    pub(crate) fn outcome(&mut self, py: Python<'_>) -> PyResult<Outcome> {
        match &self.until {
            CompletionSource::Call | CompletionSource::Issued => Ok(Outcome::Enqueued),
            CompletionSource::Handle(_held, seen) => Ok(seen.outcome()),
            CompletionSource::Work(work) => asked(work.bind(py)),
            CompletionSource::Given(given) => {
                let work = given.bind(py).getattr(interned!(py, "work"))?;
                let outcome = asked(&work);
                self.until = CompletionSource::Work(WorkObject::new(&work));
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
