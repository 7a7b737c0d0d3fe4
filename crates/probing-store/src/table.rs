//! The recorded tables of one process, each made of one or more rings.
//!
//! A table has several rings when several threads write it, and when its columns have changed: then an older ring has
//! fewer of them, or of narrower kinds.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use probing_proto::paths::RING_EXTENSION;
use probing_proto::tables::schema::Column;

use crate::error::{OpenError, ReadError};
use crate::reader::Ring;
use crate::ring::packed;
use crate::ring_dir;
use crate::snapshot::{Chunk, ColumnSource, Part, Snapshot};

/// Rings that are looked at in one folder.
const MAX_RINGS: usize = 10_000;

/// What one process has recorded.
#[derive(Debug)]
pub struct Store {
    tables: Vec<Table>,
    unreadable: Vec<Unreadable>,
}

/// A file that cannot be read, and why. The others are not affected.
#[derive(Debug)]
pub struct Unreadable {
    pub path: PathBuf,
    pub error: OpenError,
}

/// A recorded table.
#[derive(Debug)]
pub struct Table {
    name: String,
    columns: Vec<Column>,
    rings: Vec<Arc<Ring>>,
}

impl Unreadable {
    /// Its table, as far as the file's name tells.
    pub fn table(&self) -> &str {
        let name = || self.path.file_name()?.to_str();
        ring_dir::table_in_path(&self.path)
            .or_else(name)
            .unwrap_or("a table without a name")
    }

    /// Whether it is named as the rings of this table are.
    pub fn is_of(&self, table: &str) -> bool {
        ring_dir::is_path_of(&self.path, table)
    }

    /// What is not there because of it. The same for all rings of a table, and for all processes of a job.
    pub fn words(&self) -> String {
        let table = self.table();
        match &self.error {
            OpenError::Foreign { version, .. } => {
                format!("rows of {table} are in format {version}, which this version does not read")
            }
            error => format!("cannot read rows of {table}: {error}"),
        }
    }
}

impl Store {
    /// Opens all rings in a folder. A folder that is not there is a store without tables.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let mut rings = Vec::new();
        let mut unreadable = Vec::new();
        for path in ring_paths(folder)? {
            match Ring::open(&path) {
                Ok(ring) => rings.push(Arc::new(ring)),
                // Somebody has swept it since.
                Err(OpenError::Unopenable { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => unreadable.push(Unreadable { path, error }),
            }
        }
        Ok(Self {
            tables: tables(rings),
            unreadable,
        })
    }

    /// By name.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// Memory that all of it takes.
    pub fn bytes(&self) -> u64 {
        let rings = self.tables.iter().flat_map(|table| &table.rings);
        let unreadable = self.unreadable.iter().map(|file| {
            let metadata = fs::symlink_metadata(&file.path);
            metadata.map_or(0, |metadata| metadata.blocks() * 512)
        });
        rings.map(|ring| ring.bytes()).chain(unreadable).sum()
    }
}

impl Table {
    /// `user.train`
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Columns of all rings together, as they are shown: symbols as text. The first is the time.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn rings(&self) -> &[Arc<Ring>] {
        &self.rings
    }

    /// The rows that are there now. The writer may overwrite the oldest while they are read.
    pub fn snapshot(&self) -> Result<Snapshot, ReadError> {
        self.snapshot_of(self.rings.clone(), 0)
    }

    /// The rows that are there now, of which a fast writer overwrites none while they are read: rings that it laps within
    /// seconds are copied first, as long as `room` has bytes for them.
    pub fn pinned_snapshot(&self, room: &AtomicU64) -> Result<Snapshot, ReadError> {
        let mut rings = Vec::with_capacity(self.rings.len());
        let mut overwritten = 0;
        for ring in &self.rings {
            let take = |left: u64| left.checked_sub(ring.bytes());
            let is_pinned = ring.laps_soon(&ring.chunks()?)
                && (room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)).is_ok();
            rings.push(if is_pinned {
                let pinned = ring.pin().map_err(|source| ring.failed(source))?;
                overwritten += pinned.overwritten;
                Arc::new(pinned.ring)
            } else {
                Arc::clone(ring)
            });
        }
        self.snapshot_of(rings, overwritten)
    }

