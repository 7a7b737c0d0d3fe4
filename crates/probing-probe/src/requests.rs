//! Requests of clients: each on a thread of its own, with one moment at which it takes effect.

pub(crate) mod outbox;
pub(crate) mod request;
pub(crate) mod subsystem;
pub(crate) mod worker;
