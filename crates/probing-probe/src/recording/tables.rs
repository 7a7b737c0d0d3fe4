//! The tables of this process: each has a ring, and gets another when its columns change.

use std::collections::HashMap;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;

use probing_proto::env::{PROBING_DIR, PROBING_STORE_BYTES};
use probing_proto::process::ProcessKey;
use probing_proto::tables::builtin::OwnTable;
use probing_proto::tables::schema::{
    Column, Kind, LeftOut, MAX_COLUMNS, Recorder, Schema, SchemaError, Storage, TIME, USER,
};
use probing_proto::text::byte_size;
use probing_store::{Budget, PlaceError, RingDir, Value, Writer, make_runtime_dir};
use pyo3::prelude::*;

use crate::process::fork_child;
use crate::recorders::collectives;
use crate::recording::RecordError;
use crate::recording::call_site_cache::{LEFT_OUT, NO_COLUMN_YET, Sites};
use crate::recording::process;

/// Tables of one process at most.
const MAX_TABLES: usize = 256;
/// How often the columns of a table may change. After that, what does not fit is left out.
const MAX_CHANGES: u32 = 64;
/// Schemas that the program's tables may not have.
const RESERVED: [&str; 4] = ["python", "process", "probing", "cluster"];

/// What this process records.
#[derive(Debug)]
pub(super) struct Tables {
    generation: u32,
    key: ProcessKey,
    /// None: there is no private folder.
    runtime_dir: Option<PathBuf>,
    place: Result<RingDir, String>,
    budget: Arc<Budget>,
    recorder: Recorder,
    pub(super) all: Vec<Table>,
    by_name: HashMap<String, usize>,
    /// What the program has declared, for children to begin with.
    declared: Declared,
    pub(super) sites: Sites,
}

/// What the program's environment asks for; nonsense asks for nothing, since a guest has nobody to tell.
fn asked_bytes() -> Option<u64> {
    let text = PROBING_STORE_BYTES.value()?;
    byte_size::bytes(text.to_str()?).ok()
}

/// One table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) writer: Writer,
    /// How often its columns have changed: who knows where they are looks whether they still are there.
    pub(super) changes: u32,
    /// Of each column but the time.
    pub(super) kinds: Vec<Kind>,
}

/// Columns that the program has declared, by the names of their tables.
type Declared = HashMap<String, Vec<Column>>;

impl Tables {
    pub(super) fn new(py: Python<'_>, declared: Declared) -> Self {
        let key = process::key();
        let uid = rustix::process::geteuid().as_raw();
        let made = make_runtime_dir(uid, PROBING_DIR.value());
        let runtime_dir = made.as_ref().ok().cloned();
        let place = made
            .map_err(PlaceError::from)
            .and_then(|runtime_dir| RingDir::make(&runtime_dir, key))
            .map_err(|error| format!("{error}; {}", error.hint()));
        let budget_bytes = place
            .as_ref()
            .map_or(0, |place| Budget::within(place.free_bytes(), asked_bytes()));
        let storage = match &place {
            Ok(_) => Storage::Shared,
            Err(reason) => Storage::Heap {
                reason: reason.clone(),
            },
        };
        let tables = Self {
            generation: fork_child::generation(),
            key,
            runtime_dir,
            recorder: process::recorder(py, key, budget_bytes, storage),
            place,
            budget: Budget::new(budget_bytes),
            all: Vec::new(),
            by_name: HashMap::new(),
            sites: Sites::default(),
            declared,
        };
        tables.describe();
        tables
    }

    /// What was declared, for a child of a fork.
    pub(super) fn declared(&self) -> Declared {
        self.declared.clone()
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Where rows go.
    pub(super) fn storage(&self) -> Storage {
        self.recorder.storage.clone()
    }

    /// Where their rings are, if they are in files.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        let place = self.place.as_ref().ok()?;
        Some(place.folder().to_owned())
    }

    pub(super) fn get(&mut self, index: usize) -> Option<&mut Table> {
        self.all.get_mut(index)
    }

    /// The number of a table of Probing's own, which is made when it is not there.
    pub(super) fn own(&mut self, own: &OwnTable) -> Result<usize, RecordError> {
        match self.by_name.get(own.name) {
            Some(index) => Ok(*index),
            None => self.make(own.name, own.all_columns()),
        }
    }

    /// Declares the columns of a table. One that is there already gets those that it lacks.
    pub(super) fn declare(
        &mut self,
        name: &str,
        columns: &[(&str, Kind)],
    ) -> Result<(), RecordError> {
        let full = full_name(name)?;
        let declared = extended(time(), columns)?;
        self.declared.insert(full, declared);
        self.table_for(name, columns).map(|_| ())
    }

    /// The number of a table of the program's, which has these columns, wide enough. What would be one change too many is
    /// left out.
    pub(super) fn table_for(
        &mut self,
        name: &str,
        wanted: &[(&str, Kind)],
    ) -> Result<usize, RecordError> {
        let name = full_name(name)?;
        let Some(&index) = self.by_name.get(&name) else {
            let declared = self.declared.get(&name).cloned();
            let columns = declared.unwrap_or_else(time);
            return self.make(&name, extended(columns, wanted)?);
        };
        let table = &self.all[index];
        let (before, changes) = (table.writer.schema(), table.changes);
        let columns = extended(before.columns.clone(), wanted)?;
        if columns != before.columns && changes < MAX_CHANGES {
            let writer = self.writer(Schema {
                table: name,
                columns,
            })?;
            let wider = Table {
                changes: changes + 1,
                ..Table::of(writer)
            };
            mem::replace(&mut self.all[index], wider).writer.retire();
        }
        Ok(index)
    }

