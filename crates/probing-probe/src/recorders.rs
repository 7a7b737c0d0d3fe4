//! Tracers of memory, of collectives and of NaN and Inf values: switched by a client, by a variable, or by the program for as long as a block lasts.

pub(crate) mod collectives;
pub(crate) mod memory;
pub(crate) mod torch;

use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Instant;

use probing_proto::env::{PROBING_MEMORY, PROBING_TORCH};
use probing_proto::message::recorders::{Tracer, TracerCall, TracerState};
use probing_proto::message::{Event, Failure};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::recorders::memory::{heap, rss};
use crate::requests::request::Pending;
use crate::requests::subsystem::Subsystem;
use crate::requests::worker;
use crate::server::lifecycle;

/// Who wants a tracer to be on.
struct RecorderDemand {
    /// A client or a variable.
    asked: AtomicBool,
    /// Blocks of the program that are running.
    blocks: AtomicU32,
    /// Connections that have borrowed it.
    borrowers: AtomicU32,
}

impl RecorderDemand {
    const fn none() -> Self {
        Self {
            asked: AtomicBool::new(false),
            blocks: AtomicU32::new(0),
            borrowers: AtomicU32::new(0),
        }
    }

    fn any(&self) -> bool {
        let some = |count: &AtomicU32| count.load(Ordering::Acquire) > 0;
        self.asked.load(Ordering::Acquire) || some(&self.blocks) || some(&self.borrowers)
    }

    fn forget(&self) {
        self.asked.store(false, Ordering::Release);
        self.blocks.store(0, Ordering::Release);
        self.borrowers.store(0, Ordering::Release);
    }
}

/// One less; none, when the probe has left meanwhile.
fn take_one(count: &AtomicU32) {
    count
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
            count.checked_sub(1)
        })
        .ok();
}

/// What one connection has borrowed: a bit for each tracer, and one for a connection that has ended.
#[derive(Debug, Default)]
pub(crate) struct Borrowed(AtomicU8);

impl Borrowed {
    const ENDED: u8 = 1 << 7;

    fn bit(tracer: Tracer) -> u8 {
        match tracer {
            Tracer::Memory => 1,
            Tracer::Heap => 2,
            Tracer::Collectives => 4,
            Tracer::Nan => 8,
        }
    }

    fn has(&self, tracer: Tracer) -> bool {
        self.0.load(Ordering::Acquire) & Self::bit(tracer) != 0
    }

    /// Whether the connection is there for it.
    fn take(&self, tracer: Tracer) -> bool {
        let before = self.0.fetch_or(Self::bit(tracer), Ordering::AcqRel);
        let is_there = before & Self::ENDED == 0;
        if is_there && before & Self::bit(tracer) == 0 {
            wishes(tracer).borrowers.fetch_add(1, Ordering::AcqRel);
        }
        is_there
    }

    fn give_back(&self, tracer: Tracer) {
        let before = self.0.fetch_and(!Self::bit(tracer), Ordering::AcqRel);
        if before & Self::ENDED == 0 && before & Self::bit(tracer) != 0 {
            take_one(&wishes(tracer).borrowers);
        }
    }

    /// The connection ends: nobody else would give it back. The thread that says so has no GIL.
    pub(crate) fn end(&self) {
        let before = self.0.fetch_or(Self::ENDED, Ordering::AcqRel);
        if before & Self::ENDED != 0 {
            return;
        }
        for tracer in ALL {
            if before & Self::bit(tracer) == 0 {
                continue;
            }
            take_one(&wishes(tracer).borrowers);
            // Without a thread it goes on, until somebody switches it.
            drop(worker::start(move || {
                // Ending one cannot fail, and what others want is on already.
                worker::with_interpreter(|py| drop(follow(py, tracer)));
            }));
        }
    }
}

static MEMORY: RecorderDemand = RecorderDemand::none();
static HEAP: RecorderDemand = RecorderDemand::none();
static COLLECTIVES: RecorderDemand = RecorderDemand::none();
static NAN: RecorderDemand = RecorderDemand::none();
const ALL: [Tracer; 4] = [
    Tracer::Memory,
    Tracer::Heap,
    Tracer::Collectives,
    Tracer::Nan,
];

