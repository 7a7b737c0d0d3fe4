//! Chunks that one thread reads one after the other.
//!
//! What a condition leaves out is not copied.

use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{SortOptions, cast, filter_record_batch};
use datafusion::arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use probing_store::Kind;

use crate::columns::WHOSE;
use crate::columns::arrays::{self, data_type};
use crate::columns::rows::Value;
use crate::snapshot::steps::StepMap;
use crate::sources::predicate::Condition;
use crate::sources::recorded::{Piece, Shape};
use crate::sources::scan::{ColumnStats, Part};
use crate::sources::target_columns::whose;

#[derive(Clone)]
pub(super) struct RecordedPart {
    pub(super) pieces: Arc<[Piece]>,
    pub(super) shape: Arc<Shape>,
    /// Columns of the table, those that say whose a row is among them.
    pub(super) projection: Arc<[usize]>,
    condition: Option<Condition>,
    /// Of each column that is read, once it has been asked for.
    known: Arc<[OnceLock<ColumnStats>]>,
}

impl RecordedPart {
    pub(super) fn new(pieces: Vec<Piece>, shape: Arc<Shape>, projection: Arc<[usize]>) -> Self {
        Self {
            pieces: pieces.into(),
            shape,
            known: projection.iter().map(|_| OnceLock::new()).collect(),
            projection,
            condition: None,
        }
    }

    /// The rows of a chunk that are wanted; `None` when there are none.
    fn wanted(&self, piece: &Piece, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        let (all, kinds) = (&*self.projection, &*self.shape.kinds);
        let Some(condition) = &self.condition else {
            return batch(piece, all, kinds, schema);
        };
        let first: Vec<usize> = condition.columns.iter().map(|place| all[*place]).collect();
        let Some(first) = batch(piece, &first, kinds, &condition.schema)? else {
            return Ok(None);
        };
        let met = condition.met(&first)?;
        let count = met.true_count();
        if count == 0 {
            return Ok(None);
        }
        // Only now what else of these rows there is.
        let others = (0..all.len()).filter(|place| !condition.columns.contains(place));
        let others: Vec<usize> = others.collect();
        let rest: Vec<usize> = others.iter().map(|place| all[*place]).collect();
        let rest_schema: SchemaRef = Arc::new(schema.project(&others)?);
        let Some(rest) = batch(piece, &rest, kinds, &rest_schema)? else {
            return Ok(None);
        };
        let column = |place: usize| match condition.columns.binary_search(&place) {
            Ok(at) => Arc::clone(first.column(at)),
            Err(before) => Arc::clone(rest.column(place - before)),
        };
        let columns: Vec<ArrayRef> = (0..all.len()).map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(first.num_rows()));
        let whole = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
        Ok(Some(if count == first.num_rows() {
            whole
        } else {
            filter_record_batch(&whole, &met)?
        }))
    }

    /// Leaves out chunks of which it is known by now that nothing in them is wanted.
    fn prune(&self, pieces: &mut Vec<Piece>) -> Result<()> {
        match &self.condition {
            Some(condition) => self
                .shape
                .prune(pieces, condition.now()?, &condition.schema),
            None => Ok(()),
        }
    }
}

/// A part while it is read. Begun when the first row is asked for: not all conditions are known before, and some become
/// stricter with the rows that were read.
struct Reading {
    part: RecordedPart,
    schema: SchemaRef,
    /// The last comes next.
    left: Option<Vec<Piece>>,
    /// Of the condition, when chunks were left out by it.
    generation: u64,
    taken: usize,
}

