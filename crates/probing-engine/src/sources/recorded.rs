//! A table that programs recorded: read from the stores of all targets that have it, chunk by chunk.
//!
//! What the query does not name is not copied, and chunks whose least and greatest values say that nothing in them can
//! matter are left out.

mod column_stats;
mod part;
mod step_ends;
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
use probing_proto::tables::builtin;
use probing_proto::tables::schema::{LeftOut, Storage};
use probing_store::{Chunk, ChunkId, Kind, Snapshot, Tally, Zone};

use self::part::RecordedPart;
use crate::snapshot::steps::{Basis, StepMap};

use crate::columns::WHOSE;
use crate::columns::arrays::data_type;
use crate::snapshot::target_snapshot::{
    ReadFailure, TargetSetSnapshot, TargetSnapshot, UnreadTarget,
};
use crate::sources::scan::{Part, Scan};
use crate::sources::target_columns::{chosen, is_about_whose, pushdown};

/// The column of the step in which a row was recorded.
pub(crate) const STEP: &str = "step";

/// How rows are shared among threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sharing {
    pub(crate) threads: usize,
    pub(crate) rows_for_one: usize,
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
    seen: Arc<TargetSnapshot>,
    snapshot: Snapshot,
    /// Where the table's columns are in it.
    places: Vec<Option<usize>>,
    /// Of a table whose rows have steps.
    steps: Option<Steps>,
    /// Chunks whose rows were overwritten before they were read.
    overwritten: Mutex<HashSet<ChunkId>>,
}

/// The numbers of steps in a table of one target.
#[derive(Debug, Clone)]
struct Steps {
    /// Their column, of those behind the first ones.
    column: usize,
    /// What they become; none where they stay.
    map: Option<StepMap>,
    basis: Basis,
}

impl Source {
    /// What the numbers of a column become, if they do not stay.
    fn map(&self, own: usize) -> Option<&StepMap> {
        let steps = self.steps.as_ref()?;
        steps.map.as_ref().filter(|_| steps.column == own)
    }

    /// The bounds of a column in a chunk, if it has the kind that the table has.
    fn zone(&self, chunk: &Chunk, own: usize, kind: Kind) -> Option<Zone> {
        let place = self.places[own]?;
        if self.snapshot.columns()[place].kind != kind {
            return None;
        }
        let zone = self.snapshot.zone(chunk, place)?;
        Some(match (self.map(own), zone) {
            (Some(map), Zone::Int { min, max }) => Zone::Int {
                min: map.of(min),
                max: map.of(max),
            },
            _ => zone,
        })
    }

    /// What else is known of it.
    fn tally(&self, chunk: &Chunk, own: usize) -> Option<Tally> {
        let tally = self.snapshot.tally(chunk, self.places[own]?)?;
        let sum = tally.sum.filter(|_| self.map(own).is_none());
        Some(Tally { sum, ..tally })
    }

    /// Notes how far the steps of its rows can be compared with those of others.
    fn tell_basis(&self, projection: &[usize]) {
        if let Some(steps) = &self.steps
            && steps.basis > Basis::Operations
            && projection.contains(&(steps.column + WHOSE.len()))
            && self.has_steps(steps.column)
        {
            self.seen.steps_are_aligned_by(steps.basis);
        }
    }

    /// Whether any of its rows has a step. A process that trains nothing records memory, too.
    fn has_steps(&self, own: usize) -> bool {
        let Some(place) = self.places[own] else {
            return false;
        };
        let has_one = |chunk: &Chunk| match self.snapshot.zone(chunk, place) {
            Some(zone) => !matches!(zone, Zone::Empty),
            None => self.snapshot.read(chunk, &[place]).is_ok_and(|read| {
                let columns = read.into_iter().flatten();
                let mut columns = columns.map(crate::columns::arrays::array);
                columns.any(|column| column.is_ok_and(|it| it.null_count() < it.len()))
            }),
        };
        self.snapshot.chunks().iter().any(has_one)
    }

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
    builtin::named(name).map_or_else(Vec::new, |table| table.all_columns())
}

/// The tables that targets have recorded, each once, as they call them; and those that are there in any case.
pub(crate) fn names(sight: &TargetSetSnapshot) -> Vec<String> {
    let mut names: Vec<String> = builtin::ALL.map(|table| table.name.to_owned()).into();
    names.extend(recorded_names(sight));
    names.sort();
    names.dedup();
    names
}

