//! A client's request on its way to take effect: whether it does, or its client gave it up before, is decided once.
//!
//! A client gives up by `cancel`, by closing the connection, by being killed. The probe's thread hears of that without the GIL;
//! the thread that does the work may still wait for the GIL then, or search for code. So whatever changes something in the target
//! has one commit point. A change that is taken back easily (a breakpoint, a watch, a trace, a tracer that is switched on) is prepared,
//! then committed, and undone when the commit is refused. A change that is not (a breakpoint deleted, a tracer switched off) is committed
//! before it begins.

use probing_proto::message::Failure;

use crate::requests::interrupt::Interrupt;

/// A request that has not taken effect. Who drops it instead of committing it leaves everything as it was.
#[must_use = "what is not committed must not take effect"]
pub(crate) struct Pending<'a> {
    /// None where the program itself asks, which waits for the answer.
    client: Option<&'a Interrupt>,
}

impl<'a> Pending<'a> {
    pub(crate) fn of_client(interrupt: &'a Interrupt) -> Self {
        let client = Some(interrupt);
        Self { client }
    }

    pub(crate) const fn of_program() -> Self {
        Self { client: None }
    }

    /// Refused when the client has given it up: work that would be undone is not worth beginning.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.client {
            Some(client) if client.is_abandoned() => Err(given_up()),
            _ => Ok(()),
        }
    }

    /// The commit point: from here on it takes effect. Refused when the client was first.
    pub(crate) fn commit(self) -> Result<(), Failure> {
        match self.client {
            Some(client) if !client.begin() => Err(given_up()),
            _ => Ok(()),
        }
    }
}

/// What a request is answered with that its client gave up.
pub(crate) fn given_up() -> Failure {
    Failure::new("cancelled by the client before it took effect")
}
