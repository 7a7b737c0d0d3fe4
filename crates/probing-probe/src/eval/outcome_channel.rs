//! The outcome of an eval that runs on another thread, handed to the thread that answers.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use probing_proto::message::{Outcome, Raised};

use crate::requests::interrupt::Interrupt;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone, Default)]
pub(crate) struct Handoff(Arc<Shared>);

#[derive(Default)]
struct Shared {
    outcome: Mutex<Option<Outcome>>,
    changed: Condvar,
}

impl Handoff {
    pub(crate) fn give(&self, outcome: Outcome) {
        let mut given = self.lock();
        given.get_or_insert(outcome);
        self.0.changed.notify_all();
    }

    /// Waits, without the GIL, until the code has ended or was cancelled before it began. Every so often, `meanwhile`.
    pub(crate) fn take(&self, interrupt: &Interrupt, mut meanwhile: impl FnMut()) -> Outcome {
        interrupt.when_abandoned(Box::new({
            let handoff = self.clone();
            move || handoff.give(abandoned())
        }));
        let mut outcome = self.lock();
        loop {
            if let Some(outcome) = outcome.take() {
                return outcome;
            }
            let (given, waited) = self
                .0
                .changed
                .wait_timeout(outcome, POLL_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
            outcome = given;
            if waited.timed_out() {
                drop(outcome);
                meanwhile();
                outcome = self.lock();
            }
        }
    }

    /// The outcome, if it is there.
    pub(crate) fn taken(&self) -> Option<Outcome> {
        self.lock().take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Outcome>> {
        self.0
            .outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of code that was cancelled before it began.
pub(crate) fn abandoned() -> Outcome {
    let exception = "KeyboardInterrupt".to_owned();
    Outcome::Raised(Raised {
        traceback: format!("{exception}\n"),
        exception,
        message: String::new(),
        frames: Vec::new(),
    })
}
