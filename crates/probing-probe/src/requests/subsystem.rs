//! What every subsystem of the probe does while clients come and go, the process forks, and the probe leaves.
//!
//! The calls that it serves are in the table of `server/calls.rs`.

use std::sync::Arc;
use std::time::Instant;

use probing_proto::message::RequestId;
use pyo3::prelude::*;

use crate::requests::outbox::Outbox;

/// Breakpoints, traces, torch and the like, as the probe's thread and its lifecycle know them.
pub(crate) trait Subsystem: Sync {
    /// The probe is about to start: begins what the program's environment asks for and needs no client.
    fn prepare(&self, _py: Python<'_>) {}

    /// The probe has started: begins what the program's environment asks for.
    fn start(&self, _py: Python<'_>) {}

    /// When [`Subsystem::tick`] has something to do. Asked by the probe's thread, which has no GIL.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Does what is due. Called by the probe's thread, which has no GIL and must not wait.
    fn tick(&self) {}

    /// A client cancels a request that no thread works at: whether it was one that this subsystem keeps, and ends now.
    fn cancel(&self, _client: &Arc<Outbox>, _request: RequestId) -> bool {
        false
    }

    /// A client has gone.
    fn client_gone(&self, _client: &Arc<Outbox>) {}

    /// In the child of a fork: what clients asked for is not done there.
    fn after_fork(&self, _py: Python<'_>) {}

    /// The probe leaves: nothing of this subsystem stays behind.
    fn leave(&self, py: Python<'_>);

    /// The probe leaves, by its own thread, which must not wait for the GIL: switches off what it can; the rest is done when
    /// the GIL can be had.
    fn leave_soon(&self);

    /// The interpreter exits, and all have left.
    fn at_exit(&self, _py: Python<'_>) {}
}
