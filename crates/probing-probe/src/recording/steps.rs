//! Rows of steps that ended: `python.steps`.

use probing_proto::tables::builtin::STEPS;
use probing_store::Value;
use pyo3::prelude::*;

use crate::recording::captures::append;
use crate::recording::rank::Progress;

/// A step that ended.
#[derive(Debug)]
pub(crate) struct StepEnd<'a> {
    pub(crate) step: i64,
    pub(crate) counted_by: &'a str,
    pub(crate) period: i64,
    pub(crate) progress: Progress,
}

/// Runs no Python.
pub(crate) fn step_end(py: Python<'_>, row: &StepEnd<'_>) {
    append(py, &STEPS, |table| {
        let counted_by = Value::Symbol(table.writer.symbol(row.counted_by));
        let job = row.progress.job.as_deref();
        let job = job.map_or(Value::Null, |job| Value::Symbol(table.writer.symbol(job)));
        let operations = row.progress.operations;
        table.append(&[
            Value::I64(row.step),
            counted_by,
            Value::I64(row.period),
            job,
            operations.map_or(Value::Null, Value::I64),
        ]);
    });
}
