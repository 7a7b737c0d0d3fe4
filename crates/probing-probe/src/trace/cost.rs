//! What one event costs in this process: measured once, by a function that does nothing, and by rows that nobody reads.

use std::sync::{Arc, Mutex, PoisonError};

use probing_proto::message::Failure;
use probing_proto::message::breakpoints::SourceLocation;
use probing_proto::message::trace as proto;
use probing_proto::message::trace::{Scope, TraceId};
use probing_proto::process::{Pid, ProcessKey};
use probing_store::ring::packed::{self, TraceEventKind, TraceRow};
use probing_store::{Writer, monotonic_nanos};
use pyo3::prelude::*;

use crate::instrument::{profile, trace_instrument};
use crate::python::call::call;
use crate::python::embedded;
use crate::python::monitoring;
use crate::trace::code_table::table;
use crate::trace::function_stats::{Role, Tracing};
use crate::trace::traces::{Owner, Trace};
use crate::trace::{functions, monitoring_tool};

/// Rounds, of which the quickest counts, and calls in each.
const ROUNDS: usize = 5;
const CALLS: u32 = 500;
/// When it cannot be measured.
const USUAL_NANOS: f64 = 50.0;

const SOURCE: &str = "
def nothing():
    pass

def loop(count):
    for _ in range(count):
        nothing()
";

/// What was measured, in nanoseconds.
#[derive(Clone, Copy)]
struct Nanos {
    /// Of an event, and that it is added up.
    event: f64,
    /// Of its row.
    row: f64,
}

/// How events are told here, and nanoseconds of one: with its row, or where there are only sums.
pub(crate) fn of_an_event(
    py: Python<'_>,
    wanted: &proto::Trace,
) -> Result<(&'static str, f64), Failure> {
    static OF_FUNCTION: Mutex<Option<Nanos>> = Mutex::new(None);
    static OF_MODULE: Mutex<Option<Nanos>> = Mutex::new(None);
    monitoring_tool::claim(py)?;
    let is_module = matches!(wanted.scope, Scope::Module { .. });
    let (by, known) = match (monitoring::is_there(py), is_module) {
        (true, _) => (monitoring::NAME, &OF_FUNCTION),
        (false, false) => (trace_instrument::NAME, &OF_FUNCTION),
        (false, true) => (profile::NAME, &OF_MODULE),
    };
    let nanos = *known.lock().unwrap_or_else(PoisonError::into_inner);
    let nanos = nanos.unwrap_or_else(|| Nanos {
        event: measured(py, wanted.scope.clone()).unwrap_or(USUAL_NANOS),
        row: of_a_row(),
    });
    *known.lock().unwrap_or_else(PoisonError::into_inner) = Some(nanos);
    Ok((by, nanos.event + if wanted.stats { 0.0 } else { nanos.row }))
}

/// The first of a ring, whose pages the kernel has yet to find: the dearest, where nothing else came between.
fn of_a_row() -> f64 {
    let rounds = (0..ROUNDS).filter_map(|_| round_of_rows());
    rounds.reduce(f64::min).unwrap_or(0.0)
}

fn round_of_rows() -> Option<f64> {
    let process = ProcessKey {
        pid: Pid(std::process::id()),
        start_ticks: 0,
    };
    let mut writer = Writer::own(packed::schema(), process, 0, String::new()).ok()?;
    let began = monotonic_nanos();
    for ts in 0..i64::from(CALLS) {
        let place = writer.append_trace(&TraceRow {
            ts,
            did: TraceEventKind::Call,
            function: 0,
            thread_id: 0,
            depth: 0,
            duration_nanos: None,
            step: None,
        });
        writer.end_trace(place, TraceEventKind::Return, 1, None);
    }
    Some((monotonic_nanos() - began) as f64 / f64::from(2 * CALLS))
}

fn measured(py: Python<'_>, scope: Scope) -> PyResult<f64> {
    let names = embedded::namespace_of(py, SOURCE, "<probing>")?;
    let get = |name: &str| names.as_any().get_item(name);
    let (run, nothing) = (get("loop")?, get("nothing")?);
    let code = nothing.getattr("__code__")?;
    let quickest = || -> PyResult<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let began = monotonic_nanos();
            call(&run, (CALLS,))?;
            best = best.min((monotonic_nanos() - began) as f64);
        }
        Ok(best)
    };
    quickest()?;
    let without = quickest()?;
    let spot = SourceLocation {
        func: "nothing".to_owned(),
        file: "<probing>".to_owned(),
        lineno: 1,
    };
    let wanted = proto::Trace {
        scope,
        depth: 0,
        watch: Vec::new(),
        stats: true,
        lines: false,
        for_millis: None,
        steps: None,
        budget_ppm: None,
    };
    let none = (monitoring::NAME, 0.0);
    let trace = Arc::new(Trace::new(TraceId(0), wanted, Owner::Client, None, none));
    let function = functions::number(&spot);
    table(py).entry_mut(&code).tracing = Some(Tracing::new(trace, function, Role::Root, false));
    monitoring_tool::know(&nothing);
    monitoring_tool::tell(&code);
    let with = quickest();
    let taken = table(py).entry_mut(&code).tracing.take();
    drop(taken);
    monitoring_tool::tell(&code);
    let forgotten = table(py).take_if_empty(&code);
    drop(forgotten);
    Ok(((with? - without) / f64::from(2 * CALLS)).max(1.0))
}
