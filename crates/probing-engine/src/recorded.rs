//! A table that programs recorded: read from the stores of all targets that have it, chunk by chunk.
//!
//! What the query does not name is not copied, and chunks whose least and greatest values say that nothing in them can
//! matter are left out.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use probing_proto::store::{TIME, TRACE_EVENT, trace_event_columns};
use probing_store::{Chunk, Kind, Snapshot, Zone};

use crate::arrays::{self, data_type};
use crate::rows::Value;
use crate::scan::{Part, Scan};
use crate::sight::{Seen, Sight, Unseen};
use crate::table::WHOSE;
use crate::whose::{chosen, is_about_whose, pushdown, whose};

/// So many rows are read in one part, in their order; it pays to share more.
const ROWS_FOR_ONE: usize = 64 << 10;

/// One table of all targets that recorded it.
#[derive(Debug)]
pub(crate) struct RecordedTable {
    name: String,
    schema: SchemaRef,
    kinds: Vec<Kind>,
    sources: Vec<Arc<Source>>,
    threads: usize,
}

/// The table as one target has it.
#[derive(Debug)]
struct Source {
    seen: Arc<Seen>,
    snapshot: Snapshot,
    /// Where the table's columns are in it.
    places: Vec<Option<usize>>,
}

/// A column of it. SQL knows names without a dash of case, and so does a store: they are written small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedColumn {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// The columns of a table that is there, with its types, also when nobody has recorded anything in it.
pub(crate) fn known(name: &str) -> Vec<probing_store::Column> {
    if !name.eq_ignore_ascii_case(TRACE_EVENT) {
        return Vec::new();
    }
    let time = probing_store::Column {
        name: TIME.to_owned(),
        kind: Kind::Time,
        nullable: false,
        doc: "when it was recorded; of a span, when it began".to_owned(),
    };
    std::iter::once(time).chain(trace_event_columns()).collect()
}

/// The tables that targets have recorded, each once, as they call them; and those that are there in any case.
pub(crate) fn names(sight: &Sight) -> Vec<String> {
    let mut names: Vec<String> = vec![TRACE_EVENT.to_owned()];
    names.extend(recorded_names(sight));
    names.sort();
    names.dedup();
    names
}

