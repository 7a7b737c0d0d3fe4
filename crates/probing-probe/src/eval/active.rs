//! The evals that run in this process now, whichever server started them: the end of the process waits for them.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::eval::interrupt::Interrupt;
use crate::process::per_process::PerProcess;

static EVALS: PerProcess<Evals> = PerProcess::new();

#[derive(Debug, Default)]
pub(crate) struct Evals {
    running: Mutex<Vec<Arc<Interrupt>>>,
    left: Condvar,
}

impl Evals {
    pub(crate) fn of_this_process() -> &'static Self {
        EVALS.get_or_init(Self::default)
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