/// Those that have rows, or had; those whose rows cannot be read among them.
pub(crate) fn recorded_names(sight: &TargetSetSnapshot) -> Vec<String> {
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
pub(crate) fn columns(name: &str, sight: &TargetSetSnapshot) -> Vec<RecordedColumn> {
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
pub(crate) fn table(
    name: &str,
    sight: &TargetSetSnapshot,
    sharing: Sharing,
) -> Option<RecordedTable> {
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
                ReadFailure {
                    message: format!("cannot read {name}: {error}"),
                    hint: None,
                },
            ),
        }
    }
    if columns.is_empty() {
        return None;
    }
    let mut table = RecordedTable::new(name, &columns, snapshots, sharing);
    // A table of the program's has steps of the program's.
    let step = columns.iter().position(|column| column.name == STEP);
    if let Some(column) = step.filter(|_| builtin::named(name).is_some()) {
        table.align(column, sight);
    }
    Some(table)
}

/// The targets, after a look at what each has recorded, all at once. One that has this table only in files that cannot be
/// read has not answered; of one that has others, too, some rows are missing.
fn opened(sight: &TargetSetSnapshot, name: &str) -> Vec<Arc<TargetSnapshot>> {
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

fn has(seen: &TargetSnapshot, name: &str) -> bool {
    let recorded = seen.recorded().ok().flatten();
    recorded.is_some_and(|recorded| {
        let mut tables = recorded.store.tables().iter();
        tables.any(|table| table.name().eq_ignore_ascii_case(name))
    })
}

/// Why rows of a table are missing that a target has recorded.
fn lacking(
    seen: &TargetSnapshot,
    name: &str,
) -> std::result::Result<Option<ReadFailure>, ReadFailure> {
    let Some(recorded) = seen.recorded()? else {
        return Ok(None);
    };
    let mut files = recorded.store.unreadable().iter();
    let file = files.find(|file| file.is_of(name));
    Ok(file
        .map(ReadFailure::from)
        .or_else(|| in_own_memory(&recorded.recording, name)))
}

/// Why rows are missing that only the process itself can read.
fn in_own_memory(recording: &Recording, table: &str) -> Option<ReadFailure> {
    let Storage::Heap { reason } = &recording.recorder.as_ref()?.storage else {
        return None;
    };
    Some(ReadFailure {
        message: format!(
            "rows of {table} may be in the process's own memory, where no query reads them: {reason}"
        ),
        hint: None,
    })
}

/// Why values are missing that the program recorded.
fn left_out(recording: &Recording, table: &str) -> Option<ReadFailure> {
    let LeftOut { column, columns } = recording.recorder.as_ref()?.left_out.get(table)?;
    Some(ReadFailure {
        message: format!(
            "values of column {column} and others were not recorded: {table} has the maximum of {columns} columns"
        ),
        hint: Some("record names that change as values of a column, not as columns".to_owned()),
    })
}

/// The targets that have this table where it cannot be read.
pub(crate) fn unreadable(name: &str, sight: &TargetSetSnapshot) -> Vec<UnreadTarget> {
    let missing = |seen: &Arc<TargetSnapshot>| {
        let why = lacking(seen, name).ok()??;
        Some(UnreadTarget {
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
    pub(crate) fn new(
        name: &str,
        columns: &[RecordedColumn],
        snapshots: Vec<(Arc<TargetSnapshot>, Snapshot)>,
        sharing: Sharing,
    ) -> Self {
        let whose = WHOSE
            .iter()
            .map(|column| Field::new(column.name, column.kind.data_type(), true));
        let own = columns
            .iter()
            .map(|column| Field::new(&column.name, data_type(column.kind), true));
        let source = |(seen, snapshot): (Arc<TargetSnapshot>, Snapshot)| {
            let place = |column: &RecordedColumn| {
                let mut theirs = snapshot.columns().iter();
                theirs.position(|known| known.name.to_lowercase() == column.name)
            };
            let places = columns.iter().map(place).collect();
            Arc::new(Source {
                seen,
                snapshot,
                places,
                steps: None,
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

    /// Gives the same number to the same step of all targets.
    fn align(&mut self, column: usize, sight: &TargetSetSnapshot) {
        let alignment = step_ends::alignment(sight);
        for source in self.sources.iter_mut().filter_map(Arc::get_mut) {
            let process = sight.all.iter();
            let mut process = process.enumerate();
            let process = process.find(|(_, seen)| Arc::ptr_eq(seen, &source.seen));
            source.steps = process.map(|(process, _)| Steps {
                column,
                map: alignment.map(process).cloned(),
                basis: alignment.basis(process),
            });
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
        let seen: Vec<Arc<TargetSnapshot>> = self
            .sources
            .iter()
            .map(|source| Arc::clone(&source.seen))
            .collect();
        let chosen = chosen(&seen, session, filters)?;
        let is_chosen =
            |source: &&Arc<Source>| chosen.iter().any(|seen| Arc::ptr_eq(seen, &source.seen));
        let sources: Vec<Arc<Source>> = self.sources.iter().filter(is_chosen).cloned().collect();
        for source in &sources {
            source.tell_basis(&projection);
        }
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
