//! The recorder of torch of one target.

use std::time::Duration;

use probing_proto::message::torch::{TorchCall, TorchStatus};
use probing_proto::message::{Call, Event};

use crate::error::ClientError;
use crate::probe::Probe;

/// It takes the GIL, and looks for torch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

impl Probe {
    /// Begins, ends or tells it. Gives what is recorded from now on.
    pub fn torch(&mut self, call: TorchCall) -> Result<TorchStatus, ClientError> {
        match self.ask(Call::Torch(call), REQUEST_TIMEOUT)? {
            Event::Torch(status) => Ok(status),
            _ => Err(self.misunderstood()),
        }
    }
}