fn wishes(tracer: Tracer) -> &'static RecorderDemand {
    match tracer {
        Tracer::Memory => &MEMORY,
        Tracer::Heap => &HEAP,
        Tracer::Collectives => &COLLECTIVES,
        Tracer::Nan => &NAN,
    }
}

/// Puts the functions into the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(trace_begin, module)?)?;
    module.add_function(wrap_pyfunction!(trace_end, module)?)
}

/// Does what a client asks.
pub(crate) fn switch(
    py: Python<'_>,
    call: TracerCall,
    borrowed: &Borrowed,
    pending: Pending<'_>,
) -> Result<Event, Failure> {
    let TracerCall {
        tracer,
        on,
        borrowed: is_borrowed,
    } = call;
    if (tracer, on) == (Tracer::Collectives, Some(true)) {
        torch::check_installed(py)?;
    }
    let was_on = is_on(tracer);
    let asked = &wishes(tracer).asked;
    match on {
        Some(true) => {
            let (was_asked, was_borrowed) = (asked.load(Ordering::Acquire), borrowed.has(tracer));
            if !is_borrowed {
                asked.store(true, Ordering::Release);
            } else if !borrowed.take(tracer) {
                return Err(Failure::new("the connection has ended"));
            }
            let switched = follow(py, tracer).and_then(|()| pending.commit());
            if let Err(failure) = switched {
                if !is_borrowed {
                    asked.store(was_asked, Ordering::Release);
                } else if !was_borrowed {
                    borrowed.give_back(tracer);
                }
                // Ending one cannot fail, and what others want is on already.
                drop(follow(py, tracer));
                return Err(failure);
            }
        }
        Some(false) => {
            pending.commit()?;
            if is_borrowed {
                borrowed.give_back(tracer);
            } else {
                asked.store(false, Ordering::Release);
            }
            follow(py, tracer)?;
        }
        None => {}
    }
    Ok(Event::Tracer(TracerState {
        tracer,
        on: is_on(tracer),
        was_on,
        note: note(py, tracer),
        job: job(py, tracer),
    }))
}

/// What is in use of the heap.
pub(crate) fn heap(py: Python<'_>) -> Event {
    heap::heap_report(py).map_or_else(Event::Failed, Event::Heap)
}

/// Memory of the process, and samples of its heap.
pub(crate) struct MemorySubsystem;

const MEMORY_TRACERS: &[Tracer] = &[Tracer::Memory, Tracer::Heap];

impl Subsystem for MemorySubsystem {
    fn prepare(&self, py: Python<'_>) {
        let wanted = PROBING_MEMORY.value();
        let wanted: &[Tracer] = match wanted.as_deref().and_then(OsStr::to_str) {
            Some("1") => MEMORY_TRACERS,
            Some("usage") => &[Tracer::Memory],
            _ => &[],
        };
        follow_environment(py, wanted);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let both = [rss::next_deadline(), heap::next_deadline()];
        both.into_iter().flatten().min()
    }

    fn tick(&self) {
        rss::tick();
        heap::tick();
    }

    fn after_fork(&self, _py: Python<'_>) {
        rss::disarm();
        heap::after_fork();
        forget_demand(MEMORY_TRACERS);
    }

    fn leave(&self, py: Python<'_>) {
        end(py, MEMORY_TRACERS);
    }

    fn leave_soon(&self) {
        rss::disarm();
        if heap::is_on() {
            end_soon(MEMORY_TRACERS);
        }
    }
}

/// Operations that the ranks of a job do together.
pub(crate) struct CollectivesSubsystem;

