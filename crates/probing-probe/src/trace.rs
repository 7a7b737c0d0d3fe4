//! What functions do, told where they run: tracing, and taps of our own on functions of libraries.
//!
//! From Python 3.12 on we are a tool of `sys.monitoring` (`tool.rs`), told of exactly the code objects that somebody wants
//! to know of (`table.rs`). What begins and ends is a record of 32 bytes in a ring of its thread (`thread.rs`); events come
//! there in a straight line (`quick.rs`), or by way of all that can be different (`events.rs`; lines: `lines.rs`), also to what
//! a *tap* does (`tap.rs`). That is a few nanoseconds: no lock, no dictionary, no allocation.
//!
//! A *trace* (`traces.rs`) is what a client asks for: `arming.rs` finds its functions, `callees.rs` those that they call.
//! What an event costs is measured (`cost.rs`), and every trace pays from a purse (`purse.rs`, `accounts.rs`): what is called
//! too often is muted for a while, and that is said.
//!
//! A child of a fork has none of what clients asked for.

mod accounts;
mod arming;
mod callees;
mod clock;
mod cost;
mod current;
mod events;
mod functions;
mod lines;
mod older;
mod profile;
mod program;
mod purse;
mod quick;
mod table;
mod tap;
mod thread;
mod tool;
mod traces;
mod tracing;

use std::time::Instant;

use probing_proto::message::{Event, Failure};
use probing_proto::trace::{Trace, TraceId, Traced};
use pyo3::prelude::*;

use self::traces::Owner;
use crate::monitoring;
use crate::request::Pending;
use crate::stops::site;
use crate::worker;

pub(crate) use self::older::{
    at_line, called, knows, left, returned, unwound, wants_calls, wants_lines,
};
pub(crate) use self::program::add_to;
pub(crate) use self::tap::{At, Tap, Wants};

/// Begins a trace that a client asks for, on a thread that has the GIL.
pub(crate) fn begin(py: Python<'_>, wanted: Trace, pending: Pending<'_>) -> Result<Event, Failure> {
    let trace = arming::begin(py, wanted, Owner::Client, pending)?;
    Ok(Event::Traced(told_of(&trace, arming::others_profile(py))))
}

/// Ends traces, on a thread that has the GIL.
pub(crate) fn end(py: Python<'_>, wanted: &[TraceId]) -> Event {
    arming::end(py, wanted)
}

/// What is traced, as it is now: looked at on a thread that has the GIL, so that the counts are those of now.
pub(crate) fn told(py: Python<'_>) -> Event {
    accounts::look(py, true);
    let traces = traces::if_any()
        .map(traces::Traces::all)
        .unwrap_or_default();
    let others = arming::others_profile(py);
    Event::Traces {
        traces: traces.iter().map(|trace| told_of(trace, others)).collect(),
    }
}

/// A trace, and what it cannot see, because profile functions of others are in its way.
fn told_of(trace: &traces::Trace, others: usize) -> Traced {
    let mut told = trace.told();
    if others > 0 && trace.may_profile() && !told.ended {
        let threads = match others {
            1 => "a thread".to_owned(),
            others => format!("{others} threads"),
        };
        let unseen = format!(
            "what {threads} with a profile function of another tool (sys.setprofile, cProfile) calls is not seen until that is gone"
        );
        let notes = [unseen].into_iter().chain(told.note);
        told.note = Some(notes.collect::<Vec<_>>().join("; "));
    }
    told
}

/// When [`tick`] has something to do.
pub(crate) fn next_deadline() -> Option<Instant> {
    arming::next_deadline()
}

/// Ends what has had its time. Called by the server's thread.
pub(crate) fn tick() {
    arming::tick();
}

/// From now on, a tap is told of a function. Before Python 3.12 it gets code that tells (`older.rs`). Refused when there is
/// no room.
pub(crate) fn tap(function: &Bound<'_, PyAny>, tap: &'static dyn Tap) -> Result<(), Failure> {
    let py = function.py();
    let code = code_of(function)?;
    tool::know(function);
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

/// In the child of a fork: what clients asked for is not followed there, what the program asked for is.
pub(crate) fn after_fork(py: Python<'_>) {
    forget(py);
    program::after_fork(py);
}

/// The probe leaves: what clients asked for ends, and what was seen becomes rows.
pub(crate) fn leave(py: Python<'_>) {
    if traces::if_any().is_some() {
        accounts::look(py, true);
        drop(arming::end(py, &[]));
    }
}

/// In the child of a fork: nothing is told any more.
fn forget(py: Python<'_>) {
    arming::forget_seekers();
    if table::table().is_empty() {
        tool::release_if_idle(py);
        return;
    }
    let codes = table::table().take_all();
    let codes: Vec<_> = codes.into_iter().map(|code| code.into_bound(py)).collect();
    tool::tell_each(py, &codes);
    older_or_not(py);
    tool::release_if_idle(py);
}

fn older_or_not(py: Python<'_>) {
    if !monitoring::is_there(py) {
        older::forget(py);
    }
}

/// The same, for who must not wait for the GIL: done when it can be had.
pub(crate) fn leave_soon() {
    let is_used = traces::if_any().is_some_and(|traces| !traces.all().is_empty());
    if is_used {
        // Without a thread, what is left goes on until its time is over.
        drop(worker::start(|| {
            worker::with_interpreter(leave);
        }));
    }
}

fn code_of<'py>(function: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, Failure> {
    let py = function.py();
    if function.hasattr("co_code").unwrap_or(false) {
        return Ok(function.clone());
    }
    let code = function.getattr(crate::interned::interned!(py, "__code__"));
    let code = code.map(site::own_code);
    code.map_err(|error| Failure::new(format!("it has no code of Python's: {error}")))
}
