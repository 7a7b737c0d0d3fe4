//! Rings as writers and readers know them: what goes in comes out, whatever happens in between.
#![expect(clippy::unwrap_used, reason = "a test")]

mod copies;
mod hostile;
mod kills;
mod rings;
mod rooms;
mod rows;
mod tables;
mod traced;

use std::path::Path;
use std::sync::Arc;

use probing_proto::process::{Pid, ProcessKey};
use probing_store::{Budget, Column, ColumnData, Kind, Schema, Snapshot, Store, Value, Writer};

pub(crate) const KEY: ProcessKey = ProcessKey {
    pid: Pid(4242),
    start_ticks: 81733,
};

/// A table `user.t` with these columns beside its time.
pub(crate) fn schema(columns: &[(&str, Kind, bool)]) -> Schema {
    let column = |&(name, kind, nullable): &(&str, Kind, bool)| Column {
        name: name.to_owned(),
        kind,
        nullable,
        doc: String::new(),
    };
    let time = ("ts", Kind::Time, false);
    Schema {
        table: "user.t".to_owned(),
        columns: std::iter::once(&time).chain(columns).map(column).collect(),
    }
}

pub(crate) fn writer(path: &Path, schema: Schema, bytes: u64) -> Writer {
    Writer::create(path, schema, KEY, 0, &Budget::new(bytes)).unwrap()
}

/// A value as it is read back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Float(u64),
    Bytes([u8; 16]),
    Text(String),
}

impl From<&Value<'_>> for Cell {
    fn from(value: &Value<'_>) -> Self {
        match *value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::I64(value) => Self::Int(value),
            Value::F64(value) => Self::Float(value.to_bits()),
            Value::Symbol(id) => Self::Int(i64::from(id)),
            Value::Bytes16(bytes) => Self::Bytes(bytes),
            Value::Text(text) => Self::Text(text.to_owned()),
        }
    }
}

pub(crate) fn cell(data: &ColumnData, row: usize) -> Cell {
    if !data.is_valid(row) {
        return Cell::Null;
    }
    match data.kind {
        Kind::Bool => Cell::Bool(data.values.as_slice()[row / 8] >> (row % 8) & 1 == 1),
        Kind::U8 => Cell::Int(i64::from(data.values.as_slice()[row])),
        Kind::U16 => Cell::Int(i64::from(u16::from_le_bytes(at(data, row)))),
        Kind::I32 => Cell::Int(i64::from(i32::from_le_bytes(at(data, row)))),
        Kind::U32 => Cell::Int(i64::from(u32::from_le_bytes(at(data, row)))),
        Kind::Time | Kind::I64 => Cell::Int(i64::from_le_bytes(at(data, row))),
        Kind::F64 => Cell::Float(u64::from_le_bytes(at(data, row))),
        Kind::Bytes16 => Cell::Bytes(at(data, row)),
        Kind::Symbol | Kind::Text => Cell::Text(data.text(row).unwrap().to_owned()),
    }
}

fn at<const N: usize>(data: &ColumnData, row: usize) -> [u8; N] {
    data.values.as_slice().as_chunks::<N>().0[row]
}

/// All rows of a snapshot without their time, oldest first. Fails when a chunk has gone meanwhile.
pub(crate) fn rows(snapshot: &Snapshot) -> Vec<Vec<Cell>> {
    let columns: Vec<usize> = (1..snapshot.columns().len()).collect();
    let mut rows = Vec::new();
    for chunk in snapshot.chunks() {
        let data = snapshot
            .read(chunk, &columns)
            .unwrap()
            .expect("it is still there");
        rows.extend((0..chunk.rows()).map(|row| data.iter().map(|data| cell(data, row)).collect()));
    }
    rows
}

/// The one table of a folder, now.
pub(crate) fn snapshot(folder: &Path) -> Snapshot {
    let store = Store::open(folder).unwrap();
    assert!(store.unreadable().is_empty(), "{:?}", store.unreadable());
    assert_eq!(store.tables().len(), 1);
    store.tables()[0].snapshot().unwrap()
}

pub(crate) fn budget() -> Arc<Budget> {
    Budget::new(32 << 20)
}
