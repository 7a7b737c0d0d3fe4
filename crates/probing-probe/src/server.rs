//! The server: the probe's one thread, its socket and the clients on it.

pub(crate) mod agent_launcher;
pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod event_loop;
pub(crate) mod exit;
pub(crate) mod lifecycle;
pub(crate) mod runtime_dir;
pub(crate) mod subsystems;
pub(crate) mod thread;
