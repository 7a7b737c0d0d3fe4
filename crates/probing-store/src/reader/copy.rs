//! Copies of rings in files, made while the process keeps recording.
//!
//! In the order of any reader: which chunks there are and how many rows each has, then the strings, among which are those that
//! these rows name, then the rows, then whether they still were those. A chunk that was used again meanwhile gets no head in
//! the copy, and so it is not there.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Instant;

use probing_proto::paths::FOLDER_MODE;
use probing_proto::tables::schema::Kind;

use crate::reader::{Ring, RingChunk};
use crate::ring::header::{
    COMMITTED, FIRST_ROW, GENERATION, Header, NEWEST, SLOTS_IN_USE, STRING_COUNT, TEXT_USED,
    TS_MAX, TS_MIN, WALL_OFFSET,
};
use crate::ring::layout::{HEADER_BYTES, Layout, Shape, values_bytes};
use crate::table::ring_paths;
use crate::values::bytes::Bytes;

const FILE_MODE: u32 = 0o600;

/// How much is copied at most. The newest rows come first.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub bytes: u64,
    /// What has not begun by then is left out.
    pub until: Instant,
}

/// What has been copied.
#[derive(Debug, Default)]
pub struct CopyReport {
    /// The tables, by name.
    pub tables: Vec<String>,
    /// What was left out, and why, in words.
    pub left_out: Vec<String>,
    pub bytes: u64,
}

/// Copies all rings of a folder into another one, which is made; what cannot be copied is left out and told.
pub fn copy(from: &Path, to: &Path, limits: Limits) -> io::Result<CopyReport> {
    DirBuilder::new().mode(FOLDER_MODE).create(to)?;
    let mut copies = CopyReport::default();
    let mut rings = Vec::new();
    for path in ring_paths(from)? {
        match Ring::open(&path) {
            Ok(ring) => rings.push(ring),
            Err(error) => copies.left_out.push(error.to_string()),
        }
    }
    // Small ones are whole, and what they do not need is for the others.
    rings.sort_by_key(Ring::bytes);
    let mut left = limits.bytes;
    for (done, ring) in rings.iter().enumerate() {
        let bytes = left / (rings.len() - done) as u64;
        let to = to.join(ring.path.file_name().unwrap_or_default());
        let table = &ring.schema.table;
        let limits = Limits { bytes, ..limits };
        match create(&to).and_then(|file| ring.copy(file, limits)) {
            Ok(of_ring) => {
                left = left.saturating_sub(of_ring.bytes);
                copies.bytes += of_ring.bytes;
                copies.tables.push(table.clone());
                let missing = of_ring.of_rows - of_ring.rows;
                if missing > 0 {
                    let all = of_ring.of_rows;
                    let words = format!("{table}: {missing} of {all} rows, which were too many");
                    copies.left_out.push(words);
                }
            }
            Err(error) => {
                fs::remove_file(&to).ok();
                copies.left_out.push(format!("{table}: {error}"));
            }
        }
    }
    copies.tables.sort();
    copies.tables.dedup();
    Ok(copies)
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)
}

/// What has been copied of one ring.
pub(super) struct Copied {
    pub(super) rows: u64,
    pub(super) of_rows: u64,
    bytes: u64,
}

/// A ring that is being copied to.
struct Copy {
    file: File,
    layout: Layout,
    bytes: u64,
}

impl Copy {
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.file.write_all_at(bytes, at)
    }
}

impl Ring {
    /// Copies rows into a file that is empty, as a ring of its own.
    pub(super) fn copy(&self, to: File, limits: Limits) -> io::Result<Copied> {
        let chunks = self.chunks().map_err(io::Error::other)?;
        // Later than the chunks: what their rows name is there.
        let (ends, heap) = self.heap().map_err(io::Error::other)?;
        let fixed = HEADER_BYTES + (ends.len() + heap.len()) as u64;
        let room = limits.bytes.checked_sub(fixed);
        let mut room = room.ok_or_else(|| io::Error::other("its names alone are too much"))?;
        let newest_first = chunks.iter().rev();
        let chosen: Vec<&RingChunk> = newest_first
            .take_while(|chunk| {
                let left = room.checked_sub(self.parts(chunk).map(|(_, bytes)| bytes).sum());
                room = left.unwrap_or(0);
                left.is_some()
            })
            .collect();
        let mut copy = self.begin_copy(to, (&ends, &heap), chosen.len())?;
        let (mut newest, mut rows) = (0, 0);
        for (slot, chunk) in chosen.into_iter().enumerate() {
            if Instant::now() >= limits.until {
                break;
            }
            if self.copy_chunk(chunk, &mut copy, slot as u32)? {
                newest = chunk.generation.max(newest);
                rows += u64::from(chunk.rows);
            }
        }
        copy.write(NEWEST, &newest.to_le_bytes())?;
        // A file system that is far away says only now that it is full.
        copy.file.sync_data()?;
        Ok(Copied {
            rows,
            of_rows: chunks.iter().map(|chunk| u64::from(chunk.rows)).sum(),
            bytes: copy.bytes,
        })
    }

