//! Looking at what traces have seen: sums become rows, costs are compared with what they may be.
//!
//! Done by a thread of the program every few thousand events, and once a second for what is told of less often.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use probing_store::monotonic_nanos;
use pyo3::prelude::*;
use rustix::time::{ClockId, clock_gettime};

use crate::instrument::profile;
use crate::recording;
use crate::trace::budget::Verdict;
use crate::trace::code_table::table_if_free;
use crate::trace::function_stats::Sums;
use crate::trace::traces::{self, Trace};
use crate::trace::{clock, functions, setting};

/// Sums become rows that often.
const ROWS_EVERY_NANOS: i64 = 1_000_000_000;

/// When they last did.
static LAST_ROWS: AtomicI64 = AtomicI64::new(0);

/// Looks at everything; all sums become rows when `at_once`.
#[cold]
pub(crate) fn look(py: Python<'_>, at_once: bool) {
    clock::compare();
    let Some(traces) = traces::if_any() else {
        return;
    };
    let now = monotonic_nanos();
    let rows = at_once || now - LAST_ROWS.load(Ordering::Relaxed) >= ROWS_EVERY_NANOS;
    if rows {
        LAST_ROWS.store(now, Ordering::Relaxed);
    }
    let Some((events, sums)) = taken(py, rows) else {
        return;
    };
    for (trace, function, sums) in &sums {
        write(py, *trace, *function, sums);
    }
    let passed_by = profile::passed_by();
    for trace in traces.all() {
        trace.pay_for_others(passed_by);
        let its = || {
            events
                .iter()
                .filter(|seen| Arc::ptr_eq(&seen.trace, &trace))
        };
        trace.pay_for_calls(its().map(|seen| seen.calls).sum());
        judge(py, &trace, its().map(|seen| seen.events).sum());
    }
}

/// A trace is compared with what it may cost.
fn judge(py: Python<'_>, trace: &Arc<Trace>, events: u64) {
    match trace.account(events) {
        Verdict::GoOn | Verdict::MuteAll => {}
        Verdict::Mute => {
            say(py, trace, "mute");
            setting::has_muted();
            setting::profile_or_not(py);
        }
        Verdict::Resume => resume(py, trace),
    }
    if trace.is_over() {
        setting::put_away(py, trace);
    }
}

/// All functions of a trace are told of again.
pub(crate) fn resume(py: Python<'_>, trace: &Arc<Trace>) {
    let began = cpu_nanos();
    say(py, trace, "resume");
    trace.resume();
    setting::unmute(py, trace);
    trace.charge(cpu_nanos() - began);
}

/// What this thread has used: what others do meanwhile is not ours to pay.
fn cpu_nanos() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn say(py: Python<'_>, trace: &Trace, action: &str) {
    let (share, events, event_nanos) = trace.bill();
    let budget = trace.wanted.budget_ppm.unwrap_or_default();
    let row = recording::Budget {
        trace: trace.id.0,
        action,
        may_cost: f64::from(budget) / f64::from(probing_proto::message::trace::MILLION),
        share,
        events,
        event_nanos,
        muted: trace.muted(),
    };
    recording::budget(py, &row);
}

/// What was seen for a trace: what became rows or sums, and what its functions call.
struct TraceCounts {
    trace: Arc<Trace>,
    events: u64,
    calls: u64,
}

/// Trace and function, by number.
type FunctionSums = (u32, u32, Sums);

/// What was seen since the last look, by trace; and sums by function. `None` while the table is being changed.
fn taken(py: Python<'_>, with_sums: bool) -> Option<(Vec<TraceCounts>, Vec<FunctionSums>)> {
    let mut table = table_if_free(py)?;
    let mut all: Vec<TraceCounts> = Vec::new();
    let mut sums = Vec::new();
    for tracing in table.tracings() {
        let events = u64::from(std::mem::take(&mut tracing.events));
        let calls = u64::from(std::mem::take(&mut tracing.calls));
        if events + calls + tracing.sums.calls == 0 {
            continue;
        }
        let of_trace = all
            .iter_mut()
            .find(|seen| Arc::ptr_eq(&seen.trace, &tracing.trace));
        match of_trace {
            Some(seen) => {
                seen.events += events;
                seen.calls += calls;
            }
            None => all.push(TraceCounts {
                trace: Arc::clone(&tracing.trace),
                events,
                calls,
            }),
        }
        // What measures itself is nobody's.
        if with_sums && tracing.trace.id.0 > 0 && tracing.sums.calls > 0 {
            sums.push((tracing.trace.id.0, tracing.function, tracing.sums.take()));
        }
    }
    Some((all, sums))
}

/// The sums of a function become a row.
pub(crate) fn write(py: Python<'_>, trace: u32, function: u32, sums: &Sums) {
    let histogram = sums.histogram_in_words();
    let Some(at) = functions::with(function, Clone::clone) else {
        return;
    };
    let row = recording::Sums {
        trace,
        at: &at,
        calls: sums.calls,
        errors: sums.errors,
        total: sums.total,
        own: sums.own,
        least: sums.least,
        greatest: sums.greatest,
        histogram: &histogram,
    };
    recording::sums(py, &row);
}
