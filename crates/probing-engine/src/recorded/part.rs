//! Chunks that one thread reads one after the other. What a condition leaves out is not copied.

use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{cast, filter_record_batch, max, min};
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use probing_store::{Kind, Zone};

use super::{Piece, Shape, zones};
use crate::arrays::{self, data_type};
use crate::condition::Condition;
use crate::rows::Value;
use crate::scan::{Part, Range};
use crate::table::WHOSE;
use crate::whose::whose;

#[derive(Clone)]
pub(super) struct RecordedPart {
    pieces: Arc<[Piece]>,
    shape: Arc<Shape>,
    /// Columns of the table, those that say whose a row is among them.
    projection: Arc<[usize]>,
    condition: Option<Condition>,
    /// Of each column that is read, once it has been asked for.
    ranges: Arc<[OnceLock<Option<Range>>]>,
}

impl RecordedPart {
    pub(super) fn new(pieces: Vec<Piece>, shape: Arc<Shape>, projection: Arc<[usize]>) -> Self {
        Self {
            pieces: pieces.into(),
            shape,
            ranges: projection.iter().map(|_| OnceLock::new()).collect(),
            projection,
            condition: None,
        }
    }

    /// The least and the greatest of whole numbers and times; `None`: not known without reading all.
    fn range_of(&self, column: usize) -> Option<Range> {
        let own = self.projection.get(column)?.checked_sub(WHOSE.len())?;
        let kind = *self.shape.kinds.get(own)?;
        let mut all: Option<(i64, i64)> = None;
        for piece in self.pieces.iter() {
            let (source, chunk) = (&piece.source, &piece.chunk);
            let Some(place) = source.places[own] else {
                continue;
            };
            if !is_whole_number(kind) || source.snapshot.columns()[place].kind != kind {
                return None;
            }
            let range = match source.snapshot.zone(chunk, place) {
                Some(Zone::Int { min, max }) => Some((min, max)),
                Some(Zone::Empty) => None,
                Some(Zone::Float { .. }) => return None,
                // The last chunk has none before it is full.
                None => self.looked_up(piece, own).ok()?,
            };
            if let Some((min, max)) = range {
                let (least, most) = all.unwrap_or((min, max));
                all = Some((least.min(min), most.max(max)));
            }
        }
        let (least, most) = all?;
        Some((zones::int(least, kind), zones::int(most, kind)))
    }

    /// The range of a chunk's column, by reading it.
    fn looked_up(&self, piece: &Piece, own: usize) -> Result<Option<(i64, i64)>> {
        let column = own + WHOSE.len();
        let schema: SchemaRef = Arc::new(self.shape.schema.project(&[column])?);
        let Some(batch) = batch(piece, &[column], &self.shape.kinds, &schema)? else {
            return Ok(None);
        };
        let values = cast(batch.column(0), &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>();
        Ok(min(values).zip(max(values)))
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

    /// The chunks that are read, as far as is known when reading begins.
    fn pruned(&self) -> Result<Vec<Piece>> {
        let mut pieces = self.pieces.to_vec();
        if let Some(condition) = &self.condition {
            let now = condition.now()?;
            self.shape.prune(&mut pieces, now, &condition.schema)?;
        }
        Ok(pieces)
    }
}

fn is_whole_number(kind: Kind) -> bool {
    match kind {
        Kind::Time | Kind::U8 | Kind::U16 | Kind::I32 | Kind::U32 | Kind::I64 => true,
        Kind::Bool | Kind::F64 | Kind::Bytes16 | Kind::Symbol | Kind::Text => false,
    }
}

impl Part for RecordedPart {
    fn read(&self, schema: &SchemaRef) -> Result<SendableRecordBatchStream> {
        let (part, all) = (self.clone(), Arc::clone(schema));
        // Begun when the first row is asked for: not all conditions are known before.
        let mut pieces: Option<std::vec::IntoIter<Piece>> = None;
        let batches = std::iter::from_fn(move || {
            let left = match &mut pieces {
                Some(left) => left,
                None => match part.pruned() {
                    Ok(all) => pieces.insert(all.into_iter()),
                    Err(error) => {
                        pieces = Some(Vec::new().into_iter());
                        return Some(Err(error));
                    }
                },
            };
            left.find_map(|piece| part.wanted(&piece, &all).transpose())
        });
        let stream = futures::stream::iter(batches);
        let stream = RecordBatchStreamAdapter::new(Arc::clone(schema), stream);
        Ok(Box::pin(stream))
    }

    fn rows(&self) -> Option<usize> {
        let is_all = self.condition.is_none();
        is_all.then(|| self.pieces.iter().map(|piece| piece.chunk.rows()).sum())
    }

    fn range(&self, column: usize) -> Option<Range> {
        let known = self.ranges.get(column)?;
        known.get_or_init(|| self.range_of(column)).clone()
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
fn batch(
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
                    if *array.data_type() == wanted {
                        array
                    } else {
                        cast(&array, &wanted)?
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

/// The same value in every row.
fn constant(value: &Value<'_>, column: usize, rows: usize) -> Result<ArrayRef> {
    let value = match value {
        Value::Int(number) => ScalarValue::Int64(Some(*number)),
        Value::Text(text) => ScalarValue::Utf8View(Some(text.to_string())),
        _ => ScalarValue::try_from(&WHOSE[column].kind.data_type())?,
    };
    value.to_array_of_size(rows)
}
