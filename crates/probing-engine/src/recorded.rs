//! A table that programs recorded: read from the stores of all targets that have it, chunk by chunk.
//!
//! What the query does not name is not copied, and chunks whose least and greatest values say that nothing in them can
//! matter are left out.

mod known;
mod part;
#[cfg(test)]
mod tests;
mod zones;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, Result, Statistics};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use probing_client::Recording;
use probing_proto::own;
use probing_proto::store::LeftOut;
use probing_store::{Chunk, ChunkId, Kind, Snapshot};

use self::part::RecordedPart;
use crate::arrays::data_type;
use crate::scan::{Part, Scan};
use crate::sight::{Missing, Seen, Sight, Unseen};
use crate::table::WHOSE;
use crate::whose::{chosen, is_about_whose, pushdown};

/// How rows are shared among threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sharing {
    threads: usize,
    rows_for_one: usize,
}

impl Sharing {
    /// One thread reads two million rows, in their order, in some hundredths of a second. It pays to share more: what
    /// threads have grouped apart has to be put together again.
    pub(crate) fn among(threads: usize) -> Self {
        Self {
            threads,
            rows_for_one: 2 << 20,
        }
    }

    pub(crate) fn parts(self, rows: usize) -> usize {
        rows.div_ceil(self.rows_for_one)
            .clamp(1, self.threads.max(1))
    }
}

/// One table of all targets that recorded it.
#[derive(Debug)]
pub(crate) struct RecordedTable {
    name: String,
    shape: Arc<Shape>,
    sources: Vec<Arc<Source>>,
    sharing: Sharing,
}

/// Its columns, those that say whose a row is first.
#[derive(Debug)]
struct Shape {
    schema: SchemaRef,
    /// Of those behind the first ones.
    kinds: Vec<Kind>,
}

/// The table as one target has it.
#[derive(Debug)]
struct Source {
    seen: Arc<Seen>,
    snapshot: Snapshot,
    /// Where the table's columns are in it.
    places: Vec<Option<usize>>,
    /// Chunks whose rows were overwritten before they were read.
    overwritten: Mutex<HashSet<ChunkId>>,
}

impl Source {
    /// Notes that a chunk could not be read. Two scans of one query may both want it.
    fn lost(&self, chunk: &Chunk) {
        let mut overwritten = self
            .overwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if overwritten.insert(chunk.id()) {
            self.seen
                .lost_rows(self.snapshot.table(), chunk.rows() as u64);
        }
    }
}

/// A column of it. SQL knows names without a dash of case, and so does a store: they are written small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedColumn {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// The columns of a table that is there, with its types, also when nobody has recorded anything in it.
pub(crate) fn known(name: &str) -> Vec<probing_store::Column> {
    own::named(name).map_or_else(Vec::new, |table| table.all_columns())
}

/// The tables that targets have recorded, each once, as they call them; and those that are there in any case.
pub(crate) fn names(sight: &Sight) -> Vec<String> {
    let mut names: Vec<String> = own::ALL.map(|table| table.name.to_owned()).into();
    names.extend(recorded_names(sight));
    names.sort();
    names.dedup();
    names
}

