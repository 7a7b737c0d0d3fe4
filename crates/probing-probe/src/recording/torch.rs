//! Rows of what modules of torch do, and of what tensors hold: `python.torch_trace` and `python.tensors`.

use probing_proto::tables::builtin::{OwnTable, TENSORS, TORCH_TRACE};
use probing_store::Value;
use pyo3::prelude::*;

use crate::recording::statistics::Statistics;
use crate::recording::step;
use crate::recording::tables::{Table, Tables};
use crate::recording::trace::thread_id;
use crate::recording::with_tables;

/// Where something of a module is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    PreForward,
    PostForward,
    PreBackward,
    PostBackward,
    PreStep,
    PostStep,
}

const STAGES: [&str; 6] = [
    "pre forward",
    "post forward",
    "pre backward",
    "post backward",
    "pre step",
    "post step",
];

/// How a module is called, as numbers of symbols: made once, since a row costs less than looking a text up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Called {
    /// Of the process that they are numbers in.
    generation: u32,
    /// The table's.
    table: usize,
    module: u32,
    class: u32,
    root: u32,
    stages: [u32; STAGES.len()],
}

/// A row of `python.torch_trace`.
#[derive(Debug)]
pub(crate) struct TorchRow {
    pub(crate) called: Called,
    pub(crate) stage: Stage,
    pub(crate) step: i64,
    pub(crate) seq: i64,
    pub(crate) duration: f64,
    /// Bytes that tensors have on a GPU, and the most that they had.
    pub(crate) memory: Option<(i64, i64)>,
}

/// A row of `python.tensors`.
#[derive(Debug)]
pub(crate) struct TensorRow<'a> {
    pub(crate) step: Option<i64>,
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    pub(crate) module: &'a str,
    pub(crate) class: &'a str,
    /// File and line of the module's `forward`.
    pub(crate) forward: Option<(&'a str, u32)>,
    pub(crate) dtype: &'a str,
    pub(crate) shape: &'a str,
    pub(crate) device: &'a str,
    pub(crate) statistics: Statistics,
    /// Which finding it belongs to, and what it is there.
    pub(crate) finding: Option<(i64, &'a str)>,
}

/// Without memory for a table there are no rows, and nobody here to tell.
fn table<'a>(tables: &'a mut Tables, own: &OwnTable) -> Option<&'a mut Table> {
    let index = tables.own(own).ok()?;
    tables.get(index)
}

/// The numbers of what a module is called.
pub(crate) fn called(py: Python<'_>, module: &str, class: &str, root: &str) -> Called {
    with_tables(py, |tables| {
        let generation = tables.generation();
        let index = tables.own(&TORCH_TRACE).unwrap_or(usize::MAX);
        let Some(table) = tables.get(index) else {
            return Called {
                generation,
                table: index,
                module: 0,
                class: 0,
                root: 0,
                stages: [0; STAGES.len()],
            };
        };
        let mut symbol = |text: &str| table.writer.symbol(text);
        Called {
            generation,
            table: index,
            module: symbol(module),
            class: symbol(class),
            root: symbol(root),
            stages: STAGES.map(&mut symbol),
        }
    })
}

/// Runs no Python.
pub(crate) fn torch_row(py: Python<'_>, nanos: i64, row: &TorchRow) {
    let called = &row.called;
    let thread = i64::from(thread_id());
    with_tables(py, |tables| {
        if tables.generation() != called.generation {
            return;
        }
        let Some(table) = tables.get(called.table) else {
            return;
        };
        let bytes = |bytes: Option<i64>| bytes.map_or(Value::Null, Value::I64);
        table.append_at(
            nanos,
            &[
                Value::I64(row.step),
                Value::I64(row.seq),
                Value::Symbol(called.module),
                Value::Symbol(called.class),
                Value::Symbol(called.stages[row.stage as usize]),
                Value::F64(row.duration),
                Value::I64((row.duration * 1e9).round() as i64),
                bytes(row.memory.map(|(now, _)| now)),
                bytes(row.memory.map(|(_, most)| most)),
                Value::Symbol(called.root),
                Value::I64(thread),
            ],
        );
    });
}

/// Runs no Python.
pub(crate) fn tensor_row(py: Python<'_>, nanos: i64, row: &TensorRow<'_>) {
    with_tables(py, |tables| {
        let Some(table) = table(tables, &TENSORS) else {
            return;
        };
        let mut symbol = |text: &str| Value::Symbol(table.writer.symbol(text));
        let [kind, name, module, class, dtype, shape, device] = [
            row.kind, row.name, row.module, row.class, row.dtype, row.shape, row.device,
        ]
        .map(&mut symbol);
        let role = row.finding.map_or(Value::Null, |(_, role)| symbol(role));
        let file = row.forward.map_or(Value::Null, |(file, _)| symbol(file));
        let counted_by = row.step.map_or(Value::Null, |_| symbol(step::counted_by()));
        let line = |(_, line)| Value::I64(i64::from(line));
        let told = &row.statistics;
        let number = |number: Option<f64>| number.map_or(Value::Null, Value::F64);
        let count = |count: u64| Value::I64(i64::try_from(count).unwrap_or(i64::MAX));
        let finite = told.finite;
        table.append_at(
            nanos,
            &[
                row.step.map_or(Value::Null, Value::I64),
                kind,
                name,
                module,
                class,
                file,
                row.forward.map_or(Value::Null, line),
                dtype,
                shape,
                device,
                count(told.count),
                number(finite.map(|it| it.min)),
                number(finite.map(|it| it.max)),
                number(finite.map(|it| it.mean)),
                number(finite.and_then(|it| it.std)),
                number(finite.map(|it| it.norm)),
                count(told.nan),
                count(told.inf),
                number(told.zero_share()),
                row.finding.map_or(Value::Null, |(id, _)| Value::I64(id)),
                role,
                counted_by,
            ],
        );
    });
}
