//! The recorders of memory and of collectives of one target.

use std::time::Duration;

use probing_proto::message::recorders::{Heap, TracerCall, TracerState};
use probing_proto::message::{Call, Event};

use crate::error::ClientError;
use crate::probe::Probe;

/// Both take the GIL.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

impl Probe {
    /// Switches a tracer, or only asks how it is.
    pub fn tracer(&mut self, call: TracerCall) -> Result<TracerState, ClientError> {
        match self.ask(Call::Tracer(call), REQUEST_TIMEOUT)? {
            Event::Tracer(state) => Ok(state),
            _ => Err(self.misunderstood()),
        }
    }

    /// What is in use of a heap that is sampled.
    pub fn heap(&mut self) -> Result<Heap, ClientError> {
        match self.ask(Call::Heap, REQUEST_TIMEOUT)? {
            Event::Heap(heap) => Ok(heap),
            _ => Err(self.misunderstood()),
        }
    }
}
