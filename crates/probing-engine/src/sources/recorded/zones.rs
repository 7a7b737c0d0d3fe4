//! The least and greatest values of chunks, by which a scan skips chunks.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use probing_store::{Kind, Zone};

use crate::columns::WHOSE;
use crate::columns::arrays::data_type;
use crate::sources::recorded::{Piece, Shape};

/// What is known of the chunks before they are read.
struct Zones<'a> {
    shape: &'a Shape,
    pieces: &'a [Piece],
}

impl Shape {
    /// Leaves out chunks that cannot hold a row which meets the condition, over columns of `schema`. What cannot be
    /// decided about is kept.
    pub(super) fn prune(
        &self,
        pieces: &mut Vec<Piece>,
        condition: Arc<dyn PhysicalExpr>,
        schema: &SchemaRef,
    ) -> Result<()> {
        let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema));
        if pieces.is_empty() {
            return Ok(());
        }
        if let Some(predicate) = builder.build(condition) {
            let zones = Zones {
                shape: self,
                pieces,
            };
            let mut kept = predicate.prune(&zones)?.into_iter();
            pieces.retain(|_| kept.next().unwrap_or(true));
        }
        Ok(())
    }
}

impl Zones<'_> {
    fn bounds(
        &self,
        column: &Column,
        bound: impl Fn(Zone, Kind) -> ScalarValue,
    ) -> Option<ArrayRef> {
        let index = self.shape.schema.index_of(&column.name).ok()?;
        let own = index.checked_sub(WHOSE.len())?;
        let kind = *self.shape.kinds.get(own)?;
        let unknown = ScalarValue::try_from(&data_type(kind)).ok()?;
        let scalars = self.pieces.iter().map(|piece| {
            let zone = piece.source.zone(&piece.chunk, own, kind);
            zone.map_or_else(|| unknown.clone(), |zone| bound(zone, kind))
        });
        ScalarValue::iter_to_array(scalars).ok()
    }
}

impl PruningStatistics for Zones<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, |zone, kind| match zone {
            Zone::Int { min, .. } => int(min, kind),
            Zone::Float { min, .. } => ScalarValue::Float64(Some(min)),
            Zone::Empty => unknown(kind),
        })
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, |zone, kind| match zone {
            Zone::Int { max, .. } => int(max, kind),
            Zone::Float { max, .. } => ScalarValue::Float64(Some(max)),
            Zone::Empty => unknown(kind),
        })
    }

    fn num_containers(&self) -> usize {
        self.pieces.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let index = self.shape.schema.index_of(&column.name).ok()?;
        let own = index.checked_sub(WHOSE.len())?;
        let nulls = self.pieces.iter().map(|piece| {
            let rows = piece.chunk.rows();
            let values = match piece.source.places[own] {
                None => Some(0),
                Some(place) => {
                    let tally = piece.source.snapshot.tally(&piece.chunk, place);
                    tally.map(|tally| tally.values as usize)
                }
            };
            values.map(|values| rows.saturating_sub(values) as u64)
        });
        Some(Arc::new(nulls.collect::<UInt64Array>()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows = self.pieces.iter().map(|piece| piece.chunk.rows() as u64);
        Some(Arc::new(UInt64Array::from_iter_values(rows)))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// A bound of whole numbers as the column's type has it.
pub(super) fn int(bound: i64, kind: Kind) -> ScalarValue {
    let wide = ScalarValue::Int64(Some(bound));
    match data_type(kind) {
        DataType::Boolean => ScalarValue::Boolean(Some(bound != 0)),
        wanted => wide.cast_to(&wanted).unwrap_or_else(|_| unknown(kind)),
    }
}

fn unknown(kind: Kind) -> ScalarValue {
    ScalarValue::try_from(&data_type(kind)).unwrap_or(ScalarValue::Null)
}