    fn snapshot_of(&self, rings: Vec<Arc<Ring>>, overwritten: u64) -> Result<Snapshot, ReadError> {
        let mut parts = Vec::with_capacity(rings.len());
        let mut chunks = Vec::new();
        for ring in &rings {
            let part = parts.len();
            let is_packed = packed::is_packed(ring.schema());
            for mut of_ring in ring.chunks()? {
                let records = is_packed.then(|| packed::records(ring, &mut of_ring));
                chunks.push(Chunk {
                    part,
                    records: records.transpose()?.map(Arc::new),
                    of_ring: Arc::new(of_ring),
                });
            }
            parts.push(Part {
                places: self.places(ring),
                ring: Arc::clone(ring),
                strings: OnceLock::new(),
                functions: OnceLock::new(),
            });
        }
        chunks.sort_by_key(|chunk: &Chunk| chunk.of_ring.ts_min);
        Ok(Snapshot {
            table: self.name.clone(),
            columns: self.columns.clone(),
            parts,
            chunks,
            overwritten,
        })
    }

    /// Where the table's columns are in one of its rings.
    fn places(&self, ring: &Ring) -> Vec<ColumnSource> {
        let theirs = &ring.schema().columns;
        let is_packed = packed::is_packed(ring.schema());
        let place = |column: &Column| {
            let as_it_is = theirs
                .iter()
                .position(|other| is_same_name(&other.name, &column.name));
            match (as_it_is, packed::place(&column.name)) {
                (Some(place), _) => ColumnSource::Column(place),
                (None, Some(packed)) if is_packed => ColumnSource::Packed(packed),
                (None, _) => ColumnSource::Nowhere,
            }
        };
        self.columns.iter().map(place).collect()
    }
}

/// The rings in a folder, in the order of their making. A folder that is not there has none.
pub(crate) fn ring_paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        entries => Some(entries?),
    };
    let mut paths: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == RING_EXTENSION))
        .take(MAX_RINGS)
        .collect();
    paths.sort();
    Ok(paths)
}

fn tables(mut rings: Vec<Arc<Ring>>) -> Vec<Table> {
    rings.sort_by(|one, other| {
        let of = |ring: &Ring| {
            (
                ring.schema().table.clone(),
                ring.origin().made_monotonic_nanos,
            )
        };
        of(one).cmp(&of(other))
    });
    let groups = rings.chunk_by(|one, other| one.schema().table == other.schema().table);
    let table = |rings: &[Arc<Ring>]| Table {
        name: rings[0].schema().table.clone(),
        columns: merged(rings),
        rings: rings.to_vec(),
    };
    groups.map(table).collect()
}

/// The columns of all rings, each of a kind that holds the values of all.
fn merged(rings: &[Arc<Ring>]) -> Vec<Column> {
    let mut merged: Vec<Column> = Vec::new();
    for (index, ring) in rings.iter().enumerate() {
        let theirs = columns_of(ring);
        for ours in &mut merged {
            ours.nullable |= !theirs
                .iter()
                .any(|column| is_same_name(&column.name, &ours.name));
        }
        for column in &theirs {
            let column = Column {
                kind: crate::snapshot::shown(column.kind),
                nullable: column.nullable,
                ..column.clone()
            };
            match merged
                .iter_mut()
                .find(|ours| is_same_name(&ours.name, &column.name))
            {
                Some(ours) => {
                    ours.kind = ours.kind.widened(column.kind);
                    ours.nullable |= column.nullable;
                }
                None => merged.push(Column {
                    nullable: column.nullable || index > 0,
                    ..column
                }),
            }
        }
    }
    merged
}

/// As they are shown.
fn columns_of(ring: &Ring) -> Vec<Column> {
    if packed::is_packed(ring.schema()) {
        packed::columns()
    } else {
        ring.schema().columns.clone()
    }
}

fn is_same_name(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}
