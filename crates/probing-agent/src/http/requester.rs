//! The requester of an answer: code that it asked for does not begin, and does not run on, after it has hung up.
//!
//! hyper drops the future of a request whose connection ends, but what waits for processes is on a thread that nobody can
//! drop. That thread asks here before it takes effect in a process, and what runs there by then is cancelled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use probing_client::{Canceller, ClientError};

/// Shared by the future of a request and the threads that work for it.
#[derive(Debug, Default)]
pub(crate) struct Requester(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    has_hung_up: bool,
    running: Vec<Canceller>,
}

impl Requester {
    /// An error once nobody waits for the answer any more.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        if self.state().has_hung_up {
            return Err(ClientError::HungUp);
        }
        Ok(())
    }

    /// Has code that was started for it end with it.
    pub(crate) fn started(&self, eval: &Canceller) {
        let mut state = self.state();
        if state.has_hung_up {
            drop(state);
            cancel(eval);
        } else {
            state.running.push(eval.clone());
        }
    }

    fn hang_up(&self) {
        let running = {
            let mut state = self.state();
            state.has_hung_up = true;
            std::mem::take(&mut state.running)
        };
        running.iter().for_each(cancel);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has ended cannot be cancelled, and need not be.
fn cancel(eval: &Canceller) {
    drop(eval.cancel());
}

/// Part of the future: dropped with it.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<Requester>);

impl Waiting {
    pub(crate) fn of(requester: &Arc<Requester>) -> Self {
        Self(Arc::clone(requester))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.hang_up();
    }
}
