//! Where the bytes came from that are in use: a sampler of what Python's allocators give out.
//!
//! `hooks.rs` stands before the allocators and counts bytes down: the block on which a countdown of 512 KiB on average ends is
//! a sample. `frames.rs` and `stacks.rs` tell which Python code asked for it, `samples.rs` keeps it until it is given back, `types.rs` looks
//! what became of it. Whoever wants to know gets sums; every ten seconds they are rows of `python.heap`, so that a process
//! that was killed for its memory still tells.
//!
//! What torch and numpy allocate for their numbers does not go through Python's allocators and is not seen: it is in `rss`.

mod frames;
mod hooks;
mod samples;
mod stacks;
mod types;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use probing_proto::message::Failure;
use probing_proto::message::recorders::Heap;
use probing_proto::tables::builtin::HEAP;
use probing_store::{Value, Writer, monotonic_nanos};
use pyo3::prelude::*;

use self::samples::{Samples, Site};
use crate::process::per_process::PerProcess;
use crate::recorders::memory::rss;
use crate::recording;
use crate::recording::step;

pub(crate) use self::frames::{Frame, Walk};

/// Bytes between two samples, on average.
const PERIOD_BYTES: u64 = 512 << 10;
/// Between two times that rows are written.
const ROWS_EVERY: Duration = Duration::from_secs(10);
/// Stacks that are told about at a time, those with most bytes.
const MAX_SITES: usize = 500;
/// The same for rows.
const MAX_ROWS: usize = 200;

/// What this process knows of its heap. A child of a fork has its own: the parent's locks may be held by threads that are not
/// here.
#[derive(Debug)]
struct State {
    samples: Mutex<Samples>,
    rows: Mutex<HeapRowWriter>,
}

#[derive(Debug)]
struct HeapRowWriter {
    writer: Writer,
    next: Instant,
}

/// There since the sampler was first switched on.
static STATE: PerProcess<State> = PerProcess::new();

impl State {
    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rows(&self) -> MutexGuard<'_, HeapRowWriter> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Without the GIL.
    fn write_rows(&self) {
        let sites = self.samples().sites(MAX_ROWS);
        let rows = &mut *self.rows();
        rows.next = Instant::now() + ROWS_EVERY;
        let ts = monotonic_nanos();
        let step = step::now().map_or(Value::Null, Value::I64);
        for site in sites {
            append(&mut rows.writer, ts, step, &site);
        }
    }
}

fn append(writer: &mut Writer, ts: i64, step: Value<'_>, site: &Site) {
    let stack = site.text();
    let [func, file, lineno] = match site.frames.first() {
        Some(frame) => [
            Value::Symbol(writer.symbol(&frame.func)),
            Value::Symbol(writer.symbol(&frame.file)),
            Value::I64(i64::from(frame.lineno)),
        ],
        None => [Value::Null, Value::Null, Value::Null],
    };
    let told = site.live.told();
    let row = [
        Value::I64(told.bytes as i64),
        Value::I64(told.blocks as i64),
        Value::I64(told.samples as i64),
        Value::I64(site.allocated_bytes as i64),
        func,
        file,
        lineno,
        if stack.is_empty() {
            Value::Null
        } else {
            Value::Text(&stack)
        },
        step,
    ];
    // A row that does not fit is a defect, and nobody here to tell.
    writer.append(ts, &row).ok();
}

/// Begins to sample; false when it does already.
pub(crate) fn begin(py: Python<'_>) -> Result<bool, Failure> {
    if is_on() {
        return Ok(false);
    }
    crate::server::lifecycle::follow_forks();
    if STATE.get().is_none() {
        let writer = recording::ring(py, &HEAP)
            .map_err(|error| Failure::new(format!("cannot make the table python.heap: {error}")))?;
        let next = Instant::now();
        STATE.get_or_init(|| State {
            samples: Mutex::default(),
            rows: Mutex::new(HeapRowWriter { writer, next }),
        });
    }
    if let Some(state) = STATE.get() {
        state.rows().next = Instant::now() + ROWS_EVERY;
        let held = state.samples().clear();
        samples::let_go(py, &held);
    }
    hooks::install(py)?;
    Ok(true)
}

/// Ends it; false when it was not on. What somebody else has wrapped meanwhile stays, and only passes on.
pub(crate) fn end(py: Python<'_>) -> bool {
    let Some(state) = STATE.get().filter(|_| is_on()) else {
        return false;
    };
    state.write_rows();
    hooks::remove(py);
    let held = state.samples().clear();
    samples::let_go(py, &held);
    true
}

pub(crate) fn is_on() -> bool {
    hooks::is_armed()
}

/// In a child of a fork: it samples when it is asked to, not because its parent did.
pub(crate) fn after_fork() {
    hooks::disarm();
}

/// What one should know about a sampler that is on.
pub(crate) fn note(py: Python<'_>) -> Option<String> {
    (is_on() && !hooks::are_called(py)).then(|| {
        "another tool has restored the allocators: no allocations are recorded; switch recording \
         off and on again"
            .to_owned()
    })
}

/// Bytes in use that were allocated since it is on.
pub(crate) fn live_bytes() -> Option<i64> {
    let state = STATE.get().filter(|_| is_on())?;
    Some(state.samples().live_bytes() as i64)
}

/// What is in use.
pub(crate) fn heap_report(py: Python<'_>) -> Result<Heap, Failure> {
    let Some(state) = STATE.get().filter(|_| is_on()) else {
        return Err(Failure::new("the heap is not sampled")
            .with_hint("switch it on: `probing -t PID memory on`"));
    };
    let begun = Instant::now();
    let (sites, types, dropped) = {
        let samples = state.samples();
        (
            samples.sites(MAX_SITES),
            types::live_types(py, &samples),
            samples.dropped(),
        )
    };
    // Who looks leaves it behind for those who ask later.
    state.write_rows();
    Ok(Heap {
        period_bytes: PERIOD_BYTES,
        rss: rss::rss_now(),
        taken_at_nanos: monotonic_nanos().unsigned_abs(),
        held_nanos: begun.elapsed().as_nanos() as u64,
        sites: sites.into_iter().map(Site::told).collect(),
        types,
        dropped,
    })
}

/// When the probe's thread is to look again.
pub(crate) fn next_deadline() -> Option<Instant> {
    let state = STATE.get().filter(|_| is_on())?;
    Some(state.rows().next)
}

/// Writes rows when it is time. Without the GIL.
pub(crate) fn tick() {
    if let Some(state) = STATE.get().filter(|_| is_on())
        && Instant::now() >= state.rows().next
    {
        state.write_rows();
    }
}
