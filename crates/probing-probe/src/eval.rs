//! Evaluation: code of a client, run with the program's live names.

pub(crate) mod active;
pub(crate) mod async_task;
pub(crate) mod autograd_guard;
pub(crate) mod code;
pub(crate) mod dispatch;
pub(crate) mod evaluation;
pub(crate) mod interrupt;
pub(crate) mod interrupt_safety;
pub(crate) mod last_value;
pub(crate) mod namespace;
pub(crate) mod outcome_channel;
pub(crate) mod output_sink;
pub(crate) mod pending_call;
pub(crate) mod stdout_capture;
pub(crate) mod thread_lookup;
pub(crate) mod traceback;
