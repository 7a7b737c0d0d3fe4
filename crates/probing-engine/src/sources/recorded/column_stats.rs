//! Statistics of the columns of chunks, by which chunks are counted, summed, skipped and ordered without a read.
//!
//! What is known of the columns of chunks, so that they need not be read to be counted and summed, and are read in
//! the order that promises most.

use std::cmp::Reverse;
use std::sync::Arc;

use datafusion::arrow::array::{Array as _, AsArray as _};
use datafusion::arrow::compute::{SortOptions, cast, max, min, sum};
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use probing_store::{Kind, Tally, Zone};

use crate::columns::WHOSE;
use crate::sources::recorded::part::{RecordedPart, batch};
use crate::sources::recorded::{Piece, zones};
use crate::sources::scan::ColumnStats;

/// A column of whole numbers, in one chunk or in several.
#[derive(Debug, Clone, Copy)]
struct IntegerStats {
    rows: usize,
    values: usize,
    /// The least and the greatest.
    range: Option<(i64, i64)>,
    sum: Option<i64>,
}

impl IntegerStats {
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
    pub(super) fn look_up(&self, column: usize) -> ColumnStats {
        let own = self.projection.get(column);
        let Some(own) = own.and_then(|column| column.checked_sub(WHOSE.len())) else {
            return ColumnStats::default();
        };
        let kind = self.shape.kinds[own];
        let mut all = IntegerStats::NOTHING;
        for piece in self.pieces.iter() {
            match self.of_piece(piece, own, kind) {
                Some(known) => all = all.and(known),
                None => return ColumnStats::default(),
            }
        }
        let range = all
            .range
            .map(|(least, most)| (zones::int(least, kind), zones::int(most, kind)));
        ColumnStats {
            range,
            // The sum of nothing is nothing, not 0.
            sum: all.sum.filter(|_| all.values > 0),
            nulls: Some(all.rows - all.values),
        }
    }

    fn of_piece(&self, piece: &Piece, own: usize, kind: Kind) -> Option<IntegerStats> {
        let rows = piece.chunk.rows();
        let source = &piece.source;
        let Some(place) = source.places[own] else {
            return Some(IntegerStats {
                rows,
                ..IntegerStats::NOTHING
            });
        };
        if !is_whole_number(kind) || source.snapshot.columns()[place].kind != kind {
            return None;
        }
        let zone = source.zone(&piece.chunk, own, kind);
        let (Some(zone), Some(tally)) = (zone, source.tally(&piece.chunk, own)) else {
            // It is not full yet.
            return self.read(piece, own, kind);
        };
        let Tally { values, sum } = tally;
        Some(IntegerStats {
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
    fn read(&self, piece: &Piece, own: usize, kind: Kind) -> Option<IntegerStats> {
        let column = own + WHOSE.len();
        let schema: SchemaRef = Arc::new(self.shape.schema.project(&[column]).ok()?);
        // What is gone by now, or cannot be read, is told by a scan.
        let batch = batch(piece, &[column], &self.shape.kinds, &schema).ok()??;
        let column = cast(batch.column(0), &DataType::Int64).ok()?;
        let numbers = column.as_primitive::<Int64Type>();
        let values = numbers.len() - numbers.null_count();
        Some(IntegerStats {
            rows: numbers.len(),
            values,
            range: min(numbers).zip(max(numbers)),
            sum: (kind == Kind::I64).then(|| sum(numbers).unwrap_or(0)),
        })
    }
}

/// How soon a chunk is read when the first rows by a column are wanted.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReadPriority {
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
    pub(super) fn promise(&self, own: usize, kind: Kind, order: SortOptions) -> ReadPriority {
        let tally = self.source.tally(&self.chunk, own);
        let has_nulls = tally.is_none_or(|tally| (tally.values as usize) < self.chunk.rows());
        if has_nulls && order.nulls_first {
            return ReadPriority::Unknown;
        }
        let float = |value: f64| {
            let bits = value.to_bits().cast_signed();
            Ordered::Float(bits ^ (bits >> 63) & i64::MAX)
        };
        let (least, greatest) = match self.source.zone(&self.chunk, own, kind) {
            None => return ReadPriority::Unknown,
            Some(Zone::Empty) => return ReadPriority::Nothing,
            Some(Zone::Int { min, max }) => (Ordered::Int(min), Ordered::Int(max)),
            Some(Zone::Float { min, max }) => (float(min), float(max)),
        };
        if order.descending {
            ReadPriority::Greatest(Reverse(greatest))
        } else {
            ReadPriority::Least(least)
        }
    }
}

fn is_whole_number(kind: Kind) -> bool {
    match kind {
        Kind::Time | Kind::U8 | Kind::U16 | Kind::I32 | Kind::U32 | Kind::I64 => true,
        Kind::Bool | Kind::F64 | Kind::Bytes16 | Kind::Symbol | Kind::Text => false,
    }
}
