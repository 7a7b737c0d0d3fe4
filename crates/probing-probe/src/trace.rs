//! What functions do, told where they run: tracing, and taps of our own on functions of libraries.
//!
//! From Python 3.12 on we are a tool of `sys.monitoring` (`tool.rs`), told of exactly the code objects that somebody wants
//! to know of (`table.rs`). Each of them leads to its *taps* (`tap.rs`): what is to be done when it begins and ends.
//! The way from the interpreter's event to the tap is a few nanoseconds: no lock, no dictionary, no allocation.
//!
//! A child of a fork has none of it.

mod table;
mod tap;
mod tool;

use probing_proto::message::Failure;
use pyo3::prelude::*;

use crate::monitoring;

#[allow(unused_imports, reason = "taps come with what uses them")]
pub(crate) use self::tap::{At, Tap, Wants};

/// From now on, a tap is told of a function (or a code object). Refused before Python 3.12, and when there is no room.
pub(crate) fn tap(function: &Bound<'_, PyAny>, tap: &'static dyn Tap) -> Result<(), Failure> {
    let py = function.py();
    if !monitoring::is_there(py) {
        return Err(Failure::new("functions are tapped from Python 3.12 on")
            .with_hint("run the program on Python 3.12 or newer"));
    }
    let code = code_of(function)?;
    tool::claim(py)?;
    let is_new = table::table().add(&code, tap).ok_or_else(|| {
        Failure::new("too many taps on one function").with_hint("take one of them out first")
    })?;
    if is_new {
        tool::tell(&code);
    }
    Ok(())
}

/// From now on, it is not.
pub(crate) fn untap(function: &Bound<'_, PyAny>, tap: &'static dyn Tap) {
    let Ok(code) = code_of(function) else {
        return;
    };
    if table::table().remove(&code, tap) {
        tool::tell(&code);
    }
    let forgotten = table::table().take_if_empty(&code);
    drop(forgotten);
    tool::release_if_idle(code.py());
}

/// In the child of a fork, and when the probe leaves: nothing is told any more.
pub(crate) fn forget(py: Python<'_>) {
    if table::table().is_empty() {
        return;
    }
    let codes = table::table().take_all();
    for code in &codes {
        tool::tell(code.bind(py));
    }
    tool::release_if_idle(py);
}

fn code_of<'py>(function: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, Failure> {
    let py = function.py();
    if function.hasattr("co_code").unwrap_or(false) {
        return Ok(function.clone());
    }
    let code = function.getattr(crate::interned::interned!(py, "__code__"));
    code.map_err(|error| Failure::new(format!("it has no code of Python's: {error}")))
}