impl Reading {
    fn next_piece(&mut self) -> Result<Option<Piece>> {
        let part = &self.part;
        let generation = part.condition.as_ref().map_or(0, Condition::generation);
        let left = if let Some(left) = &mut self.left {
            // It costs as much as reading some chunks: less and less often.
            if generation != self.generation && self.taken.is_power_of_two() {
                self.generation = generation;
                part.prune(left)?;
            }
            left
        } else {
            self.generation = generation;
            let mut left: Vec<Piece> = part.pieces.iter().rev().cloned().collect();
            part.prune(&mut left)?;
            self.left.insert(left)
        };
        self.taken += 1;
        Ok(left.pop())
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(piece) = self.next_piece()? {
            if let Some(batch) = self.part.wanted(&piece, &self.schema)? {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }
}

impl Iterator for Reading {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch();
        if batch.is_err() {
            self.left = Some(Vec::new());
        }
        batch.transpose()
    }
}

impl Part for RecordedPart {
    fn read(&self, schema: &SchemaRef) -> Result<SendableRecordBatchStream> {
        let reading = Reading {
            part: self.clone(),
            schema: Arc::clone(schema),
            left: None,
            generation: 0,
            taken: 0,
        };
        let stream = futures::stream::iter(reading);
        let stream = RecordBatchStreamAdapter::new(Arc::clone(schema), stream);
        Ok(Box::pin(stream))
    }

    fn rows(&self) -> Option<usize> {
        let is_all = self.condition.is_none();
        is_all.then(|| self.pieces.iter().map(|piece| piece.chunk.rows()).sum())
    }

    fn known(&self, column: usize) -> ColumnStats {
        let known = self.known.get(column);
        let known = known.map(|known| known.get_or_init(|| self.look_up(column)).clone());
        known.unwrap_or_default()
    }

    fn best_first(&self, column: usize, order: SortOptions) -> Option<Arc<dyn Part>> {
        let own = self.projection.get(column)?.checked_sub(WHOSE.len())?;
        let mut pieces = self.pieces.to_vec();
        pieces.sort_by_cached_key(|piece| piece.promise(own, self.shape.kinds[own], order));
        Some(Arc::new(Self {
            pieces: pieces.into(),
            ..self.clone()
        }))
    }

    fn with_condition(&self, condition: Condition) -> Option<Arc<dyn Part>> {
        Some(Arc::new(Self {
            condition: Some(condition),
            ..self.clone()
        }))
    }
}

impl fmt::Debug for RecordedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} chunks", self.pieces.len())
    }
}

/// The rows of a chunk; `None` when they are gone because newer ones came.
pub(super) fn batch(
    piece: &Piece,
    projection: &[usize],
    kinds: &[Kind],
    schema: &SchemaRef,
) -> Result<Option<RecordBatch>> {
    let source = &piece.source;
    let own = |column: &usize| column.checked_sub(WHOSE.len());
    let places: Vec<usize> = projection
        .iter()
        .filter_map(|column| source.places[own(column)?])
        .collect();
    let read = source.snapshot.read(&piece.chunk, &places);
    let read = read.map_err(|error| DataFusionError::External(Box::new(error)))?;
    let Some(read) = read else {
        source.lost(&piece.chunk);
        return Ok(None);
    };
    let rows = piece.chunk.rows();
    let mut read = read.into_iter();
    let mut arrays = Vec::with_capacity(projection.len());
    for column in projection {
        let array = match own(column) {
            None => constant(&whose(&source.seen)[*column], *column, rows)?,
            Some(own) => match source.places[own].and_then(|_| read.next()) {
                Some(data) => {
                    let (array, wanted) = (arrays::array(data)?, data_type(kinds[own]));
                    let array = if *array.data_type() == wanted {
                        array
                    } else {
                        cast(&array, &wanted)?
                    };
                    match source.map(own) {
                        Some(map) => mapped(&array, map),
                        None => array,
                    }
                }
                None => ScalarValue::try_from(&data_type(kinds[own]))?.to_array_of_size(rows)?,
            },
        };
        arrays.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)?;
    Ok(Some(batch))
}

/// Steps with the numbers of the job.
fn mapped(steps: &ArrayRef, map: &StepMap) -> ArrayRef {
    match steps.as_primitive_opt::<Int64Type>() {
        Some(steps) => Arc::new(steps.unary::<_, Int64Type>(|step| map.of(step))),
        None => Arc::clone(steps),
    }
}

/// The same value in every row.
fn constant(value: &Value<'_>, column: usize, rows: usize) -> Result<ArrayRef> {
    let value = match value {
        Value::Int(number) => ScalarValue::Int64(Some(*number)),
        Value::Text(text) => ScalarValue::Utf8View(Some(text.to_string())),
        _ => ScalarValue::try_from(&WHOSE[column].kind.data_type())?,
    };
    value.to_array_of_size(rows)
}