/// Those that have rows, or had.
pub(crate) fn recorded_names(sight: &Sight) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for seen in opened(sight) {
        if let Ok(Some(recorded)) = seen.recorded() {
            let tables = recorded.store.tables().iter();
            names.extend(tables.map(|table| table.name().to_owned()));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// The columns of a table, of all targets that have it.
pub(crate) fn columns(name: &str, sight: &Sight) -> Vec<RecordedColumn> {
    let mut columns = Vec::new();
    merge(&mut columns, &known(name));
    for seen in &sight.all {
        if let Ok(Some(recorded)) = seen.recorded() {
            let mut tables = recorded.store.tables().iter();
            if let Some(table) = tables.find(|table| table.name().eq_ignore_ascii_case(name)) {
                merge(&mut columns, table.columns());
            }
        }
    }
    columns
}

/// The table with this name of all targets that have it; `None` when none has.
pub(crate) fn table(name: &str, sight: &Sight, threads: usize) -> Option<RecordedTable> {
    let mut snapshots = Vec::new();
    let mut columns: Vec<RecordedColumn> = Vec::new();
    merge(&mut columns, &known(name));
    for seen in opened(sight) {
        let Ok(Some(recorded)) = seen.recorded() else {
            continue;
        };
        let mut tables = recorded.store.tables().iter();
        let Some(table) = tables.find(|table| table.name().eq_ignore_ascii_case(name)) else {
            continue;
        };
        merge(&mut columns, table.columns());
        match table.snapshot() {
            Ok(snapshot) => snapshots.push((Arc::clone(&seen), snapshot)),
            Err(error) => sight.misses(
                &seen,
                Unseen {
                    message: format!("cannot read {name}: {error}"),
                    hint: None,
                },
            ),
        }
    }
    (!columns.is_empty()).then(|| RecordedTable::new(name, &columns, snapshots, threads))
}

/// The targets, after a look at what each has recorded, all at once.
fn opened(sight: &Sight) -> Vec<Arc<Seen>> {
    sight.ask(&sight.all, |seen| seen.recorded().map(drop));
    sight.all.clone()
}

/// Adds columns, each of a kind that holds the values of all.
pub(crate) fn merge(merged: &mut Vec<RecordedColumn>, columns: &[probing_store::Column]) {
    for column in columns {
        let name = column.name.to_lowercase();
        match merged.iter_mut().find(|known| known.name == name) {
            Some(known) => known.kind = known.kind.widened(column.kind),
            None => merged.push(RecordedColumn {
                name,
                kind: column.kind,
            }),
        }
    }
}

impl RecordedTable {
    fn new(
        name: &str,
        columns: &[RecordedColumn],
        snapshots: Vec<(Arc<Seen>, Snapshot)>,
        threads: usize,
    ) -> Self {
        let whose = WHOSE
            .iter()
            .map(|column| Field::new(column.name, column.kind.data_type(), true));
        let own = columns
            .iter()
            .map(|column| Field::new(&column.name, data_type(column.kind), true));
        let source = |(seen, snapshot): (Arc<Seen>, Snapshot)| {
            let place = |column: &RecordedColumn| {
                let mut theirs = snapshot.columns().iter();
                theirs.position(|known| known.name.to_lowercase() == column.name)
            };
            let places = columns.iter().map(place).collect();
            Arc::new(Source {
                seen,
                snapshot,
                places,
            })
        };
        Self {
            name: name.to_owned(),
            schema: Arc::new(Schema::new(whose.chain(own).collect::<Vec<_>>())),
            kinds: columns.iter().map(|column| column.kind).collect(),
            sources: snapshots.into_iter().map(source).collect(),
            threads,
        }
    }

    /// The chunks of these targets that may hold rows which meet the conditions.
    fn chunks(
        &self,
        session: &dyn Session,
        sources: &[Arc<Source>],
        filters: &[Expr],
    ) -> Result<(Vec<Piece>, usize)> {
        let pieces = sources.iter().flat_map(|source| {
            let chunks = source.snapshot.chunks().iter();
            chunks.map(|chunk| Piece {
                source: Arc::clone(source),
                chunk: chunk.clone(),
            })
        });
        let mut pieces: Vec<Piece> = pieces.collect();
        let all = pieces.len();
        let own = filters.iter().filter(|filter| !is_about_whose(filter));
        if let Some(condition) = conjunction(own.cloned())
            && !pieces.is_empty()
        {
            let schema = DFSchema::try_from(Arc::clone(&self.schema))?;
            let condition = session.create_physical_expr(condition, &schema)?;
            // What it cannot decide about it keeps.
            let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(&self.schema));
            if let Some(predicate) = builder.build(condition) {
                let zones = Zones {
                    table: self,
                    pieces: &pieces,
                };
                let mut kept = predicate.prune(&zones)?.into_iter();
                pieces.retain(|_| kept.next().unwrap_or(true));
            }
        }
        Ok((pieces, all))
    }
}

#[async_trait]
impl TableProvider for RecordedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // Chunks are left out, rows are not.
        Ok(pushdown(filters, TableProviderFilterPushDown::Inexact))
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.schema.fields().len()).collect();
        let projection: Arc<[usize]> = projection.cloned().unwrap_or_else(all).into();
        let seen: Vec<Arc<Seen>> = self
            .sources
            .iter()
            .map(|source| Arc::clone(&source.seen))
            .collect();
        let chosen = chosen(&seen, session, filters)?;
        let is_chosen =
            |source: &&Arc<Source>| chosen.iter().any(|seen| Arc::ptr_eq(seen, &source.seen));
        let sources: Vec<Arc<Source>> = self.sources.iter().filter(is_chosen).cloned().collect();
        let (mut pieces, count) = self.chunks(session, &sources, filters)?;
        let mut note = format!(", chunks={} of {count}", pieces.len());
        if let Some(limit) = limit {
            // Enough of them; a limit comes here only when no condition takes rows away.
            let mut rows = 0;
            pieces.retain(|piece| {
                let is_wanted = rows < limit;
                rows += piece.chunk.rows();
                is_wanted
            });
            note.push_str(&format!(", limit={limit}"));
        }
        let schema: SchemaRef = Arc::new(self.schema.project(&projection)?);
        let kinds: Arc<[Kind]> = self.kinds.clone().into();
        let part = |pieces: Vec<Piece>| -> Arc<dyn Part> {
            Arc::new(RecordedPart {
                pieces: pieces.into(),
                projection: Arc::clone(&projection),
                kinds: Arc::clone(&kinds),
            })
        };
        let parts = shared(pieces, self.threads).into_iter().map(part).collect();
        Ok(Arc::new(Scan::of(&self.name, note, schema, parts)))
    }
}

