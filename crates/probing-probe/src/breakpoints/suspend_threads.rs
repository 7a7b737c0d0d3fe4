//! Threads that are suspended at their next line while another thread is stopped.
//!
//! The other threads of the program wait while one is stopped, where that was asked for: each at its next line. A
//! thread that is in a call of C comes to no line, and goes on in there.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::breakpoints::events;
use crate::breakpoints::of_this_process;
use crate::breakpoints::setting;
use crate::eval::interrupt::own_thread;
use crate::process::fork_guard;

/// How often a thread that waits looks whether it still must: a fork may have lost its wake-up.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The threads of a process that hold all others. Those that wait take the lock without the GIL: a child of a fork may find the
/// parent's taken by a thread that is not here, and has its own.
#[derive(Default)]
pub(crate) struct Holders {
    threads: Mutex<Vec<u64>>,
    changed: Condvar,
}

impl Holders {
    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn holders() -> &'static Holders {
    &of_this_process().holders
}

/// This thread holds all others, from now until [`end`].
pub(crate) fn begin(py: Python<'_>) {
    // What stopped it may be disarmed by now; where nothing is told, nobody waits.
    drop(setting::claim(py));
    holders().lock().push(own_thread());
    events::begin_special();
    setting::refresh(py);
}

pub(crate) fn end(py: Python<'_>) {
    let own = own_thread();
    let holders = holders();
    holders.lock().retain(|holder| *holder != own);
    holders.changed.notify_all();
    events::end_special();
    setting::settle(py);
}

/// Whether any thread holds the others.
pub(crate) fn is_on() -> bool {
    !holders().lock().is_empty()
}

/// Waits while another thread holds this one. Of two that hold each other, the first one's wish counts.
pub(crate) fn park(py: Python<'_>) {
    let own = own_thread();
    let must_wait = |threads: &Vec<u64>| threads.first().is_some_and(|first| *first != own);
    let holders = holders();
    if !must_wait(&holders.lock()) || fork_guard::are_handled(py) {
        return;
    }
    py.detach(|| {
        let mut threads = holders.lock();
        while must_wait(&threads) {
            threads = holders
                .changed
                .wait_timeout(threads, RECHECK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    });
}
