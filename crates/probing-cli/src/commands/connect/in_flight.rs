//! Requests in flight of `probing connect`, and their interrupts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use probing_client::{Canceller, ClientError};
use probing_engine::Stopper;
use probing_proto::message::{Failure, RequestId};

/// Each eval in flight has a connection, and the probe serves 64 of all its clients together.
const MAX_IN_FLIGHT: usize = 32;

#[derive(Debug, Default)]
pub(super) struct InFlight {
    flights: Mutex<HashMap<RequestId, Flight>>,
    landed: Condvar,
}

#[derive(Debug)]
enum Flight {
    /// On its way to the target, or no eval.
    Begun,
    /// It shall be interrupted as soon as it runs.
    Cancelled,
    Runs(Canceller),
    /// A query, which runs here.
    Asks(Stopper),
}

impl InFlight {
    pub(super) fn begin(&self, id: RequestId) -> Result<(), Failure> {
        let mut flights = self.flights();
        if flights.len() == MAX_IN_FLIGHT {
            let failure = Failure::new(format!("more than {MAX_IN_FLIGHT} requests in flight"));
            return Err(failure.with_hint("wait for some of them, or open another connection"));
        }
        match flights.entry(id) {
            Entry::Vacant(place) => {
                place.insert(Flight::Begun);
                Ok(())
            }
            Entry::Occupied(_) => {
                let id = id.0;
                let error = format!("a request with this id is in flight: {id}");
                Err(Failure::new(error))
            }
        }
    }

    /// From here on the target has it.
    pub(super) fn runs(&self, id: RequestId, canceller: &Canceller) -> Result<(), ClientError> {
        let before = self.flights().insert(id, Flight::Runs(canceller.clone()));
        match before {
            Some(Flight::Cancelled) => canceller.cancel(),
            _ => Ok(()),
        }
    }

    /// From here on the engine has it.
    pub(super) fn asks(&self, id: RequestId, stopper: &Stopper) {
        let before = self.flights().insert(id, Flight::Asks(stopper.clone()));
        if let Some(Flight::Cancelled) = before {
            stopper.stop();
        }
    }

    /// Interrupts an eval or a query; one that has just ended needs nothing.
    pub(super) fn cancel(&self, id: RequestId) -> Result<(), ClientError> {
        match self.flights().get_mut(&id) {
            Some(Flight::Runs(canceller)) => canceller.cancel(),
            Some(Flight::Asks(stopper)) => {
                stopper.stop();
                Ok(())
            }
            Some(flight) => {
                *flight = Flight::Cancelled;
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn end(&self, id: RequestId) {
        self.flights().remove(&id);
        self.landed.notify_all();
    }

    /// Waits until every request has ended, but not longer than `patience`.
    pub(super) fn wait_for_none(&self, patience: Duration) {
        let waited = self
            .landed
            .wait_timeout_while(self.flights(), patience, |flights| !flights.is_empty());
        drop(waited);
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<RequestId, Flight>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
