//! `python.collectives`: what the ranks of a job do together.
//!
//! torch calls a hook of ours before it issues each operation of a process group, those that DDP makes from C++ included. The
//! row is written before the operation begins: the one that hangs, or that aborts the process, is the one that is needed. A
//! second row tells what became of it. An operation that the program waits for in a call of torch's is over when the call
//! returns, or fails when that ends by an exception. Of any other, torch is asked at the next operation, step or second: for
//! these there is a hook behind the issue, too, which costs as much as the one before. Nothing of the program's is wrapped,
//! and nobody waits for an operation because of us.
//!
//! A torch before 2.14 has no such hooks: there its dispatcher tells (`kernels.py`, `kernels.rs`).
//!
//! `door.py` is what is done to torch once, `process_groups.rs` how we speak with it, `hooks.rs` what torch calls, `call_taps.rs` how we
//! hear that a call is over; `prehook_args.rs`, `tensors.rs`, `sequence.rs` and `sites.rs`
//! tell what an operation is, `pending.rs` and `work_status.rs` what has become of it; `world.rs` reads the group of all ranks.

pub(crate) mod call_taps;
pub(crate) mod hooks;
pub(crate) mod kernels;
pub(crate) mod pending;
pub(crate) mod prehook_args;
pub(crate) mod process_groups;
pub(crate) mod sequence;
pub(crate) mod sites;
pub(crate) mod tensors;
pub(crate) mod work_status;
pub(crate) mod world;

use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use probing_proto::message::Failure;
use probing_store::monotonic_nanos;
use pyo3::prelude::*;
use pyo3::types::PyType;

use self::pending::{CompletionSource, Operations, Pending};
use self::prehook_args::{PreHookReader, Sizes};
use self::process_groups::{asked_of_watch, watch};
use self::sequence::{Count, Counted};
use self::sites::Sites;
use self::tensors::Tensors;
use self::work_status::WorkReader;
use crate::process::per_process::PerProcess;
use crate::python::call::call;
use crate::python::gil_cell::{GilCell, GilGuard};
use crate::python::interned::interned;
use crate::python::weak::{is_target, target};
use crate::recording::step;
use crate::recording::{self, Ledger, Operation, Outcome};
use crate::requests::worker::SingleFlight;
use crate::trace::{self, Tap};

pub(crate) use self::world::{Progress, look_for_rank, notice_rank, progress, rank, rank_in_torch};

/// Operations of a group that torch is asked about when another begins, as long as they are over.
const MAX_QUERIED: usize = 4;
const SECOND: Duration = Duration::from_secs(1);

static ON: AtomicBool = AtomicBool::new(false);
/// There since recording was first switched on.
static STATE: PerProcess<GilCell<State>> = PerProcess::new();
/// How many operations are pending, for the probe's thread.
static PENDING: AtomicU32 = AtomicU32::new(0);
/// Of [`tick`].
static LOOK: SingleFlight = SingleFlight::new();
static NEXT: AtomicU64 = AtomicU64::new(0);

