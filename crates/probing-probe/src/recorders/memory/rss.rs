//! `python.memory`: how much memory the process has, once a second and at every step of a training.
//!
//! The probe's own thread keeps the second. It never takes the GIL: it asks the main thread to look, at its next bytecode
//! boundary. A second in which the main thread did not come by (it waits, or is in C code) has a row all the same, without
//! what only the interpreter knows.
#![expect(unsafe_code, reason = "Py_AddPendingCall has no safe face")]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use probing_proto::message::Failure;
use probing_proto::tables::builtin::MEMORY;
use probing_store::{Value, Writer, monotonic_nanos};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::process::per_process::PerProcess;
use crate::python::call;
use crate::python::exc_info::Handled;
use crate::recorders::memory::heap;
use crate::recording;
use crate::recording::step;

const SECOND: Duration = Duration::from_secs(1);
/// Counting blocks takes time where there are many: at steps it is left out when it took longer.
const QUICK: Duration = Duration::from_micros(20);

static ON: AtomicBool = AtomicBool::new(false);
/// There since it was first switched on.
static STATE: PerProcess<State> = PerProcess::new();

/// Of one process; a child of a fork has its own.
struct State {
    statm: Option<File>,
    page_bytes: i64,
    /// `gc.get_count` and `sys.getallocatedblocks`, taken before: an import could run code of the program.
    gc_count: Py<PyAny>,
    blocks: Py<PyAny>,
    modules: Py<PyAny>,
    /// Counting blocks was quick the last time.
    is_quick: AtomicBool,
    /// The main thread has been asked, and has not looked yet.
    asked: AtomicBool,
    clock: Mutex<Clock>,
}

struct Clock {
    /// For rows of seconds in which the main thread did not come by.
    writer: Writer,
    next: Instant,
}

/// What was measured.
#[derive(Default)]
pub(crate) struct Usage {
    pub(crate) rss: Option<i64>,
    pub(crate) python_heap: Option<i64>,
    pub(crate) python_blocks: Option<i64>,
    pub(crate) gc: Option<[i64; 3]>,
    pub(crate) torch: Option<[i64; 2]>,
}

impl Usage {
    /// A row of this kind.
    pub(crate) fn values(&self, kind: u32) -> [Value<'static>; 10] {
        let value = |number: Option<i64>| number.map_or(Value::Null, Value::I64);
        let gc = |generation: usize| value(self.gc.map(|gc| gc[generation]));
        let torch = |which: usize| value(self.torch.map(|torch| torch[which]));
        [
            Value::Symbol(kind),
            value(self.rss),
            value(self.python_heap),
            value(self.python_blocks),
            gc(0),
            gc(1),
            gc(2),
            torch(0),
            torch(1),
            value(step::now()),
        ]
    }
}

/// Begins to record; false when it does already.
pub(crate) fn begin(py: Python<'_>) -> Result<bool, Failure> {
    if is_on() {
        return Ok(false);
    }
    crate::server::lifecycle::follow_forks();
    let state = if let Some(state) = STATE.get() {
        state
    } else {
        let made = State::new(py)
            .map_err(|error| Failure::new(format!("memory cannot be recorded: {error}")))?;
        STATE.get_or_init(|| made)
    };
    ON.store(true, Ordering::Release);
    state.clock().next = Instant::now() + SECOND;
    state.record(py, "second");
    Ok(true)
}

/// Ends it, with a last row; false when it was not on.
pub(crate) fn end(py: Python<'_>) -> bool {
    if let Some(state) = STATE.get().filter(|_| is_on()) {
        state.record(py, "second");
    }
    ON.swap(false, Ordering::AcqRel)
}

/// Without the GIL.
pub(crate) fn disarm() {
    ON.store(false, Ordering::Release);
}

pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Acquire)
}

/// A step of the training begins.
pub(crate) fn stepped(py: Python<'_>) {
    if let Some(state) = STATE.get().filter(|_| is_on()) {
        state.record(py, "step");
    }
}

/// When the probe's thread is to look again.
pub(crate) fn next_deadline() -> Option<Instant> {
    let state = STATE.get().filter(|_| is_on())?;
    Some(state.clock().next)
}

