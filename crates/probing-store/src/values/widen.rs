//! Columns that changed their kind over time: older rows as the kind that holds all.

use std::sync::Arc;

use probing_proto::tables::schema::Kind;

use crate::reader::is_valid;
use crate::ring::zones::Zone;
use crate::snapshot::ColumnData;
use crate::values::bytes::Bytes;
use crate::values::text::{self, IN_CHUNK, INLINE};

/// A value of a column, whatever its kind.
enum Cell {
    Int(i64),
    Float(f64),
    Bool(bool),
    Bytes([u8; 16]),
}

/// A column as another, wider kind.
pub(crate) fn column(data: ColumnData, to: Kind) -> ColumnData {
    if data.kind == to || (data.kind == Kind::Symbol && to == Kind::Text) {
        return ColumnData { kind: to, ..data };
    }
    let rows = data.rows;
    match to {
        Kind::I64 => numbers(data, to, |cell| match cell {
            Cell::Int(value) => value.to_le_bytes(),
            Cell::Bool(value) => i64::from(value).to_le_bytes(),
            Cell::Float(_) | Cell::Bytes(_) => [0; 8],
        }),
        Kind::F64 => numbers(data, to, |cell| match cell {
            Cell::Int(value) => (value as f64).to_le_bytes(),
            Cell::Bool(value) => f64::from(u8::from(value)).to_le_bytes(),
            Cell::Float(value) => value.to_le_bytes(),
            Cell::Bytes(_) => [0; 8],
        }),
        Kind::Text => texts(data),
        // Nothing is widened to other kinds.
        _ => ColumnData::nothing(to, rows),
    }
}

/// A zone as that of another, wider kind; `None` when nothing is known then.
pub(crate) fn zone(zone: Zone, from: Kind, to: Kind) -> Option<Zone> {
    match (zone, to) {
        (zone, to) if from == to => Some(zone),
        (Zone::Empty, _) | (Zone::Int { .. }, Kind::I64) => Some(zone),
        (Zone::Int { min, max }, Kind::F64) => Some(Zone::Float {
            min: min as f64,
            max: max as f64,
        }),
        _ => None,
    }
}

fn numbers(data: ColumnData, kind: Kind, number: impl Fn(Cell) -> [u8; 8]) -> ColumnData {
    let mut values = Bytes::zeroed(8 * data.rows);
    let slots = values.as_mut_slice().as_chunks_mut::<8>().0.iter_mut();
    for (row, slot) in slots.enumerate() {
        if let Some(cell) = cell(&data, row) {
            *slot = number(cell);
        }
    }
    ColumnData {
        kind,
        values,
        texts: None,
        ..data
    }
}

fn texts(data: ColumnData) -> ColumnData {
    let mut views = Bytes::zeroed(16 * data.rows);
    let mut text = Vec::new();
    let slots = views.as_mut_slice().as_chunks_mut::<16>().0.iter_mut();
    for (row, slot) in slots.enumerate() {
        let Some(cell) = cell(&data, row).filter(|_| is_valid(data.validity.as_ref(), row)) else {
            continue;
        };
        let words = in_words(&cell);
        let view = if words.len() <= INLINE {
            text::inline(words.as_bytes())
        } else {
            let offset = text.len() as u32;
            text.extend_from_slice(words.as_bytes());
            text::pointing(words.len(), words.as_bytes(), IN_CHUNK, offset)
        };
        *slot = view.to_le_bytes();
    }
    let mut buffer = Bytes::zeroed(text.len());
    buffer.as_mut_slice().copy_from_slice(&text);
    ColumnData {
        kind: Kind::Text,
        values: views,
        texts: Some([Arc::new(buffer), Arc::default()]),
        ..data
    }
}

fn cell(data: &ColumnData, row: usize) -> Option<Cell> {
    let bytes = data.values.as_slice();
    Some(match data.kind {
        Kind::Bool => Cell::Bool(bytes.get(row / 8)? >> (row % 8) & 1 == 1),
        Kind::U8 => Cell::Int(i64::from(*bytes.get(row)?)),
        Kind::U16 => Cell::Int(i64::from(u16::from_le_bytes(at(bytes, row)?))),
        Kind::I32 => Cell::Int(i64::from(i32::from_le_bytes(at(bytes, row)?))),
        Kind::U32 => Cell::Int(i64::from(u32::from_le_bytes(at(bytes, row)?))),
        Kind::Time | Kind::I64 => Cell::Int(i64::from_le_bytes(at(bytes, row)?)),
        Kind::F64 => Cell::Float(f64::from_le_bytes(at(bytes, row)?)),
        Kind::Bytes16 => Cell::Bytes(at(bytes, row)?),
        Kind::Symbol | Kind::Text => return None,
    })
}

fn at<const N: usize>(bytes: &[u8], row: usize) -> Option<[u8; N]> {
    bytes.as_chunks::<N>().0.get(row).copied()
}

/// As Python's `str` has it.
fn in_words(cell: &Cell) -> String {
    match cell {
        Cell::Int(value) => value.to_string(),
        Cell::Bool(true) => "True".to_owned(),
        Cell::Bool(false) => "False".to_owned(),
        Cell::Float(value) if value.is_nan() => "nan".to_owned(),
        Cell::Float(value) => format!("{value:?}"),
        Cell::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
