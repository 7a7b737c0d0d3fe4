//! Rows of tracers: their own rings, `python.trace_stats` and `python.probe_budget`.

use probing_proto::message::breakpoints::SourceLocation;
use probing_proto::tables::builtin::{PROBE_BUDGET, TRACE_STATS};
use probing_store::ring::packed;
use probing_store::{Value, Writer};
use pyo3::prelude::*;

use crate::recording::captures::append;
use crate::recording::with_tables;

/// A ring for calls and returns, for one thread at a time. `None` without memory for it.
#[expect(unsafe_code, reason = "events come with the GIL held")]
pub(crate) fn ring_of_tracers() -> Option<Writer> {
    // SAFETY: whoever is told of an event has the GIL.
    let py = unsafe { Python::assume_attached() };
    with_tables(py, |tables| tables.writer(packed::schema()).ok())
}

/// A row of `python.trace_stats`.
pub(crate) struct Sums<'a> {
    pub(crate) trace: u32,
    pub(crate) at: &'a SourceLocation,
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) total: i64,
    pub(crate) own: i64,
    pub(crate) least: i64,
    pub(crate) greatest: i64,
    pub(crate) histogram: &'a str,
}

pub(crate) fn sums(py: Python<'_>, row: &Sums<'_>) {
    append(py, &TRACE_STATS, |table| {
        let mut symbol = |text: &str| Value::Symbol(table.writer.symbol(text));
        let (function, file) = (symbol(&row.at.func), symbol(&row.at.file));
        table.append(&[
            Value::I64(i64::from(row.trace)),
            function,
            file,
            Value::I64(i64::from(row.at.lineno)),
            Value::I64(row.calls as i64),
            Value::I64(row.errors as i64),
            Value::I64(row.total),
            Value::I64(row.own),
            Value::I64(row.least),
            Value::I64(row.greatest),
            Value::Text(row.histogram),
        ]);
    });
}

/// A row of `python.probe_budget`.
pub(crate) struct Budget<'a> {
    pub(crate) trace: u32,
    pub(crate) action: &'a str,
    pub(crate) may_cost: f64,
    pub(crate) share: f64,
    pub(crate) events: u64,
    pub(crate) event_nanos: f64,
    pub(crate) muted: u32,
}

pub(crate) fn budget(py: Python<'_>, row: &Budget<'_>) {
    append(py, &PROBE_BUDGET, |table| {
        let action = Value::Symbol(table.writer.symbol(row.action));
        table.append(&[
            Value::I64(i64::from(row.trace)),
            action,
            Value::F64(row.may_cost),
            Value::F64(row.share),
            Value::I64(row.events as i64),
            Value::F64(row.event_nanos),
            Value::I64(i64::from(row.muted)),
        ]);
    });
}
