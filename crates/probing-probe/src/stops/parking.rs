//! The other threads of the program wait while one is stopped, where that was asked for: each at its next line. A thread
//! that is in a call of C comes to no line, and goes on in there.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use super::arming;
use super::events;
use crate::forks;
use crate::interrupt::own_thread;

/// How often a thread that waits looks whether it still must: a fork may have lost its wake-up.
const OFTEN: Duration = Duration::from_millis(500);

/// The threads that hold all others.
static HOLDERS: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static CHANGED: Condvar = Condvar::new();

/// This thread holds all others, from now until [`end`].
pub(super) fn begin(py: Python<'_>) {
    // What stopped it may be disarmed by now; where nothing is told, nobody waits.
    drop(arming::claim(py));
    lock().push(own_thread());
    events::begin_special();
    arming::refresh(py);
}

pub(super) fn end(py: Python<'_>) {
    let own = own_thread();
    lock().retain(|holder| *holder != own);
    CHANGED.notify_all();
    events::end_special();
    arming::settle(py);
}

/// Whether any thread holds the others.
pub(super) fn is_on() -> bool {
    !lock().is_empty()
}

/// Waits while another thread holds this one. Of two that hold each other, the first one's wish counts.
pub(super) fn park(py: Python<'_>) {
    let own = own_thread();
    let must_wait = |holders: &Vec<u64>| holders.first().is_some_and(|first| *first != own);
    if !must_wait(&lock()) || forks::are_handled(py) {
        return;
    }
    py.detach(|| {
        let mut holders = lock();
        while must_wait(&holders) {
            holders = CHANGED
                .wait_timeout(holders, OFTEN)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    });
}

/// In a forked child: those threads are not here.
pub(super) fn forget() {
    lock().clear();
}

fn lock() -> std::sync::MutexGuard<'static, Vec<u64>> {
    HOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}
