//! Rows of what breakpoints and watches saw: `python.captures`, `python.exceptions` and `python.variables`.

use probing_proto::message::breakpoints::SourceLocation;
use probing_proto::tables::builtin::{CAPTURES, EXCEPTIONS, MEMORY, OwnTable, VARIABLES};
use probing_store::Value;
use pyo3::prelude::*;

use crate::recording::tables::Table;
use crate::recording::trace::thread_id;
use crate::recording::usage::Usage;
use crate::recording::with_tables;

/// A row of `python.captures`.
pub(crate) struct Capture<'a> {
    pub(crate) point: Option<u32>,
    pub(crate) kind: &'a str,
    pub(crate) text: Option<&'a str>,
    pub(crate) thread_name: &'a str,
    pub(crate) at: Option<&'a SourceLocation>,
    pub(crate) frames: Option<&'a str>,
}

/// A row of `python.exceptions`.
pub(crate) struct Exception<'a> {
    pub(crate) point: Option<u32>,
    pub(crate) kind: &'a str,
    pub(crate) class: &'a str,
    pub(crate) message: &'a str,
    pub(crate) thread_name: &'a str,
    pub(crate) at: Option<&'a SourceLocation>,
    pub(crate) chain: Option<&'a str>,
    pub(crate) frames: Option<&'a str>,
}

/// A row of `python.variables`.
pub(crate) struct Variable<'a> {
    pub(crate) point: Option<u32>,
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a str>,
    pub(crate) new: Option<&'a str>,
    /// Who changed it, when that is not this thread.
    pub(crate) thread: Option<u32>,
    pub(crate) thread_name: &'a str,
    pub(crate) at: Option<&'a SourceLocation>,
    /// What changed a tensor in place.
    pub(crate) operation: Option<&'a str>,
}

/// Without memory for a table there are no rows, and nobody here to tell.
pub(super) fn append(py: Python<'_>, table: &OwnTable, row: impl FnOnce(&mut Table)) {
    with_tables(py, |tables| {
        let index = tables.own(table);
        if let Some(table) = index.ok().and_then(|index| tables.get(index)) {
            row(table);
        }
    });
}

fn text(text: Option<&str>) -> Value<'_> {
    text.map_or(Value::Null, Value::Text)
}

fn number(number: Option<u32>) -> Value<'static> {
    number.map_or(Value::Null, |number| Value::I64(i64::from(number)))
}

fn step() -> Value<'static> {
    crate::recording::step::now().map_or(Value::Null, Value::I64)
}

fn symbol(table: &mut Table, text: &str) -> Value<'static> {
    Value::Symbol(table.writer.symbol(text))
}

/// Function, file and line.
fn place(table: &mut Table, at: Option<&SourceLocation>) -> [Value<'static>; 3] {
    match at {
        Some(at) => [
            symbol(table, &at.func),
            symbol(table, &at.file),
            number(Some(at.lineno)),
        ],
        None => [Value::Null, Value::Null, Value::Null],
    }
}

pub(crate) fn capture(py: Python<'_>, row: &Capture<'_>) {
    append(py, &CAPTURES, |table| {
        let kind = symbol(table, row.kind);
        let thread_name = symbol(table, row.thread_name);
        let [func, file, line] = place(table, row.at);
        table.append(&[
            number(row.point),
            kind,
            text(row.text),
            number(Some(thread_id())),
            thread_name,
            func,
            file,
            line,
            step(),
            text(row.frames),
        ]);
    });
}

pub(crate) fn exception(py: Python<'_>, row: &Exception<'_>) {
    append(py, &EXCEPTIONS, |table| {
        let kind = symbol(table, row.kind);
        let exception = symbol(table, row.class);
        let thread_name = symbol(table, row.thread_name);
        let [func, file, line] = place(table, row.at);
        table.append(&[
            number(row.point),
            kind,
            exception,
            text(Some(row.message)),
            number(Some(thread_id())),
            thread_name,
            func,
            file,
            line,
            step(),
            text(row.chain),
            text(row.frames),
        ]);
    });
}

/// Makes the table before its rows may come in the middle of an assignment.
pub(crate) fn make_room_for_variables(py: Python<'_>) {
    append(py, &VARIABLES, |_| {});
}

/// Runs no Python, once there is room.
pub(crate) fn variable(py: Python<'_>, row: &Variable<'_>) {
    append(py, &VARIABLES, |table| {
        let name = symbol(table, row.name);
        let thread_name = symbol(table, row.thread_name);
        let operation = row.operation.map_or(Value::Null, |it| symbol(table, it));
        let [func, file, line] = place(table, row.at);
        table.append(&[
            number(row.point),
            name,
            text(row.old),
            text(row.new),
            func,
            file,
            line,
            number(Some(row.thread.unwrap_or_else(thread_id))),
            thread_name,
            step(),
            operation,
        ]);
    });
}

/// A row of `python.memory`.
pub(crate) fn memory(py: Python<'_>, kind: &str, usage: &Usage) {
    append(py, &MEMORY, |table| {
        let kind = table.writer.symbol(kind);
        table.append(&usage.values(kind));
    });
}