struct State {
    watch: Py<PyAny>,
    ledger: Ledger,
    sites: Sites,
    known: tensors::TensorCache,
    pending: Operations,
    /// By the numbers of their hooks: a number is never another group's.
    groups: Vec<Group>,
    /// What is known of torch, once it is there.
    torch: Option<Torch>,
    taps: Vec<(Py<PyAny>, &'static dyn Tap)>,
}

struct Torch {
    glance: PreHookReader,
    works: WorkReader,
    /// By their numbers.
    operations: Vec<Kind>,
    work: Py<PyType>,
    /// An operation that fails is heard of.
    calls_tell: bool,
}

/// An operation that torch has.
#[derive(Clone, Copy)]
struct Kind {
    name: u32,
    has_root: bool,
    /// Operations between two ranks have no number that others know.
    is_between_two: bool,
}

/// A group that has hooks. It keeps them as long as it lives, which is not longer because of us.
struct Group {
    weak: Py<PyAny>,
    about: GroupInfo,
    count: Count,
}

/// What is seen of an operation before anything is asked.
struct OperationInfo {
    /// Torch's number of what it is.
    op: u8,
    kind: Kind,
    is_async: bool,
    root: i64,
    /// Its one tensor, with the number of its type.
    tensor: Option<(Sizes, i32)>,
    has_no_tensors: bool,
}

#[derive(Clone, Copy)]
struct GroupInfo {
    job: Option<u32>,
    name: u32,
    rank: i64,
    size: i64,
    /// A call that waits returns when the operation is over. Elsewhere it may be over only for the host.
    waits: bool,
    /// The same, and it is seen to return.
    returns_when_over: bool,
    /// The hook behind the issue is there.
    has_after: bool,
}

/// This process's state. `None` also while it is borrowed: what runs in the middle of our work is not recorded. Whoever has
/// it runs no code of the program.
#[inline]
fn state(py: Python<'_>) -> Option<GilGuard<'_, State>> {
    STATE.get()?.try_borrow_mut(py)
}

/// What is known of torch, once it is there.
#[inline]
fn with_torch<T>(py: Python<'_>, work: impl FnOnce(&mut Torch) -> T) -> Option<T> {
    state(py)?.torch.as_mut().map(work)
}

/// Keeps the groups that the program has not destroyed, before the interpreter goes.
///
/// Torch destroys those behind the interpreter's back, among the last things of the process. A group would free its hooks
/// then, and pybind11 takes the GIL for that, of an interpreter that is no more: a crash. One that we have a reference to
/// is never destroyed; what it has goes with the process. A forked child destroys the groups of its parent.
pub(crate) fn keep_groups(py: Python<'_>) {
    let state = STATE.of_any_process();
    let Some(state) = state.and_then(|state| state.try_borrow_mut(py)) else {
        return;
    };
    for group in &state.groups {
        mem::forget(target(py, &group.weak).map(Bound::unbind));
    }
}

/// Begins to record; false when it does already.
pub(crate) fn begin(py: Python<'_>) -> Result<bool, Failure> {
    if is_on() {
        return Ok(false);
    }
    crate::server::lifecycle::follow_forks();
    let failed = |error: PyErr| Failure::new(format!("collectives cannot be traced: {error}"));
    crate::server::exit::follow(py).map_err(failed)?;
    let ledger = recording::ledger(py);
    if STATE.get().is_none() {
        let watch = watch(py).map_err(failed)?;
        let sites = Sites::new(py);
        STATE.get_or_init(|| {
            GilCell::new(State {
                watch: watch.unbind(),
                ledger,
                sites,
                known: tensors::TensorCache::default(),
                pending: Operations::default(),
                groups: Vec::new(),
                torch: None,
                taps: Vec::new(),
            })
        });
    }
    if let Some(mut state) = state(py) {
        // What they have done meanwhile was not counted.
        let groups = state.groups.iter_mut();
        groups.for_each(|group| group.count = Count::default());
    }
    ON.store(true, Ordering::Release);
    if let Err(error) = asked_of_watch(py, "begin", ()) {
        ON.store(false, Ordering::Release);
        return Err(failed(error));
    }
    Ok(true)
}

/// Ends it; false when it was not on.
pub(crate) fn end(py: Python<'_>) -> bool {
    if !is_on() {
        return false;
    }
    poll(py);
    ON.store(false, Ordering::Release);
    let left = state(py).map(|mut state| {
        let taps = std::mem::take(&mut state.taps);
        (state.pending.clear(), taps)
    });
    PENDING.store(0, Ordering::Release);
    if let Some((pending, taps)) = left {
        for (code, tap) in taps {
            trace::untap(code.bind(py), tap);
        }
        drop(pending);
    }
    // What stays does nothing any more.
    drop(asked_of_watch(py, "end", ()));
    true
}

pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Acquire)
}

/// In a child of a fork, which has the parent's groups and must not use them.
pub(crate) fn after_fork() {
    ON.store(false, Ordering::Release);
    PENDING.store(0, Ordering::Release);
}

/// What one should know about it.
pub(crate) fn note(py: Python<'_>) -> Option<String> {
    poll(py);
    if !is_on() {
        return None;
    }
    let note = asked_of_watch(py, "note", ()).ok()?;
    note.extract().ok()?
}

