//! Work that a fork must not meet half-way: forks wait for it, and it waits for forks.
//!
//! A child has only the thread that forked. What another thread had begun, a lock it held or a file it had just opened,
//! would stay like that in the child for ever. The GIL orders who was first.
//!
//! Python has a list of handlers for forks, the program's among them. Some take a lock that others of the same fork give
//! back, as those of `logging` do: a thread that stood still in one would hold up others that have nothing to do with it.
//! Those that were registered after ours run before ours do ahead of the fork, and after ours behind it.
#![expect(
    unsafe_code,
    reason = "whether Python goes through handlers shows in how many references they have"
)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// How long one waits for the other. Neither takes that long; nothing of the program's may hang on us for longer.
const FORK_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Forks that have begun and not ended.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Pieces of work that have begun and not ended.
static WORK: AtomicU32 = AtomicU32::new(0);

/// Ours, once they are registered, and how many references they have together when nobody forks.
static HANDLERS: PyOnceLock<[Py<Handler>; 3]> = PyOnceLock::new();
static USUAL_REFERENCES: AtomicU32 = AtomicU32::new(u32::MAX);

/// What Python calls before a fork or after it. No object that the collector of garbage knows: those who ask it for all
/// objects get no reference to this.
#[pyclass(frozen, module = "probing._probe")]
struct Handler {
    handle: fn(Python<'_>),
}

#[pymethods]
impl Handler {
    fn __call__(&self, py: Python<'_>) {
        (self.handle)(py);
    }
}

/// Has these called before each fork, after it in the parent, and after it in the child; for good, since Python gives no
/// way to take them back.
pub(crate) fn register(py: Python<'_>, handlers: [fn(Python<'_>); 3]) -> PyResult<()> {
    let [before, in_parent, in_child] = handlers.map(|handle| Py::new(py, Handler { handle }));
    let handlers = [before?, in_parent?, in_child?];
    let kwargs = PyDict::new(py);
    for (when, handler) in ["before", "after_in_parent", "after_in_child"]
        .iter()
        .zip(&handlers)
    {
        kwargs.set_item(when, handler)?;
    }
    py.import("os")?
        .call_method("register_at_fork", (), Some(&kwargs))?;
    drop(kwargs);
    drop(HANDLERS.set(py, handlers));
    settle(py);
    Ok(())
}

/// What keeps our handlers now has nothing to do with forks: their list, and whoever has gone through all that there is.
pub(crate) fn settle(py: Python<'_>) {
    USUAL_REFERENCES.store(references(py), Ordering::Release);
}

/// Whether Python goes through the handlers of a fork, on whichever thread. It goes through a copy of their list, which it
/// drops at the end: as long as that is there, ours have one reference more.
pub(crate) fn are_handled(py: Python<'_>) -> bool {
    let now = references(py);
    now > USUAL_REFERENCES.fetch_min(now, Ordering::AcqRel)
}

fn references(py: Python<'_>) -> u32 {
    let handlers = HANDLERS.get(py).into_iter().flatten();
    // SAFETY: the objects live as long as the process, and the GIL is held. From 3.14 on the upper half holds other things.
    let counts = handlers.map(|handler| unsafe { ffi::Py_REFCNT(handler.as_ptr()) } as u32);
    counts.sum()
}

/// Does something during which nobody forks (but C code that does not ask Python).
pub(crate) fn kept_out<T>(py: Python<'_>, work: impl FnOnce() -> T) -> T {
    wait(py, &FORKS);
    WORK.fetch_add(1, Ordering::AcqRel);
    let result = work();
    WORK.fetch_sub(1, Ordering::AcqRel);
    result
}

/// Whether a thread is about to fork, or just has.
pub(crate) fn are_under_way() -> bool {
    FORKS.load(Ordering::Acquire) > 0
}

/// In the thread that forks.
pub(crate) fn before(py: Python<'_>) {
    FORKS.fetch_add(1, Ordering::AcqRel);
    wait(py, &WORK);
}

pub(crate) fn after_in_parent() {
    FORKS.fetch_sub(1, Ordering::AcqRel);
}

/// The child has one thread, and that is here.
pub(crate) fn after_in_child() {
    FORKS.store(0, Ordering::Release);
    WORK.store(0, Ordering::Release);
}

/// Lets other threads have the GIL until none is left of `what`, which is looked at with the GIL held.
fn wait(py: Python<'_>, what: &AtomicU32) {
    let until = Instant::now() + FORK_TIMEOUT;
    while what.load(Ordering::Acquire) != 0 && Instant::now() < until {
        py.detach(|| thread::sleep(POLL_INTERVAL));
    }
}
