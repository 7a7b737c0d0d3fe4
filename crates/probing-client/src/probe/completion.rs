//! What a prompt asks about the target's live objects.

use std::time::Duration;

use probing_proto::message::completion::{Complete, Completion, Describe, Description};
use probing_proto::message::{Call, Event};

use crate::error::ClientError;
use crate::probe::Probe;

impl Probe {
    /// How a name may go on.
    pub fn complete(
        &mut self,
        wanted: Complete,
        patience: Duration,
    ) -> Result<Vec<Completion>, ClientError> {
        match self.ask(Call::Complete(wanted), patience)? {
            Event::Completions { completions } => Ok(completions),
            _ => Ok(Vec::new()),
        }
    }

    /// What the object at the end of the steps is; `None` when it is not there.
    pub fn describe(
        &mut self,
        wanted: Describe,
        patience: Duration,
    ) -> Result<Option<Description>, ClientError> {
        match self.ask(Call::Describe(wanted), patience)? {
            Event::Described { description } => Ok(description),
            _ => Ok(None),
        }
    }
}
