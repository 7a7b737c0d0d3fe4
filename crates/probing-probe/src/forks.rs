//! Work that a fork must not meet half-way: forks wait for it, and it waits for forks.
//!
//! A child has only the thread that forked. What another thread had begun, a lock it held or a file it had just opened,
//! would stay like that in the child for ever. The GIL orders who was first.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long one waits for the other. Neither takes that long; nothing of the program's may hang on us for longer.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_micros(50);

/// Forks that have begun and not ended.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Pieces of work that have begun and not ended.
static WORK: AtomicU32 = AtomicU32::new(0);

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
    let until = Instant::now() + PATIENCE;
    while what.load(Ordering::Acquire) != 0 && Instant::now() < until {
        py.detach(|| thread::sleep(NAP));
    }
}