    /// A file with everything but chunks, with room for so many of them.
    fn begin_copy(
        &self,
        to: File,
        (ends, heap): (&Bytes, &Bytes),
        slots: usize,
    ) -> io::Result<Copy> {
        let strings = ends.len() as u32 / 4;
        let shape = Shape {
            slots: slots.max(1) as u32,
            strings,
            heap_bytes: heap.len() as u32,
            ..self.layout.shape
        };
        let layout = Layout::new(&self.schema, shape);
        let mut copy = Copy {
            file: to,
            layout: layout.ok_or(io::ErrorKind::InvalidData)?,
            bytes: 0,
        };
        copy.file.set_len(copy.layout.bytes())?;
        let mut page = vec![0; HEADER_BYTES as usize];
        let mut put = |at: u64, bytes: &[u8]| {
            page[at as usize..][..bytes.len()].copy_from_slice(bytes);
        };
        let origin = self.origin;
        Header { origin, shape }.write(&mut put);
        put(SLOTS_IN_USE, &(slots as u32).to_le_bytes());
        put(STRING_COUNT, &strings.to_le_bytes());
        copy.write(0, &page)?;
        let schema = self.read(HEADER_BYTES, shape.schema_bytes as usize);
        let schema = schema.map_err(io::Error::other)?;
        let schema = schema.ok_or(io::ErrorKind::UnexpectedEof)?;
        copy.write(HEADER_BYTES, schema.as_slice())?;
        copy.write(copy.layout.ends, ends.as_slice())?;
        copy.write(copy.layout.heap, heap.as_slice())?;
        Ok(copy)
    }

    /// Whether the chunk was still there when its rows had been copied.
    fn copy_chunk(&self, chunk: &RingChunk, copy: &mut Copy, slot: u32) -> io::Result<bool> {
        let (from, to) = (self.layout.chunk(chunk.slot), copy.layout.chunk(slot));
        for (at, bytes) in self.parts(chunk) {
            let part = self.read(from + at, bytes as usize);
            let Some(part) = part.map_err(io::Error::other)? else {
                return Ok(false);
            };
            copy.write(to + at, part.as_slice())?;
        }
        if !self.still_holds(chunk).map_err(io::Error::other)? {
            return Ok(false);
        }
        copy.write(copy.layout.head(slot), &self.head(chunk))?;
        Ok(true)
    }

    /// Where the rows of a chunk are in it, and how many bytes each part has.
    fn parts(&self, chunk: &RingChunk) -> impl Iterator<Item = (u64, u64)> {
        let rows = chunk.rows;
        let slabs = self.layout.slabs.iter().flat_map(move |slab| {
            let validity = slab.validity.map(|at| (at, values_bytes(Kind::Bool, rows)));
            let values = (slab.values, values_bytes(slab.kind, rows));
            validity.into_iter().chain([values])
        });
        slabs.chain([(self.layout.text, u64::from(chunk.text_used))])
    }

    /// What the chunk says of itself, and no more rows than were copied.
    fn head(&self, chunk: &RingChunk) -> Vec<u8> {
        if let Some(head) = &chunk.sealed {
            return head.as_slice().to_vec();
        }
        let mut head = vec![0; self.layout.head_bytes as usize];
        let mut put = |at: u64, bytes: &[u8]| {
            head[at as usize..][..bytes.len()].copy_from_slice(bytes);
        };
        put(GENERATION, &chunk.generation.to_le_bytes());
        put(COMMITTED, &chunk.rows.to_le_bytes());
        put(TS_MIN, &chunk.ts_min.to_le_bytes());
        put(TS_MAX, &chunk.ts_max.to_le_bytes());
        put(WALL_OFFSET, &chunk.wall_offset.to_le_bytes());
        put(FIRST_ROW, &chunk.first_row.to_le_bytes());
        put(TEXT_USED, &chunk.text_used.to_le_bytes());
        head
    }
}