impl Subsystem for CollectivesSubsystem {
    fn prepare(&self, py: Python<'_>) {
        let torch = PROBING_TORCH.value();
        let words = torch.as_deref().and_then(OsStr::to_str).unwrap_or_default();
        if words.split(',').any(|word| word.trim() == "collectives") {
            follow_environment(py, &[Tracer::Collectives]);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        collectives::next_deadline()
    }

    fn tick(&self) {
        collectives::tick();
    }

    fn after_fork(&self, _py: Python<'_>) {
        collectives::after_fork();
        forget_demand(&[Tracer::Collectives]);
    }

    fn leave(&self, py: Python<'_>) {
        end(py, &[Tracer::Collectives]);
    }

    fn leave_soon(&self) {
        if collectives::is_on() {
            end_soon(&[Tracer::Collectives]);
        }
    }

    fn at_exit(&self, py: Python<'_>) {
        collectives::keep_groups(py);
    }
}

/// The program's environment asks for these; nonsense asks for nothing, since a guest has nobody to tell.
fn follow_environment(py: Python<'_>, tracers: &[Tracer]) {
    for tracer in tracers {
        wishes(*tracer).asked.store(true, Ordering::Release);
        // One that cannot be had is missing from what is recorded, which is how one sees it.
        drop(follow(py, *tracer));
    }
}

/// Nobody wants these any more.
pub(crate) fn forget_demand(tracers: &[Tracer]) {
    for tracer in tracers {
        wishes(*tracer).forget();
    }
}

/// Ends these, whoever wants them.
pub(crate) fn end(py: Python<'_>, tracers: &[Tracer]) {
    forget_demand(tracers);
    for tracer in tracers {
        // Ending one cannot fail.
        drop(follow(py, *tracer));
    }
}

/// The same, for a thread that has no GIL. Without a thread, what is left does nothing any more.
fn end_soon(tracers: &'static [Tracer]) {
    drop(worker::start(|| {
        worker::with_interpreter(|py| end(py, tracers));
    }));
}

/// Makes it what is wished.
fn follow(py: Python<'_>, tracer: Tracer) -> Result<(), Failure> {
    let wanted = wishes(tracer).any();
    match (tracer, wanted) {
        (Tracer::Memory, true) => rss::begin(py).map(drop)?,
        (Tracer::Memory, false) => drop(rss::end(py)),
        (Tracer::Heap, true) => heap::begin(py).map(drop)?,
        (Tracer::Heap, false) => drop(heap::end(py)),
        (Tracer::Collectives, true) => collectives::begin(py).map(drop)?,
        (Tracer::Collectives, false) => drop(collectives::end(py)),
        (Tracer::Nan, wanted) => torch::watch_nan(py, wanted)?,
    }
    lifecycle::wake();
    Ok(())
}

fn is_on(tracer: Tracer) -> bool {
    match tracer {
        Tracer::Memory => rss::is_on(),
        Tracer::Heap => heap::is_on(),
        Tracer::Collectives => collectives::is_on(),
        Tracer::Nan => torch::looks_for_nan(),
    }
}

fn note(py: Python<'_>, tracer: Tracer) -> Option<String> {
    match tracer {
        Tracer::Heap => heap::note(py),
        Tracer::Collectives => collectives::note(py),
        Tracer::Memory | Tracer::Nan => None,
    }
}

fn job(py: Python<'_>, tracer: Tracer) -> Option<String> {
    match tracer {
        Tracer::Collectives => collectives::job(py),
        Tracer::Heap | Tracer::Memory | Tracer::Nan => None,
    }
}

/// What `probing.trace` calls them.
fn of_kind(kind: &str) -> PyResult<&'static [Tracer]> {
    match kind {
        "memory_usage" => Ok(&[Tracer::Memory, Tracer::Heap]),
        "collective_ops" => Ok(&[Tracer::Collectives]),
        _ => Err(PyValueError::new_err(format!(
            "not a built-in kind of trace: {kind}"
        ))),
    }
}

/// A block of the program that is traced in a built-in way begins.
#[pyfunction]
fn trace_begin(py: Python<'_>, kind: &str) -> PyResult<()> {
    // Its thread keeps the seconds.
    lifecycle::start(py).map_err(|error| PyRuntimeError::new_err(error.with_hint()))?;
    for tracer in of_kind(kind)? {
        wishes(*tracer).blocks.fetch_add(1, Ordering::AcqRel);
        follow(py, *tracer).map_err(|failure| PyRuntimeError::new_err(failure.error))?;
    }
    Ok(())
}

/// It ends.
#[pyfunction]
fn trace_end(py: Python<'_>, kind: &str) -> PyResult<()> {
    for tracer in of_kind(kind)?.iter().rev() {
        take_one(&wishes(*tracer).blocks);
        follow(py, *tracer).map_err(|failure| PyRuntimeError::new_err(failure.error))?;
    }
    Ok(())
}
