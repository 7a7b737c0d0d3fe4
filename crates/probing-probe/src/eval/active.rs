//! The evals that run in this process now, whichever server started them: the end of the process waits for them.
#![expect(
    unsafe_code,
    reason = "reached through an atomic pointer, because a fork may come at any moment"
)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::eval::interrupt::Interrupt;

/// This process's; null in a forked child until it starts a probe of its own.
static OF_THIS_PROCESS: AtomicPtr<Evals> = AtomicPtr::new(ptr::null_mut());

#[derive(Debug, Default)]
pub(crate) struct Evals {
    running: Mutex<Vec<Arc<Interrupt>>>,
    left: Condvar,
}

impl Evals {
    /// Made by who starts the probe, with the GIL held.
    pub(crate) fn of_this_process() -> &'static Self {
        let evals = OF_THIS_PROCESS.load(Ordering::Acquire);
        // SAFETY: null, or leaked below and never freed.
        if let Some(evals) = unsafe { evals.as_ref() } {
            return evals;
        }
        let evals: &'static mut Self = Box::leak(Box::default());
        OF_THIS_PROCESS.store(evals, Ordering::Release);
        evals
    }

    /// In a forked child: those of the parent are not ours, and their lock may be held by a thread that is not here.
    pub(crate) fn after_fork() {
        OF_THIS_PROCESS.store(ptr::null_mut(), Ordering::Release);
    }

    pub(crate) fn enter(&self, interrupt: &Arc<Interrupt>) {
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(interrupt));
    }

    pub(crate) fn leave(&self, interrupt: &Arc<Interrupt>) {
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|other| !Arc::ptr_eq(other, interrupt));
        self.left.notify_all();
    }

    /// Interrupts all and waits a while for them to end.
    pub(crate) fn interrupt(&self, patience: Duration) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for interrupt in running.iter() {
            interrupt.request();
        }
        // Those that are stuck in C are left to the end of the process.
        drop(
            self.left
                .wait_timeout_while(running, patience, |running| !running.is_empty()),
        );
    }
}