/// The job that the newest group belongs to.
pub(crate) fn job(py: Python<'_>) -> Option<String> {
    asked_of_watch(py, "newest_job", ()).ok()?.extract().ok()?
}

/// When the probe's thread is to come by. Also while nothing is pending: who issues an operation does not wake it.
pub(crate) fn next_deadline() -> Option<Instant> {
    is_on().then(|| Instant::now() + SECOND)
}

/// Has somebody look whether operations are done, where the program does not come by itself.
pub(crate) fn tick() {
    let now = monotonic_nanos().unsigned_abs();
    let is_due =
        is_on() && PENDING.load(Ordering::Acquire) > 0 && now >= NEXT.load(Ordering::Acquire);
    if is_due && !LOOK.is_taken() {
        NEXT.store(now + SECOND.as_nanos() as u64, Ordering::Release);
        LOOK.start(poll);
    }
}

/// Notes which operations are done by now.
pub(crate) fn poll(py: Python<'_>) {
    if PENDING.load(Ordering::Acquire) == 0 {
        return;
    }
    // Taken out: asking torch may let others run, who may come here, too.
    let taken = state(py).map(|mut state| (state.ledger, state.pending.take_askable()));
    let Some((ledger, mut taken)) = taken else {
        return;
    };
    taken.retain_mut(|pending| {
        let goes_on = goes_on(py, &ledger, pending);
        if goes_on && pending.is_let_go(py) {
            pending.is_over(py, &ledger, Outcome::Completed);
            return false;
        }
        goes_on
    });
    if let Some(mut state) = state(py) {
        state.pending.put_back(taken.into_iter());
        count(&state);
    }
}

/// Notes which of a group's oldest operations are done by now. Mostly those that came later are not, when one is not.
fn poll_group(py: Python<'_>, group: usize, now: i64) {
    for _ in 0..MAX_QUERIED {
        let taken = state(py).and_then(|mut state| {
            let oldest = state.pending.take_oldest(group, now)?;
            Some((state.ledger, oldest))
        });
        let Some((ledger, mut oldest)) = taken else {
            break;
        };
        if goes_on(py, &ledger, &mut oldest) {
            if let Some(mut state) = state(py) {
                state.pending.put_oldest_back(oldest, now);
            }
            break;
        }
    }
    if let Some(state) = state(py) {
        count(&state);
    }
}

fn goes_on(py: Python<'_>, ledger: &Ledger, pending: &mut Pending) -> bool {
    match pending.outcome(py) {
        Ok(Outcome::Enqueued) if !pending.was_waited_for(py) => true,
        Ok(Outcome::Enqueued) => {
            pending.is_over(py, ledger, Outcome::Completed);
            false
        }
        Ok(outcome) => {
            pending.is_over(py, ledger, outcome);
            false
        }
        // Who cannot be asked now cannot be asked later.
        Err(_) => false,
    }
}

fn count(state: &State) {
    PENDING.store(state.pending.len() as u32, Ordering::Release);
}

/// No panic leaves the probe.
fn quietly(work: impl FnOnce()) {
    drop(panic::catch_unwind(AssertUnwindSafe(work)));
}

fn number_of_group(group: &Bound<'_, PyAny>) -> Option<usize> {
    let state = state(group.py())?;
    let mut groups = state.groups.iter();
    groups.position(|known| is_target(&known.weak, group))
}

