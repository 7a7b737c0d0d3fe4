//! Traces of functions of one target.

use std::time::Duration;

use probing_proto::message::trace::{Trace, TraceId, TraceStatus};
use probing_proto::message::{Call, Event};

use crate::error::ClientError;
use crate::probe::Probe;

/// To begin one looks for code in the live process, which takes the GIL.
const BEGINNING: Duration = Duration::from_secs(15);

impl Probe {
    /// Follows functions.
    pub fn trace(&mut self, trace: Trace) -> Result<TraceStatus, ClientError> {
        match self.ask(Call::Trace(trace), BEGINNING)? {
            Event::Traced(traced) => Ok(traced),
            _ => Err(self.misunderstood()),
        }
    }

    /// Ends these, or all that clients began when none is named. Gives those that were.
    pub fn untrace(&mut self, traces: Vec<TraceId>) -> Result<Vec<TraceStatus>, ClientError> {
        self.ask_traces(Call::Untrace { traces })
    }

    /// What is traced.
    pub fn traces(&mut self) -> Result<Vec<TraceStatus>, ClientError> {
        self.ask_traces(Call::Traces)
    }

    fn ask_traces(&mut self, call: Call) -> Result<Vec<TraceStatus>, ClientError> {
        match self.ask(call, BEGINNING)? {
            Event::Traces { traces } => Ok(traces),
            _ => Err(self.misunderstood()),
        }
    }
}
