//! Evaluation: code of a client, run with the program's live names.

pub(crate) mod async_task;
pub(crate) mod autograd_guard;
pub(crate) mod code;
pub(crate) mod dispatch;
pub(crate) mod evaluation;
pub(crate) mod last_value;
pub(crate) mod namespace;
pub(crate) mod outcome_channel;
pub(crate) mod source_lines;
pub(crate) mod stdout_capture;
pub(crate) mod storage;
pub(crate) mod thread_lookup;
pub(crate) mod traceback;
