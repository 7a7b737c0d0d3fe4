//! Rows of what breakpoints saw: `python.captures` and `python.exceptions`.

use probing_proto::own::{CAPTURES, EXCEPTIONS, OwnTable};
use probing_proto::stops::Spot;
use probing_store::Value;
use pyo3::prelude::*;

use super::tables::Table;
use super::trace::thread_id;
use super::with_tables;

/// A row of `python.captures`.
pub(crate) struct Capture<'a> {
    pub(crate) point: Option<u32>,
    pub(crate) kind: &'a str,
    pub(crate) text: Option<&'a str>,
    pub(crate) thread_name: &'a str,
    pub(crate) at: Option<&'a Spot>,
    pub(crate) frames: Option<&'a str>,
}

/// A row of `python.exceptions`.
pub(crate) struct Exception<'a> {
    pub(crate) point: Option<u32>,
    pub(crate) kind: &'a str,
    pub(crate) class: &'a str,
    pub(crate) message: &'a str,
    pub(crate) thread_name: &'a str,
    pub(crate) at: Option<&'a Spot>,
    pub(crate) chain: Option<&'a str>,
    pub(crate) frames: Option<&'a str>,
}

/// Without memory for a table there are no rows, and nobody here to tell.
fn append(py: Python<'_>, table: &OwnTable, row: impl FnOnce(&mut Table)) {
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

fn symbol(table: &mut Table, text: &str) -> Value<'static> {
    Value::Symbol(table.writer.symbol(text))
}

/// Function, file and line.
fn place(table: &mut Table, at: Option<&Spot>) -> [Value<'static>; 3] {
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
            Value::Null,
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
            Value::Null,
            text(row.chain),
            text(row.frames),
        ]);
    });
}
