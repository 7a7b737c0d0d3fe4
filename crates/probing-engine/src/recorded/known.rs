//! What is known of the columns of chunks, so that they need not be read to be counted and summed, and are read in
//! the order that promises most.

use std::cmp::Reverse;
use std::sync::Arc;

use datafusion::arrow::array::{Array as _, AsArray as _};
use datafusion::arrow::compute::{SortOptions, cast, max, min, sum};
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use probing_store::{Kind, Tally, Zone};

use super::part::{RecordedPart, batch};
use super::{Piece, zones};
use crate::scan::Known;
use crate::table::WHOSE;

/// A column of whole numbers, in one chunk or in several.
#[derive(Debug, Clone, Copy)]
struct Whole {
    rows: usize,
    values: usize,
    /// The least and the greatest.
    range: Option<(i64, i64)>,
    sum: Option<i64>,
}

impl Whole {
    /// Without any row.
    const NOTHING: Self = Self {
        rows: 0,
        values: 0,
        range: None,
        sum: Some(0),
    };

    /// With the rows of another.
    fn and(self, other: Self) -> Self {
        let ranges = self.range.into_iter().chain(other.range);
        Self {
            rows: self.rows + other.rows,
            values: self.values + other.values,
            range: ranges.reduce(|(least, most), (min, max)| (least.min(min), most.max(max))),
            sum: self
                .sum
                .zip(other.sum)
                .map(|(sum, more)| sum.wrapping_add(more)),
        }
    }
}

impl RecordedPart {
    /// What is known of a column of those that are read, if it is one of whole numbers or times.
    pub(super) fn look_up(&self, column: usize) -> Known {
        let own = self.projection.get(column);
        let Some(own) = own.and_then(|column| column.checked_sub(WHOSE.len())) else {
            return Known::default();
        };
        let kind = self.shape.kinds[own];
        let mut all = Whole::NOTHING;
        for piece in self.pieces.iter() {
            match self.of_piece(piece, own, kind) {
                Some(known) => all = all.and(known),
                None => return Known::default(),
            }
        }
        let range = all
            .range
            .map(|(least, most)| (zones::int(least, kind), zones::int(most, kind)));
        Known {
            range,
            // The sum of nothing is nothing, not 0.
            sum: all.sum.filter(|_| all.values > 0),
            nulls: Some(all.rows - all.values),
        }
    }

    fn of_piece(&self, piece: &Piece, own: usize, kind: Kind) -> Option<Whole> {
        let rows = piece.chunk.rows();
        let snapshot = &piece.source.snapshot;
        let Some(place) = piece.source.places[own] else {
            return Some(Whole {
                rows,
                ..Whole::NOTHING
            });
        };
        if !is_whole_number(kind) || snapshot.columns()[place].kind != kind {
            return None;
        }
        let zone = snapshot.zone(&piece.chunk, place);
        let (Some(zone), Some(tally)) = (zone, snapshot.tally(&piece.chunk, place)) else {
            // It is not full yet.
            return self.read(piece, own, kind);
        };
        let Tally { values, sum } = tally;
        Some(Whole {
            rows,
            values: values as usize,
            range: match zone {
                Zone::Int { min, max } => Some((min, max)),
                Zone::Empty => None,
                Zone::Float { .. } => return None,
            },
            sum: sum.filter(|_| kind == Kind::I64),
        })
    }

    /// The same by reading it; `None` when it cannot be read any more.
    fn read(&self, piece: &Piece, own: usize, kind: Kind) -> Option<Whole> {
        let column = own + WHOSE.len();
        let schema: SchemaRef = Arc::new(self.shape.schema.project(&[column]).ok()?);
        // What is gone by now, or cannot be read, is told by a scan.
        let batch = batch(piece, &[column], &self.shape.kinds, &schema).ok()??;
        let column = cast(batch.column(0), &DataType::Int64).ok()?;
        let numbers = column.as_primitive::<Int64Type>();
        let values = numbers.len() - numbers.null_count();
        Some(Whole {
            rows: numbers.len(),
            values,
            range: min(numbers).zip(max(numbers)),
            sum: (kind == Kind::I64).then(|| sum(numbers).unwrap_or(0)),
        })
    }
}

/// How soon a chunk is read when the first rows by a column are wanted.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Promise {
    /// It may hold anything.
    Unknown,
    Least(Ordered),
    Greatest(Reverse<Ordered>),
    Nothing,
}

/// Bounds of one column are all of one sort.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ordered {
    Int(i64),
    /// In the order of `total_cmp`.
    Float(i64),
}

impl Piece {
    pub(super) fn promise(&self, own: usize, kind: Kind, order: SortOptions) -> Promise {
        let snapshot = &self.source.snapshot;
        let place = self.source.places[own];
        let place = place.filter(|place| snapshot.columns()[*place].kind == kind);
        let Some(place) = place else {
            return Promise::Unknown;
        };
        let tally = snapshot.tally(&self.chunk, place);
        let has_nulls = tally.is_none_or(|tally| (tally.values as usize) < self.chunk.rows());
        if has_nulls && order.nulls_first {
            return Promise::Unknown;
        }
        let float = |value: f64| {
            let bits = value.to_bits().cast_signed();
            Ordered::Float(bits ^ (bits >> 63) & i64::MAX)
        };
        let (least, greatest) = match snapshot.zone(&self.chunk, place) {
            None => return Promise::Unknown,
            Some(Zone::Empty) => return Promise::Nothing,
            Some(Zone::Int { min, max }) => (Ordered::Int(min), Ordered::Int(max)),
            Some(Zone::Float { min, max }) => (float(min), float(max)),
        };
        if order.descending {
            Promise::Greatest(Reverse(greatest))
        } else {
            Promise::Least(least)
        }
    }
}

fn is_whole_number(kind: Kind) -> bool {
    match kind {
        Kind::Time | Kind::U8 | Kind::U16 | Kind::I32 | Kind::U32 | Kind::I64 => true,
        Kind::Bool | Kind::F64 | Kind::Bytes16 | Kind::Symbol | Kind::Text => false,
    }
}
