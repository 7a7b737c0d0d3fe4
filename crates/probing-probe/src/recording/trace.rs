//! Spans and events: rows of `python.trace_event`.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

use probing_proto::tables::builtin::TRACE_EVENT;
use probing_store::{Value, monotonic_nanos};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::process::fork_child;
use crate::recording::calls::{CallArguments, plainly};
use crate::recording::values::{Plain, plain_of};
use crate::recording::with_tables;

static NEXT: AtomicI64 = AtomicI64::new(1);

/// One row.
struct Row<'a> {
    kind: &'a str,
    name: &'a str,
    ts: i64,
    span: Option<i64>,
    parent: Option<i64>,
    duration: Option<i64>,
    error: Option<&'a str>,
    attributes: Option<&'a str>,
}

/// A span that was left.
pub(super) struct EndedSpan<'a> {
    /// Its number, and when it was entered.
    pub(super) span: (i64, i64),
    pub(super) parent: Option<i64>,
    pub(super) error: Option<&'a str>,
}

pub(super) fn event(passed: &CallArguments<'_, '_>) -> PyResult<()> {
    let name = passed.first()?;
    let values = passed.values()?;
    let attributes = json(&values);
    let row = Row {
        kind: "event",
        name: name.to_str()?,
        ts: monotonic_nanos(),
        span: None,
        parent: None,
        duration: None,
        error: None,
        attributes: attributes.as_deref(),
    };
    write(passed.py, &row)
}

pub(super) fn begin(
    py: Python<'_>,
    name: &str,
    parent: Option<i64>,
    attributes: &Bound<'_, PyDict>,
) -> PyResult<(i64, i64)> {
    let attributes = json(&pairs(attributes)?);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let ts = monotonic_nanos();
    let row = Row {
        kind: "begin",
        name,
        ts,
        span: Some(id),
        parent,
        duration: None,
        error: None,
        attributes: attributes.as_deref(),
    };
    write(py, &row)?;
    Ok((id, ts))
}

pub(super) fn end(
    py: Python<'_>,
    name: &str,
    left: &EndedSpan<'_>,
    attributes: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let now = monotonic_nanos();
    let attributes = json(&pairs(attributes)?);
    let (id, began) = left.span;
    let row = Row {
        kind: "span",
        name,
        ts: began,
        span: Some(id),
        parent: left.parent,
        duration: Some(now.saturating_sub(began)),
        error: left.error,
        attributes: attributes.as_deref(),
    };
    write(py, &row)
}

fn write(py: Python<'_>, row: &Row<'_>) -> PyResult<()> {
    let thread_id = i64::from(thread_id());
    with_tables(py, |tables| {
        let index = tables.own(&TRACE_EVENT)?;
        let Some(table) = tables.get(index) else {
            return Ok(());
        };
        let int = |value: Option<i64>| value.map_or(Value::Null, Value::I64);
        let kind = Value::Symbol(table.writer.symbol(row.kind));
        let name = Value::Symbol(table.writer.symbol(row.name));
        table.append_at(
            row.ts,
            &[
                kind,
                name,
                Value::I64(thread_id),
                int(row.span),
                int(row.parent),
                int(row.duration),
                row.error.map_or(Value::Null, Value::Text),
                row.attributes.map_or(Value::Null, Value::Text),
                Value::Null,
                Value::Null,
                Value::Null,
                Value::Null,
                int(crate::recording::step::now()),
            ],
        );
        Ok(())
    })
}

/// The kernel's number of this thread; asked for once per thread, and again in the child of a fork.
pub(crate) fn thread_id() -> u32 {
    thread_local!(static KNOWN: Cell<Option<(u32, u32)>> = const { Cell::new(None) });
    let generation = fork_child::generation();
    KNOWN.with(|known| match known.get() {
        Some((since, id)) if since == generation => id,
        _ => {
            let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            known.set(Some((generation, id)));
            id
        }
    })
}

fn pairs<'py>(attributes: &Bound<'py, PyDict>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
    attributes
        .iter()
        .map(|(name, value)| Ok((name.extract()?, plainly(value)?)))
        .collect()
}

/// A JSON object; `None` for nothing. What JSON has no number for is text.
fn json(values: &[(String, Bound<'_, PyAny>)]) -> Option<String> {
    if values.is_empty() {
        return None;
    }
    let object: serde_json::Map<String, serde_json::Value> = values
        .iter()
        .map(|(name, value)| {
            let value = match plain_of(value) {
                Plain::Null | Plain::Odd => serde_json::Value::Null,
                Plain::Bool(value) => value.into(),
                Plain::Int(value) => value.into(),
                Plain::Float(value) | Plain::Huge(value) => serde_json::Number::from_f64(value)
                    .map_or_else(
                        || format!("{value}").to_lowercase().into(),
                        serde_json::Value::Number,
                    ),
                Plain::Text(text) => text.into(),
            };
            (name.clone(), value)
        })
        .collect();
    serde_json::to_string(&object).ok()
}
