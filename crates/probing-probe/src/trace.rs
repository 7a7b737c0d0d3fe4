//! What functions do, told where they run: tracing, and taps of our own on functions of libraries.
//!
//! From Python 3.12 on we are a tool of `sys.monitoring` (`monitoring_tool.rs`), told of exactly the code objects that somebody wants
//! to know of (`code_table.rs`). What begins and ends is a record of 32 bytes in a ring of its thread (`thread.rs`); events come
//! there in a straight line (`fast_path.rs`), or by way of all that can be different (`events.rs`; lines: `lines.rs`), also to what
//! a *tap* does (`tap.rs`). That is a few nanoseconds: no lock, no dictionary, no allocation.
//!
//! A *trace* (`traces.rs`) is what a client asks for: `setting.rs` finds its functions, `callees.rs` those that they call.
//! What an event costs is measured (`cost.rs`), and every trace pays from a purse (`budget.rs`, `accounting.rs`): what is called
//! too often is muted for a while, and that is said.
//!
//! A child of a fork has none of what clients asked for.

pub(crate) mod accounting;
pub(crate) mod budget;
pub(crate) mod callees;
pub(crate) mod clock;
pub(crate) mod code_table;
pub(crate) mod cost;
pub(crate) mod events;
pub(crate) mod fast_path;
pub(crate) mod function_stats;
pub(crate) mod functions;
pub(crate) mod lines;
pub(crate) mod monitoring_tool;
pub(crate) mod program;
pub(crate) mod setting;
pub(crate) mod tap;
pub(crate) mod thread;
pub(crate) mod thread_cache;
pub(crate) mod traces;

use std::time::Instant;

use probing_proto::message::trace::{Trace, TraceId, TraceStatus};
use probing_proto::message::{Event, Failure};
use pyo3::prelude::*;

use self::traces::Owner;
use crate::instrument::probe_call;
use crate::instrument::trace_instrument;
use crate::python::monitoring;
use crate::requests::request::Pending;
use crate::requests::subsystem::Subsystem;
use crate::requests::worker;

pub(crate) use self::callees::{code_of as code_of_callable, of_class};
pub(crate) use self::program::add_to;
pub(crate) use self::tap::{EventContext, EventSet, Tap};
pub(crate) use crate::instrument::trace_instrument::{
    at_line, called, knows, left, returned, unwound, wants_calls, wants_lines,
};

/// Begins a trace that a client asks for, on a thread that has the GIL.
pub(crate) fn begin(py: Python<'_>, wanted: Trace, pending: Pending<'_>) -> Result<Event, Failure> {
    let trace = setting::begin(py, wanted, Owner::Client, pending)?;
    Ok(Event::Traced(told_of(&trace, setting::others_profile(py))))
}

/// Ends traces, on a thread that has the GIL.
pub(crate) fn end(py: Python<'_>, wanted: &[TraceId]) -> Event {
    setting::end(py, wanted)
}

/// What is traced, as it is now: looked at on a thread that has the GIL, so that the counts are those of now.
pub(crate) fn report_traces(py: Python<'_>) -> Event {
    accounting::look(py, true);
    let traces = traces::if_any()
        .map(traces::Traces::all)
        .unwrap_or_default();
    let others = setting::others_profile(py);
    Event::Traces {
        traces: traces.iter().map(|trace| told_of(trace, others)).collect(),
    }
}

/// A trace, and what it cannot see, because profile functions of others are in its way.
fn told_of(trace: &traces::Trace, others: usize) -> TraceStatus {
    let mut told = trace.report();
    if others > 0 && trace.may_profile() && !told.ended {
        let threads = match others {
            1 => "a thread".to_owned(),
            others => format!("{others} threads"),
        };
        let unseen = format!(
            "calls of {threads} with a profile function of another tool (sys.setprofile, cProfile) are not recorded until it is removed"
        );
        let notes = [unseen].into_iter().chain(told.note);
        told.note = Some(notes.collect::<Vec<_>>().join("; "));
    }
    told
}

/// Traces that clients and the program asked for.
pub(crate) struct TraceSubsystem;

impl Subsystem for TraceSubsystem {
    fn next_deadline(&self) -> Option<Instant> {
        setting::next_deadline()
    }

    fn tick(&self) {
        setting::tick();
    }

    /// What the program asked for is followed in the child, too.
    fn after_fork(&self, py: Python<'_>) {
        forget(py);
        program::after_fork(py);
    }

    /// What was seen becomes rows.
    fn leave(&self, py: Python<'_>) {
        if traces::if_any().is_some() {
            accounting::look(py, true);
            drop(setting::end(py, &[]));
        }
    }

    fn leave_soon(&self) {
        let is_used = traces::if_any().is_some_and(|traces| !traces.all().is_empty());
        if is_used {
            // Without a thread, what is left goes on until its time is over.
            drop(worker::start(|| {
                worker::with_interpreter(|py| Self.leave(py));
            }));
        }
    }
}

/// From now on, a tap is told of a function. Before Python 3.12 it gets code that tells (`trace_instrument.rs`). Refused when there is
/// no room.
pub(crate) fn tap(function: &Bound<'_, PyAny>, tap: &'static dyn Tap) -> Result<(), Failure> {
    let py = function.py();
    let code = code_of(function)?;
    monitoring_tool::know(function);
    monitoring_tool::claim(py)?;
    let is_new = code_table::table(py).add(&code, tap).ok_or_else(|| {
        Failure::new("too many taps on one function").with_hint("remove one of them first")
    })?;
    if is_new {
        monitoring_tool::tell(&code);
    }
    Ok(())
}

/// From now on, it is not.
pub(crate) fn untap(function: &Bound<'_, PyAny>, tap: &'static dyn Tap) {
    let py = function.py();
    let Ok(code) = code_of(function) else {
        return;
    };
    if code_table::table(py).remove(&code, tap) {
        monitoring_tool::tell(&code);
    }
    let forgotten = code_table::table(py).take_if_empty(&code);
    drop(forgotten);
    monitoring_tool::release_if_idle(code.py());
}

/// In the child of a fork: nothing is told any more.
fn forget(py: Python<'_>) {
    setting::forget_seekers();
    if code_table::table(py).is_empty() {
        monitoring_tool::release_if_idle(py);
        return;
    }
    let codes = code_table::table(py).take_all();
    let codes: Vec<_> = codes.into_iter().map(|code| code.into_bound(py)).collect();
    monitoring_tool::tell_each(py, &codes);
    older_or_not(py);
    monitoring_tool::release_if_idle(py);
}

fn older_or_not(py: Python<'_>) {
    if !monitoring::is_there(py) {
        trace_instrument::forget(py);
    }
}

fn code_of<'py>(function: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, Failure> {
    let py = function.py();
    if function.hasattr("co_code").unwrap_or(false) {
        return Ok(function.clone());
    }
    let code = function.getattr(crate::python::interned::interned!(py, "__code__"));
    let code = code.map(probe_call::own_code);
    code.map_err(|error| Failure::new(format!("it has no Python code: {error}")))
}
