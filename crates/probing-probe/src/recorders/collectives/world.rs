//! The group of all ranks: which job it is of, which rank this process has in it, and how far it has come.
//!
//! Read from torch's own objects, whether operations are recorded or not.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use probing_proto::env;
use probing_store::monotonic_nanos;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::breakpoints::loaded_module;
use crate::process::per_process::PerProcess;
use crate::python::call::call;
use crate::python::embedded::embedded;
use crate::python::gil_cell::GilCell;
use crate::python::interned::interned;
use crate::python::signal_handlers;
use crate::python::weak::{is_target, weak_of};
use crate::recorders::collectives::next_sequence;
use crate::requests::worker::SingleFlight;

/// The least time between two looks, by who writes rows, whether torch.distributed is initialised.
const LOOK_INTERVAL_NANOS: i64 = 50_000_000;

const NO_RANK: u32 = u32::MAX;
/// There when nobody looks for the rank of this process any more: what torch has told of it, for threads that do not hold the
/// GIL. A child of a fork has another rank, or none.
static RANK: PerProcess<AtomicU32> = PerProcess::new();
static NEXT_LOOK: AtomicI64 = AtomicI64::new(0);
/// Of [`notice_rank`].
static LOOK: SingleFlight = SingleFlight::new();

/// The group that was seen last, and its job.
static SEEN: PerProcess<GilCell<KnownGroup>> = PerProcess::new();
type KnownGroup = Option<(Py<PyAny>, Option<String>)>;

/// How far the ranks of a job have come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) job: Option<String>,
    /// Operations so far, as torch counts them.
    pub(crate) operations: Option<i64>,
}

/// This process's rank: what its launcher said, else what torch.distributed was seen to say.
pub(crate) fn rank() -> Option<u32> {
    let given = env::rank(env::Variable::value);
    if given.is_some() {
        settle();
    }
    given.or_else(rank_in_torch)
}

/// The rank that torch.distributed was seen to say. Needs no GIL.
pub(crate) fn rank_in_torch() -> Option<u32> {
    let rank = RANK.get()?.load(Ordering::Acquire);
    (rank != NO_RANK).then_some(rank)
}

/// Asks torch.distributed which rank this process has, if it is initialised and nobody else has said it.
pub(crate) fn look_for_rank(py: Python<'_>) {
    if !is_settled()
        && let Some((_, group)) = group(py)
    {
        learn_rank(&group);
        crate::recording::rank_is_known(py);
    }
}

/// Has torch.distributed asked soon, if it is initialised by now. Called before rows are written: it runs no Python, and
/// torch gives the GIL back while it tells the rank, so that another thread asks it.
#[inline]
pub(crate) fn notice_rank(py: Python<'_>) {
    if !is_settled() {
        notice_unsettled(py);
    }
}

#[cold]
fn notice_unsettled(py: Python<'_>) {
    let now = monotonic_nanos();
    if now < NEXT_LOOK.load(Ordering::Relaxed) {
        return;
    }
    NEXT_LOOK.store(now + LOOK_INTERVAL_NANOS, Ordering::Relaxed);
    if group(py).is_some() {
        LOOK.start(look_for_rank);
    }
}

fn is_settled() -> bool {
    RANK.get().is_some()
}

/// A launcher has said the rank: torch need not be asked.
fn settle() {
    RANK.get_or_init(|| AtomicU32::new(NO_RANK));
}

fn learn_rank(group: &Bound<'_, PyAny>) {
    let rank = group.getattr(interned!(group.py(), "rank"));
    let rank = rank.and_then(|rank| call(&rank, ())?.extract::<u32>());
    let rank = rank.unwrap_or(NO_RANK);
    let known = RANK.get_or_init(|| AtomicU32::new(rank));
    known.store(rank, Ordering::Release);
}

/// How far the group of all ranks has come, where there is one.
pub(crate) fn progress(py: Python<'_>) -> Progress {
    let Some((c10d, group)) = group(py) else {
        return Progress::default();
    };
    Progress {
        job: know(&c10d, &group),
        operations: next_sequence(&group).ok(),
    }
}

/// `torch.distributed` and its group of all ranks, once it is initialised. Nothing is imported.
fn group(py: Python<'_>) -> Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)> {
    let c10d = loaded_module(py, interned!(py, "torch.distributed.distributed_c10d"))?;
    let world = c10d.getattr(interned!(py, "_world")).ok()?;
    let group = world.getattr(interned!(py, "_default_pg")).ok()?;
    (!group.is_none()).then_some((c10d, group))
}

/// The job of a group, and this process's rank, which are asked for once.
fn know(c10d: &Bound<'_, PyAny>, group: &Bound<'_, PyAny>) -> Option<String> {
    let py = group.py();
    let known = SEEN.get_or_init(|| GilCell::new(None));
    if let Some(seen) = known.try_borrow_mut(py)
        && let Some((weak, job)) = &*seen
        && is_target(weak, group)
    {
        return job.clone();
    }
    let job = signal_handlers::given_aside(py, || {
        learn_rank(group);
        call(&function(py, "job_of")?, (c10d, group))?.extract()
    });
    let job: Option<String> = job.flatten();
    let now = weak_of(group).map(|weak| (weak, job.clone()));
    let before = known
        .try_borrow_mut(py)
        .map(|mut seen| std::mem::replace(&mut *seen, now));
    drop(before);
    crate::recording::rank_is_known(py);
    job
}

/// A function of `world.py`.
pub(crate) fn function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static OWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let own = OWN.get_or_try_init(py, || embedded!(py, "world_group.py").map(Bound::unbind))?;
    own.bind(py).as_any().get_item(name)
}
