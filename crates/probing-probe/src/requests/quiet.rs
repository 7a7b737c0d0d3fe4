//! Code in which no breakpoint is met: the probe's own, and what clients have evaluated.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often code runs quietly at the moment, on all threads: where it does nowhere, none need ask what is its own.
static QUIETS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// How often this thread has said that nothing of it is to be looked at.
    static QUIET: Cell<u32> = const { Cell::new(0) };
}

/// Runs code in which nothing stops: our own, and what clients have evaluated.
pub(crate) fn quietly<T>(code: impl FnOnce() -> T) -> T {
    QUIETS.fetch_add(1, Ordering::AcqRel);
    QUIET.set(QUIET.get() + 1);
    let result = code();
    QUIET.set(QUIET.get() - 1);
    QUIETS.fetch_sub(1, Ordering::AcqRel);
    result
}

/// Whether this thread runs such code.
#[inline]
pub(crate) fn is_quiet() -> bool {
    QUIETS.load(Ordering::Relaxed) > 0 && QUIET.get() > 0
}
