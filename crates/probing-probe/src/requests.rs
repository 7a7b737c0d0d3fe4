//! Requests of clients: each on a thread of its own, with one moment at which it takes effect.
//!
//! `worker.rs` is the thread, `outbox.rs` takes its answers, `output_sink.rs` what it prints. `request.rs` is the moment of
//! its effect; `interrupt.rs` ends it before its time, where `interrupt_safety.rs` says that this does no harm; `active.rs`
//! knows all that run. In code of ours and of clients nothing stops (`quiet.rs`). What higher rooms give to lower ones is
//! here, too: their contract with the probe's thread (`subsystem.rs`), how that is woken (`wake.rs`), and how the probe is
//! started (`probe_control.rs`).

pub(crate) mod active;
pub(crate) mod interrupt;
pub(crate) mod interrupt_safety;
pub(crate) mod outbox;
pub(crate) mod output_sink;
pub(crate) mod probe_control;
pub(crate) mod quiet;
pub(crate) mod request;
pub(crate) mod subsystem;
pub(crate) mod wake;
pub(crate) mod worker;