/// Has a row made when it is time. Called by the probe's thread, without the GIL.
pub(crate) fn tick() {
    let Some(state) = STATE.get().filter(|_| is_on()) else {
        return;
    };
    let mut clock = state.clock();
    let now = Instant::now();
    if now < clock.next {
        return;
    }
    clock.next = now + SECOND;
    if !state.asked.swap(true, Ordering::AcqRel) {
        // SAFETY: the function lives as long as this library, which Python never unloads, and needs no argument. It may be
        // called without the GIL.
        if unsafe { ffi::Py_AddPendingCall(Some(look), ptr::null_mut()) } == 0 {
            return;
        }
        state.asked.store(false, Ordering::Release);
    }
    let kind = clock.writer.symbol("stuck");
    let usage = Usage {
        rss: state.rss(),
        python_heap: heap::live_bytes(),
        ..Usage::default()
    };
    let row = usage.values(kind);
    // A row that does not fit is a defect, and nobody here to tell.
    clock.writer.append(monotonic_nanos(), &row).ok();
}

/// Called by the interpreter in the main thread, with the GIL held and no exception set.
extern "C" fn look(_: *mut c_void) -> c_int {
    // Nothing may get out of here.
    drop(panic::catch_unwind(AssertUnwindSafe(|| {
        Python::try_attach(|py| {
            let Some(state) = STATE.get() else { return };
            state.asked.store(false, Ordering::Release);
            if is_on() {
                Handled::aside(py, || state.record(py, "second"));
            }
        })
    })));
    0
}

/// Memory that the process has now.
pub(crate) fn rss_now() -> Option<u64> {
    let statm = File::open("/proc/self/statm").ok()?;
    resident(&statm, rustix::param::page_size() as i64).map(i64::unsigned_abs)
}

fn resident(statm: &File, page_bytes: i64) -> Option<i64> {
    let mut bytes = [0; 128];
    let count = statm.read_at(&mut bytes, 0).ok()?;
    let text = str::from_utf8(bytes.get(..count)?).ok()?;
    let pages: i64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_bytes)
}

impl State {
    fn new(py: Python<'_>) -> PyResult<Self> {
        let sys = py.import("sys")?;
        let writer = recording::ring(py, &MEMORY)?;
        Ok(Self {
            statm: File::open("/proc/self/statm").ok(),
            page_bytes: rustix::param::page_size() as i64,
            gc_count: py.import("gc")?.getattr("get_count")?.unbind(),
            blocks: sys.getattr("getallocatedblocks")?.unbind(),
            modules: sys.getattr("modules")?.unbind(),
            is_quick: AtomicBool::new(true),
            asked: AtomicBool::new(false),
            clock: Mutex::new(Clock {
                writer,
                next: Instant::now(),
            }),
        })
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures, and appends a row.
    fn record(&self, py: Python<'_>, kind: &str) {
        let counts_blocks = kind != "step" || self.is_quick.load(Ordering::Relaxed);
        let usage = Usage {
            rss: self.rss(),
            python_heap: heap::live_bytes(),
            python_blocks: counts_blocks.then(|| self.blocks(py)).flatten(),
            gc: self.gc_count(py),
            torch: self.torch(py),
        };
        recording::memory(py, kind, &usage);
    }

    /// As the kernel counts it: less than a microsecond.
    fn rss(&self) -> Option<i64> {
        resident(self.statm.as_ref()?, self.page_bytes)
    }

    fn blocks(&self, py: Python<'_>) -> Option<i64> {
        let begun = Instant::now();
        let blocks = call::call(self.blocks.bind(py), ()).ok()?.extract().ok();
        self.is_quick
            .store(begun.elapsed() < QUICK, Ordering::Relaxed);
        blocks
    }

    fn gc_count(&self, py: Python<'_>) -> Option<[i64; 3]> {
        let (young, next, old) = call::call(self.gc_count.bind(py), ())
            .ok()?
            .extract()
            .ok()?;
        Some([young, next, old])
    }

    /// Of the current device, where torch has been used with one: asking never makes it use one.
    fn torch(&self, py: Python<'_>) -> Option<[i64; 2]> {
        let cuda = self.modules.bind(py).get_item("torch.cuda").ok()?;
        let ask = |name: &str| call::call(&cuda.getattr(name)?, ());
        let is_used: bool = ask("is_initialized").ok()?.extract().ok()?;
        if !is_used {
            return None;
        }
        let allocated = ask("memory_allocated").ok()?.extract().ok()?;
        let reserved = ask("memory_reserved").ok()?.extract().ok()?;
        Some([allocated, reserved])
    }
}