    /// Notes, once for each table, that values of these columns have no place in it.
    pub(super) fn note_left_out(&mut self, index: usize, wanted: &[(&str, Kind)]) {
        let Some(table) = self.all.get(index).filter(|table| table.is_settled()) else {
            return;
        };
        let has_room = |(name, kind): &&(&str, Kind)| {
            let place = table.place(name);
            place.is_some_and(|place| table.kinds[place].widened(*kind) == table.kinds[place])
        };
        let Some((column, _)) = wanted.iter().find(|column| !has_room(column)) else {
            return;
        };
        let name = &table.writer.schema().table;
        if !self.recorder.left_out.contains_key(name) {
            let left_out = LeftOut {
                column: (*column).to_owned(),
                columns: table.kinds.len(),
            };
            self.recorder.left_out.insert(name.clone(), left_out);
            self.describe();
        }
    }

    fn make(&mut self, name: &str, columns: Vec<Column>) -> Result<usize, RecordError> {
        let index = self.all.len();
        if index >= MAX_TABLES {
            return Err(RecordError::TooManyTables {
                table: name.to_owned(),
                limit: MAX_TABLES,
            });
        }
        let writer = self.writer(Schema {
            table: name.to_owned(),
            columns,
        })?;
        self.all.push(Table::of(writer));
        self.by_name.insert(name.to_owned(), index);
        Ok(index)
    }

    /// Another ring of a table of Probing's own, for a thread that does not hold the GIL.
    pub(super) fn ring(&mut self, own: &OwnTable) -> Result<Writer, RecordError> {
        self.writer(Schema {
            table: own.name.to_owned(),
            columns: own.all_columns(),
        })
    }

    pub(super) fn writer(&mut self, schema: Schema) -> Result<Writer, RecordError> {
        let writer = match &self.place {
            Ok(place) => {
                let path = place.next_path(&schema.table);
                Writer::create(&path, schema, self.key, 0, &self.budget)?
            }
            Err(reason) => Writer::own(schema, self.key, 0, reason.clone())?,
        };
        if let storage @ Storage::Heap { .. } = writer.storage()
            && self.recorder.storage == Storage::Shared
        {
            self.recorder.storage = storage;
            self.describe();
        }
        Ok(writer)
    }

    /// The rank, where it was not known before.
    pub(super) fn describe_rank(&mut self) {
        let rank = collectives::rank();
        if self.recorder.rank != rank {
            self.recorder.rank = rank;
            self.describe();
        }
    }

    fn describe(&self) {
        // Without it the rings say who wrote them; there is nobody to tell.
        if let Some(runtime_dir) = &self.runtime_dir {
            probing_store::describe(runtime_dir, &self.recorder).ok();
        }
    }
}

impl Table {
    fn of(writer: Writer) -> Self {
        let columns = &writer.schema().columns;
        Self {
            kinds: columns.iter().skip(1).map(|column| column.kind).collect(),
            changes: 0,
            writer,
        }
    }

    /// Where a column is among those but the time.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        let columns = self.writer.schema().columns.iter().skip(1);
        columns
            .map(|column| column.name.as_str())
            .position(|column| is_same_name(column, name))
    }

    /// Whether its columns stay as they are, whatever is recorded.
    fn is_settled(&self) -> bool {
        self.changes >= MAX_CHANGES || self.writer.schema().columns.len() >= MAX_COLUMNS
    }

    /// Where a value goes that has no column.
    pub(super) fn without_column(&self) -> u16 {
        if self.is_settled() {
            LEFT_OUT
        } else {
            NO_COLUMN_YET
        }
    }

    /// Appends a row now.
    #[inline]
    pub(super) fn append(&mut self, values: &[Value<'_>]) -> bool {
        self.append_at(probing_store::monotonic_nanos(), values)
    }

    #[inline]
    pub(crate) fn append_at(&mut self, ts: i64, values: &[Value<'_>]) -> bool {
        self.writer.append(ts, values).is_ok()
    }
}

/// Columns with those that are wanted, wide enough, as far as there may be more.
fn extended(mut columns: Vec<Column>, wanted: &[(&str, Kind)]) -> Result<Vec<Column>, SchemaError> {
    for (name, kind) in wanted {
        let there = columns
            .iter()
            .position(|column| is_same_name(&column.name, name));
        match there {
            // The time of a row is the moment of the call.
            Some(0) => {
                return Err(SchemaError::Twice {
                    name: (*name).to_owned(),
                });
            }
            Some(place) => columns[place].kind = columns[place].kind.widened(*kind),
            None if columns.len() < MAX_COLUMNS => columns.push(Column {
                name: (*name).to_owned(),
                kind: *kind,
                nullable: true,
                doc: String::new(),
            }),
            None => {}
        }
    }
    Ok(columns)
}

/// What every table of the program begins with.
fn time() -> Vec<Column> {
    vec![Column {
        name: TIME.to_owned(),
        kind: Kind::Time,
        nullable: false,
        doc: "when the row was recorded".to_owned(),
    }]
}

/// `train` is `user.train`.
fn full_name(name: &str) -> Result<String, RecordError> {
    match name.split_once('.') {
        None => Ok(format!("{USER}.{name}")),
        Some((schema, _)) if RESERVED.contains(&schema.to_lowercase().as_str()) => {
            Err(RecordError::Reserved {
                table: name.to_owned(),
            })
        }
        Some(_) => Ok(name.to_owned()),
    }
}

fn is_same_name(one: &str, other: &str) -> bool {
    one == other || one.to_lowercase() == other.to_lowercase()
}
