//! Rows of what the ranks of a job do together: `python.collectives`.

use probing_proto::tables::builtin::COLLECTIVES;
use probing_store::Value;
use pyo3::prelude::*;

use crate::recording::captures::append;
use crate::recording::with_tables;

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Enqueued,
    Completed,
    Failed,
}

const OUTCOMES: [&str; 3] = ["enqueued", "completed", "failed"];

/// The table, and numbers in it, of one process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ledger {
    generation: u32,
    table: usize,
    outcomes: [u32; OUTCOMES.len()],
}

/// Makes room for rows.
pub(crate) fn ledger(py: Python<'_>) -> Ledger {
    with_tables(py, |tables| {
        let generation = tables.generation();
        let table = tables.own(&COLLECTIVES).unwrap_or(usize::MAX);
        let symbol = |text| tables.get(table).map_or(0, |it| it.writer.symbol(text));
        Ledger {
            generation,
            table,
            outcomes: OUTCOMES.map(symbol),
        }
    })
}

/// What is known of an operation before it begins. Texts are numbers of symbols: a row costs less than looking one up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) job: Option<u32>,
    pub(crate) group: u32,
    pub(crate) rank: i64,
    pub(crate) size: i64,
    pub(crate) seq: Option<i64>,
    pub(crate) op: u32,
    pub(crate) shapes: u32,
    pub(crate) dtype: Option<u32>,
    pub(crate) bytes: i64,
    pub(crate) root: Option<i64>,
    pub(crate) is_async: bool,
    pub(crate) thread: u32,
    pub(crate) step: Option<i64>,
    pub(crate) site: Option<Site>,
}

/// A place in the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub(crate) func: u32,
    pub(crate) file: u32,
    pub(crate) lineno: i64,
}

/// The number of a text, in this process.
pub(crate) fn collective_symbol(py: Python<'_>, text: &str) -> u32 {
    let mut number = 0;
    append(py, &COLLECTIVES, |table| number = table.writer.symbol(text));
    number
}

impl Ledger {
    /// A row: one when it is enqueued, one when it is over, with how long it took. Runs no Python.
    pub(crate) fn write(
        &self,
        py: Python<'_>,
        (begun_at, duration): (i64, Option<i64>),
        operation: &Operation,
        outcome: Outcome,
    ) {
        let number = |number: Option<i64>| number.map_or(Value::Null, Value::I64);
        let symbol = |symbol: Option<u32>| symbol.map_or(Value::Null, Value::Symbol);
        let site = operation.site;
        let row = [
            Value::Symbol(self.outcomes[outcome as usize]),
            symbol(operation.job),
            Value::Symbol(operation.group),
            Value::I64(operation.rank),
            Value::I64(operation.size),
            number(operation.seq),
            Value::Symbol(operation.op),
            Value::Symbol(operation.shapes),
            symbol(operation.dtype),
            Value::I64(operation.bytes),
            number(operation.root),
            Value::Bool(operation.is_async),
            number(duration),
            Value::I64(i64::from(operation.thread)),
            symbol(site.map(|site| site.func)),
            symbol(site.map(|site| site.file)),
            number(site.map(|site| site.lineno)),
            number(operation.step),
        ];
        with_tables(py, |tables| {
            if tables.generation() == self.generation
                && let Some(table) = tables.get(self.table)
            {
                table.append_at(begun_at, &row);
            }
        });
    }
}