/// Notes an operation that begins.
fn noted(
    py: Python<'_>,
    number: usize,
    begun_at: i64,
    look: &OperationInfo,
    tensors: Tensors,
) -> PyResult<()> {
    let recorded =
        state(py).and_then(|state| Some((state.ledger, state.groups.get(number)?.about)));
    let Some((ledger, about)) = recorded else {
        return Ok(());
    };
    let &OperationInfo { kind, is_async, .. } = look;
    let seq = number_of(py, number, look);
    let has_root = kind.has_root || kind.is_between_two;
    let root = Some(look.root).filter(|root| has_root && *root >= 0);
    let asked = state(py).map(|mut state| state.sites.here(py));
    let asked = asked.unwrap_or_default();
    let operation = Operation {
        job: about.job,
        group: about.name,
        rank: about.rank,
        size: about.size,
        seq,
        op: kind.name,
        shapes: tensors.shapes,
        dtype: tensors.dtype,
        bytes: tensors.bytes,
        root,
        is_async,
        thread: recording::thread_id(),
        step: step::now(),
        site: asked.site,
    };
    ledger.write(py, (begun_at, None), &operation, Outcome::Enqueued);
    if PENDING.load(Ordering::Acquire) > 0 {
        forget_unissued(py, number, operation.thread);
        poll_group(py, number, begun_at);
    }
    let ends_with_call = about.returns_when_over && asked.call.is_some();
    let pending = Pending {
        begun_at,
        operation,
        group: number,
        call: asked.call,
        is_waited_for: about.waits && !is_async,
        until: if ends_with_call {
            CompletionSource::Call
        } else {
            CompletionSource::Issued
        },
    };
    wait_for(py, pending);
    if !ends_with_call && !about.has_after {
        hear_after(py, number)?;
    }
    Ok(())
}

/// One that this thread began before in this group and that was never issued has failed.
fn forget_unissued(py: Python<'_>, group: usize, thread: u32) {
    let taken = state(py).and_then(|mut state| {
        let failed = state.pending.take_unissued(thread, group)?;
        Some((state.ledger, failed))
    });
    if let Some((ledger, failed)) = taken {
        failed.is_over(py, &ledger, Outcome::Failed);
    }
}

/// Nobody but torch will know when this one is over: has it tell behind the issue, from this one on.
#[cold]
fn hear_after(py: Python<'_>, number: usize) -> PyResult<()> {
    let unheard = |state: &mut State| {
        let group = state.groups.get_mut(number)?;
        // Noted first: another thread must not register it, too.
        let is_new = !std::mem::replace(&mut group.about.has_after, true);
        is_new.then(|| target(py, &group.weak)).flatten()
    };
    let Some(group) = state(py).and_then(|mut state| unheard(&mut state)) else {
        return Ok(());
    };
    let heard =
        hooks::after(py, number).and_then(|after| asked_of_watch(py, "hear_after", (group, after)));
    if heard.is_err()
        && let Some(mut state) = state(py)
        && let Some(group) = state.groups.get_mut(number)
    {
        group.about.has_after = false;
    }
    heard.map(drop)
}

/// The number of an operation in its group, among those that all ranks do.
fn number_of(py: Python<'_>, group: usize, look: &OperationInfo) -> Option<i64> {
    let next = Counted {
        kind: look.op,
        is_between_two: look.kind.is_between_two,
    };
    let (known, asked) = {
        let mut state = state(py)?;
        let failures_tell = state.torch.as_ref().is_some_and(|it| it.calls_tell);
        let group = state.groups.get_mut(group)?;
        let known = failures_tell.then(|| group.count.next(next)).flatten();
        let is_asked = known.is_none() && !group.count.is_untold();
        (known, is_asked.then(|| target(py, &group.weak)))
    };
    let seq = match asked {
        None => known,
        // Torch is asked with nothing borrowed: it may let other threads run.
        Some(target) => {
            let number = target.and_then(|it| next_sequence(&it).ok());
            state(py)?.groups.get_mut(group)?.count.told(number, next)
        }
    };
    seq.filter(|_| !next.is_between_two)
}

/// The number that a group gives to its next operation.
fn next_sequence(group: &Bound<'_, PyAny>) -> PyResult<i64> {
    let sequence = interned!(group.py(), "_get_sequence_number_for_group");
    call(&group.getattr(sequence)?, ())?.extract()
}

/// What this thread has just issued in a group, when only torch will know that it is over.
fn take_issued(py: Python<'_>, group: usize) -> Option<Pending> {
    let thread = recording::thread_id();
    state(py)?.pending.take_unissued(thread, group)
}

/// Has torch asked about it from now on.
fn wait_for(py: Python<'_>, pending: Pending) {
    let forgotten = state(py).and_then(|mut state| {
        let oldest = state.pending.push(pending);
        count(&state);
        oldest
    });
    drop(forgotten);
}