/// Those that have rows, or had; those whose rows cannot be read among them.
pub(crate) fn recorded_names(sight: &Sight) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    sight.ask(&sight.all, |seen| seen.recorded().map(drop));
    for seen in &sight.all {
        if let Ok(Some(recorded)) = seen.recorded() {
            let tables = recorded.store.tables().iter();
            names.extend(tables.map(|table| table.name().to_owned()));
            let unreadable = recorded.store.unreadable().iter();
            names.extend(unreadable.map(|file| file.table().to_owned()));
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
pub(crate) fn table(name: &str, sight: &Sight, sharing: Sharing) -> Option<RecordedTable> {
    let mut snapshots = Vec::new();
    let mut columns: Vec<RecordedColumn> = Vec::new();
    merge(&mut columns, &known(name));
    for seen in opened(sight, name) {
        let Ok(Some(recorded)) = seen.recorded() else {
            continue;
        };
        let mut tables = recorded.store.tables().iter();
        let Some(table) = tables.find(|table| table.name().eq_ignore_ascii_case(name)) else {
            continue;
        };
        if let Some(why) = left_out(&recorded.recording, table.name()) {
            sight.misses(&seen, why);
        }
        merge(&mut columns, table.columns());
        match table.pinned_snapshot(&sight.pin_room) {
            Ok(snapshot) => {
                seen.lost_rows(table.name(), snapshot.overwritten());
                snapshots.push((Arc::clone(&seen), snapshot));
            }
            Err(error) => sight.misses(
                &seen,
                Unseen {
                    message: format!("cannot read {name}: {error}"),
                    hint: None,
                },
            ),
        }
    }
    (!columns.is_empty()).then(|| RecordedTable::new(name, &columns, snapshots, sharing))
}

/// The targets, after a look at what each has recorded, all at once. One that has this table only in files that cannot be
/// read has not answered; of one that has others, too, some rows are missing.
fn opened(sight: &Sight, name: &str) -> Vec<Arc<Seen>> {
    let wanted = name.to_owned();
    sight.ask(&sight.all, move |seen| match lacking(seen, &wanted)? {
        Some(why) if !has(seen, &wanted) => Err(why),
        _ => Ok(()),
    });
    for seen in &sight.all {
        if let Ok(Some(why)) = lacking(seen, name) {
            sight.misses(seen, why);
        }
    }
    sight.all.clone()
}

fn has(seen: &Seen, name: &str) -> bool {
    let recorded = seen.recorded().ok().flatten();
    recorded.is_some_and(|recorded| {
        let mut tables = recorded.store.tables().iter();
        tables.any(|table| table.name().eq_ignore_ascii_case(name))
    })
}

/// Why rows of a table are missing that a target has recorded.
fn lacking(seen: &Seen, name: &str) -> std::result::Result<Option<Unseen>, Unseen> {
    let Some(recorded) = seen.recorded()? else {
        return Ok(None);
    };
    let mut files = recorded.store.unreadable().iter();
    Ok(files.find(|file| file.is_of(name)).map(Unseen::from))
}

/// Why values are missing that the program recorded.
fn left_out(recording: &Recording, table: &str) -> Option<Unseen> {
    let LeftOut { column, columns } = recording.recorder.as_ref()?.left_out.get(table)?;
    Some(Unseen {
        message: format!(
            "values were left out, those of column {column} among them: {table} has {columns} columns and takes no others"
        ),
        hint: Some("record names that change as values of a column, not as columns".to_owned()),
    })
}

/// The targets that have this table where it cannot be read.
pub(crate) fn unreadable(name: &str, sight: &Sight) -> Vec<Missing> {
    let missing = |seen: &Arc<Seen>| {
        let why = lacking(seen, name).ok()??;
        Some(Missing {
            who: seen.member.who.clone(),
            pid: seen.member.pid,
            why,
        })
    };
    sight.all.iter().filter_map(missing).collect()
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
        sharing: Sharing,
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
                overwritten: Mutex::default(),
            })
        };
        Self {
            name: name.to_owned(),
            shape: Arc::new(Shape {
                schema: Arc::new(Schema::new(whose.chain(own).collect::<Vec<_>>())),
                kinds: columns.iter().map(|column| column.kind).collect(),
            }),
            sources: snapshots.into_iter().map(source).collect(),
            sharing,
        }
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        let sources = self.sources.iter();
        sources.map(|source| source.snapshot.rows()).sum()
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
        if let Some(condition) = conjunction(own.cloned()) {
            let schema = DFSchema::try_from(Arc::clone(&self.shape.schema))?;
            let condition = session.create_physical_expr(condition, &schema)?;
            self.shape
                .prune(&mut pieces, condition, &self.shape.schema)?;
        }
        Ok((pieces, all))
    }
}

#[async_trait]
impl TableProvider for RecordedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shape.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        let known = Statistics::new_unknown(&self.shape.schema);
        Some(known.with_num_rows(Precision::Exact(self.rows())))
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
        let all = || (0..self.shape.schema.fields().len()).collect();
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
        let schema: SchemaRef = Arc::new(self.shape.schema.project(&projection)?);
        let part = |pieces: Vec<Piece>| -> Arc<dyn Part> {
            let shape = Arc::clone(&self.shape);
            Arc::new(RecordedPart::new(pieces, shape, Arc::clone(&projection)))
        };
        let parts = shared(pieces, self.sharing).into_iter().map(part).collect();
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
fn shared(pieces: Vec<Piece>, sharing: Sharing) -> Vec<Vec<Piece>> {
    let rows: usize = pieces.iter().map(|piece| piece.chunk.rows()).sum();
    let share = rows.div_ceil(sharing.parts(rows)).max(1);
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
