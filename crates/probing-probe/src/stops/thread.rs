//! The thread that an event is met in.

use pyo3::prelude::*;

use super::codes;
use crate::guarded::call;
use crate::interrupt::own_thread;
use crate::traceback::text_of;

/// As `threading` calls it.
pub(super) fn name(py: Python<'_>) -> String {
    let name = codes::namespace(py)
        .and_then(|names| names.as_any().get_item("thread_name"))
        .and_then(|teller| call(&teller, (own_thread(),)));
    name.map_or_else(|_| "?".to_owned(), |name| text_of(&name))
}

/// The kernel's number of it.
pub(super) fn id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}