/// A chunk of one target.
#[derive(Debug, Clone)]
struct Piece {
    source: Arc<Source>,
    chunk: Chunk,
}

/// As even a share as whole chunks allow, neighbours together. There is always one.
fn shared(pieces: Vec<Piece>, threads: usize) -> Vec<Vec<Piece>> {
    let rows: usize = pieces.iter().map(|piece| piece.chunk.rows()).sum();
    let parts = rows.div_ceil(ROWS_FOR_ONE).clamp(1, threads.max(1));
    let share = rows.div_ceil(parts).max(1);
    let mut shared: Vec<Vec<Piece>> = vec![Vec::new()];
    let mut taken = 0;
    for piece in pieces {
        if taken >= share * shared.len() {
            shared.push(Vec::new());
        }
        taken += piece.chunk.rows();
        if let Some(last) = shared.last_mut() {
            last.push(piece);
        }
    }
    shared
}

struct RecordedPart {
    pieces: Arc<[Piece]>,
    /// Columns of the table, those that say whose a row is among them.
    projection: Arc<[usize]>,
    kinds: Arc<[Kind]>,
}

impl Part for RecordedPart {
    fn read(&self, schema: &SchemaRef) -> Result<SendableRecordBatchStream> {
        let (schema, read) = (Arc::clone(schema), Arc::clone(schema));
        let (pieces, projection, kinds) = (
            Arc::clone(&self.pieces),
            Arc::clone(&self.projection),
            Arc::clone(&self.kinds),
        );
        let batches = (0..pieces.len())
            .filter_map(move |index| batch(&pieces[index], &projection, &kinds, &read).transpose());
        let stream = RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches));
        Ok(Box::pin(stream))
    }

    fn rows(&self) -> Option<usize> {
        Some(self.pieces.iter().map(|piece| piece.chunk.rows()).sum())
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

/// What is known of the chunks before they are read.
struct Zones<'a> {
    table: &'a RecordedTable,
    pieces: &'a [Piece],
}

impl Zones<'_> {
    fn bounds(
        &self,
        column: &Column,
        bound: impl Fn(Zone, Kind) -> ScalarValue,
    ) -> Option<ArrayRef> {
        let index = self.table.schema.index_of(&column.name).ok()?;
        let own = index.checked_sub(WHOSE.len())?;
        let kind = *self.table.kinds.get(own)?;
        let unknown = ScalarValue::try_from(&data_type(kind)).ok()?;
        let scalars = self.pieces.iter().map(|piece| {
            let snapshot = &piece.source.snapshot;
            let place = piece.source.places[own];
            // A target that recorded it as another kind has bounds of that kind.
            let place = place.filter(|place| snapshot.columns()[*place].kind == kind);
            let zone = place.and_then(|place| snapshot.zone(&piece.chunk, place));
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

    fn null_counts(&self, _: &Column) -> Option<ArrayRef> {
        None
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        None
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// A bound of whole numbers as the column's type has it.
fn int(bound: i64, kind: Kind) -> ScalarValue {
    let wide = ScalarValue::Int64(Some(bound));
    match data_type(kind) {
        DataType::Boolean => ScalarValue::Boolean(Some(bound != 0)),
        wanted => wide.cast_to(&wanted).unwrap_or_else(|_| unknown(kind)),
    }
}

fn unknown(kind: Kind) -> ScalarValue {
    ScalarValue::try_from(&data_type(kind)).unwrap_or(ScalarValue::Null)
}
