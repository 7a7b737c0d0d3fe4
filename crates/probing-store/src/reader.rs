//! The reader of one ring from outside.
//!
//! Nothing in it is believed before it is checked; nothing in it can make us fail.
//!
//! The order of reads matters: which chunk is the newest first, then (behind an acquire fence) the chunks' heads, then
//! (behind another) which of them are gone. Later a chunk's rows, and (behind another) its generation again: if that is still
//! the same even number, the rows are those that were committed.

mod copy;
mod pin;

use std::cell::LazyCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use probing_proto::tables::schema::{Kind, Schema};
use rustix::fs::OFlags;

use crate::error::{OpenError, ReadError};
use crate::ring::header::{
    COMMITTED, FIRST_ROW, GENERATION, GONE, Header, NEWEST, NotAHeader, Origin, SEALED,
    SLOTS_IN_USE, STRING_COUNT, TEXT_USED, TS_MAX, TS_MIN, WALL_OFFSET, u32_at, u64_at,
};
use crate::ring::layout::{HEADER_BYTES, Layout, values_bytes};
use crate::ring::zones::{self, Tally, Zone};
use crate::snapshot::{ColumnData, Strings};
use crate::values::bytes::Bytes;
use crate::values::text::{self, IN_CHUNK, IN_HEAP, TextLocation};

pub use self::copy::{CopyReport, Limits, copy};

/// Heads of chunks that are read at once: not all that a file may claim to have.
const HEADS_AT_ONCE: u32 = 256;
/// How often the heads of a ring are read until the writer was slower.
const MAX_LOOKS: u32 = 16;
const NOT_STRINGS: &str = "its strings are not strings";

/// One file of recorded rows.
#[derive(Debug)]
pub struct Ring {
    file: File,
    path: PathBuf,
    origin: Origin,
    schema: Schema,
    layout: Layout,
}

/// A chunk as its header describes it.
#[derive(Debug, Clone)]
pub(crate) struct RingChunk {
    slot: u32,
    generation: u64,
    pub(crate) rows: u32,
    pub(crate) ts_min: i64,
    pub(crate) ts_max: i64,
    pub(crate) wall_offset: i64,
    pub(crate) first_row: u64,
    text_used: u32,
    /// Its head, once it is full: what it says of its columns is read when somebody asks.
    sealed: Option<Head>,
}

impl Ring {
    /// Opens a ring and reads what it says of itself.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let unopenable = |source| OpenError::Unopenable {
            path: path.clone(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            // A pipe in the place of a file must not make us wait.
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32)
            .open(&path)
            .map_err(unopenable)?;
        if !file.metadata().map_err(unopenable)?.is_file() {
            return Err(OpenError::NotAFile { path });
        }
        Self::from_file(file, path)
    }

    /// The ring in a file that is open; `path` is what errors call it.
    fn from_file(file: File, path: PathBuf) -> Result<Self, OpenError> {
        let unopenable = |source| OpenError::Unopenable {
            path: path.clone(),
            source,
        };
        let page = Bytes::read(&file, 0, HEADER_BYTES as usize).map_err(unopenable)?;
        let Some(page) = page
            .as_ref()
            .and_then(|page| page.as_slice().try_into().ok())
        else {
            return Err(OpenError::NotARing { path });
        };
        let header = match Header::read(page) {
            Ok(header) => header,
            Err(NotAHeader::Magic) => return Err(OpenError::NotARing { path }),
            Err(NotAHeader::Version(version)) => return Err(OpenError::Foreign { path, version }),
            Err(NotAHeader::Numbers) => return Err(OpenError::BadHeader { path }),
        };
        let schema_bytes = header.shape.schema_bytes as usize;
        let text = Bytes::read(&file, HEADER_BYTES, schema_bytes).map_err(unopenable)?;
        let parsed = text.and_then(|text| serde_json::from_slice::<Schema>(text.as_slice()).ok());
        let Some(schema) = parsed else {
            return Err(OpenError::BadHeader { path });
        };
        if let Err(source) = schema.check() {
            return Err(OpenError::BadSchema { path, source });
        }
        let Some(layout) = Layout::new(&schema, header.shape) else {
            return Err(OpenError::BadHeader { path });
        };
        Ok(Self {
            file,
            path,
            origin: header.origin,
            schema,
            layout,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Who writes it.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        self.file
            .metadata()
            .map_or(0, |metadata| metadata.blocks() * 512)
    }

    /// The chunks that have rows, oldest first; as they were at one moment: none that was begun later. A writer that has
    /// used all of them again meanwhile is looked at again.
    pub(crate) fn chunks(&self) -> Result<Vec<RingChunk>, ReadError> {
        for _ in 1..MAX_LOOKS {
            let chunks = self.chunks_now()?;
            if !chunks.is_empty() || self.generation(NEWEST)? == 0 {
                return Ok(chunks);
            }
        }
        self.chunks_now()
    }

    fn chunks_now(&self) -> Result<Vec<RingChunk>, ReadError> {
        let newest = self.generation(NEWEST)?;
        // Loads before: which chunk is the newest. After: all that was stored in those before it.
        fence(Ordering::Acquire);
        let in_use = self.word(SLOTS_IN_USE)?.min(self.layout.shape.slots);
        // The file may end before, whatever it says of itself.
        let room = self.len()?.saturating_sub(self.layout.chunks);
        let there = room.div_ceil(self.layout.chunk_bytes);
        let in_use = u32::try_from(there).map_or(in_use, |there| there.min(in_use));
        let mut chunks = Vec::new();
        for first in (0..in_use).step_by(HEADS_AT_ONCE as usize) {
            let count = HEADS_AT_ONCE.min(in_use - first);
            let bytes = self.layout.head_bytes * u64::from(count);
            let Some(heads) = self.read(self.layout.head(first), bytes as usize)? else {
                break;
            };
            let heads = Arc::new(heads);
            for slot in 0..count {
                let each = self.layout.head_bytes as usize;
                let begin = each * slot as usize;
                let head = Head {
                    bytes: Arc::clone(&heads),
                    range: begin..begin + each,
                };
                chunks.extend(self.chunk(first + slot, head, newest)?);
            }
        }
        // Loads before: what chunks say of themselves. After: which of them were used again meanwhile.
        fence(Ordering::Acquire);
        let gone = self.generation(GONE)?;
        chunks.retain(|chunk| chunk.generation > gone);
        chunks.sort_by_key(|chunk| chunk.generation);
        Ok(chunks)
    }

    /// A chunk by its head, unless it is empty, just being used again, or newer than the newest.
    fn chunk(&self, slot: u32, head: Head, newest: u64) -> Result<Option<RingChunk>, ReadError> {
        let generation = u64_at(head.as_slice(), GENERATION);
        if generation == 0 || generation % 2 == 1 || generation > newest {
            return Ok(None);
        }
        let rows = u32_at(head.as_slice(), COMMITTED);
        let is_sealed = u32_at(head.as_slice(), SEALED) == 1;
        let chunk = if generation < newest {
            self.described(slot, head, is_sealed)
        } else {
            // It gets rows meanwhile, or is just being sealed. Loads before: how many there are, and whether more may come.
            // After: what the writer had stored by then.
            fence(Ordering::Acquire);
            let later = self.read(self.layout.head(slot), self.layout.head_bytes as usize)?;
            let Some(later) = later else {
                return Ok(None);
            };
            let later = Head {
                range: 0..later.len(),
                bytes: Arc::new(later),
            };
            let chunk = self.described(slot, later, is_sealed);
            if chunk.generation != generation || chunk.rows < rows {
                return Ok(None);
            }
            RingChunk {
                rows: if is_sealed { chunk.rows } else { rows },
                ..chunk
            }
        };
        let is_sane = (1..=self.layout.shape.rows).contains(&chunk.rows);
        Ok(is_sane.then_some(chunk))
    }

    fn described(&self, slot: u32, head: Head, is_sealed: bool) -> RingChunk {
        let word = |at| u64_at(head.as_slice(), at);
        let half = |at| u32_at(head.as_slice(), at);
        RingChunk {
            slot,
            generation: word(GENERATION),
            rows: half(COMMITTED),
            ts_min: word(TS_MIN) as i64,
            ts_max: word(TS_MAX) as i64,
            wall_offset: word(WALL_OFFSET) as i64,
            first_row: word(FIRST_ROW),
            text_used: half(TEXT_USED).min(self.layout.shape.text_bytes),
            sealed: is_sealed.then_some(head),
        }
    }

    /// The bounds of a column's values in a chunk, if they are known.
    pub(crate) fn zone(&self, chunk: &RingChunk, column: usize) -> Option<Zone> {
        if column == 0 {
            return chunk.time();
        }
        let kind = self.schema.columns.get(column)?.kind;
        Zone::from_words(kind, chunk.sealed.as_ref()?.words(Layout::zone(column)))
    }

    /// Copies a column of a chunk. To be believed only if [`Ring::still_holds`] afterwards; damage, too.
    pub(crate) fn column(
        &self,
        chunk: &RingChunk,
        column: usize,
        strings: &dyn Fn() -> Result<Arc<Strings>, ReadError>,
    ) -> Result<Option<ColumnData>, ReadError> {
        let Some(slab) = self.layout.slabs.get(column) else {
            return Err(ReadError::NoColumn {
                table: self.schema.table.clone(),
                column,
            });
        };
        let at = self.layout.chunk(chunk.slot);
        let copy = |offset, kind| self.read(at + offset, values_bytes(kind, chunk.rows) as usize);
        let Some(mut values) = copy(slab.values, slab.kind)? else {
            return Ok(None);
        };
        // Mostly there is a value in every row. A chunk that is full knows, and then nobody need look for empty ones.
        let validity = match slab.validity.filter(|_| !chunk.is_whole(column)) {
            None => None,
            Some(offset) => match copy(offset, Kind::Bool)? {
                None => return Ok(None),
                Some(bits) => {
                    let is_whole = zones::count(bits.as_slice(), chunk.rows) == chunk.rows;
                    (!is_whole).then_some(bits)
                }
            },
        };
        let mut texts = None;
        match slab.kind {
            Kind::Time => later(&mut values, chunk.wall_offset),
            Kind::Symbol => {
                let strings = strings()?;
                values = strings
                    .views_of(&values, validity.as_ref())
                    .ok_or_else(|| self.damaged("a symbol that has no name"))?;
                texts = Some([Arc::default(), Arc::clone(strings.heap())]);
            }
            Kind::Text => {
                let Some(text) = self.read(at + self.layout.text, chunk.text_used as usize)? else {
                    return Ok(None);
                };
                let strings = strings()?;
                checked_views(&mut values, validity.as_ref(), &text, &strings)
                    .ok_or_else(|| self.damaged("a text that is nowhere"))?;
                texts = Some([Arc::new(text), Arc::clone(strings.heap())]);
            }
            _ => {}
        }
        Ok(Some(ColumnData {
            kind: slab.kind,
            rows: chunk.rows as usize,
            validity,
            values,
            texts,
        }))
    }

    /// The values of a column that has one in every row, as they are in the file.
    pub(crate) fn raw(&self, chunk: &RingChunk, column: usize) -> Result<Option<Bytes>, ReadError> {
        let Some(slab) = self.layout.slabs.get(column) else {
            return Ok(None);
        };
        let at = self.layout.chunk(chunk.slot) + slab.values;
        self.read(at, values_bytes(slab.kind, chunk.rows) as usize)
    }

    /// Whether a chunk is still what it was when it was described.
    pub(crate) fn still_holds(&self, chunk: &RingChunk) -> Result<bool, ReadError> {
        // Loads before: what was copied. After: the generation.
        fence(Ordering::Acquire);
        let header = self.read(self.layout.head(chunk.slot), 8)?;
        Ok(header.is_some_and(|header| u64_at(header.as_slice(), GENERATION) == chunk.generation))
    }

    /// All strings so far. Those that committed rows name are among them.
    pub(crate) fn strings(&self) -> Result<Strings, ReadError> {
        let (ends, heap) = self.heap()?;
        Strings::new(heap, &ends).ok_or_else(|| self.damaged(NOT_STRINGS))
    }

    /// Where each string ends, and the bytes of all.
    fn heap(&self) -> Result<(Bytes, Bytes), ReadError> {
        let count = self.word(STRING_COUNT)?.min(self.layout.shape.strings);
        fence(Ordering::Acquire);
        let damaged = || self.damaged(NOT_STRINGS);
        let ends = self
            .read(self.layout.ends, 4 * count as usize)?
            .ok_or_else(damaged)?;
        let last = u32_at(ends.as_slice(), 4 * u64::from(count.saturating_sub(1)));
        if last > self.layout.shape.heap_bytes {
            return Err(damaged());
        }
        let heap = self
            .read(self.layout.heap, last as usize)?
            .ok_or_else(damaged)?;
        Ok((ends, heap))
    }

    fn word(&self, offset: u64) -> Result<u32, ReadError> {
        let word = self.read(offset, 4)?;
        Ok(word.map_or(0, |word| u32_at(word.as_slice(), 0)))
    }

    /// One of the ring's own; 0: none yet.
    fn generation(&self, offset: u64) -> Result<u64, ReadError> {
        let word = self.read(offset, 8)?;
        Ok(word.map_or(0, |word| u64_at(word.as_slice(), 0)))
    }

    fn len(&self) -> Result<u64, ReadError> {
        let metadata = self.file.metadata();
        metadata
            .map(|metadata| metadata.len())
            .map_err(|source| self.failed(source))
    }

    fn read(&self, offset: u64, len: usize) -> Result<Option<Bytes>, ReadError> {
        Bytes::read(&self.file, offset, len).map_err(|source| self.failed(source))
    }

    pub(crate) fn failed(&self, source: io::Error) -> ReadError {
        ReadError::Io {
            table: self.schema.table.clone(),
            source,
        }
    }

    pub(crate) fn damaged(&self, what: &'static str) -> ReadError {
        ReadError::Damaged {
            table: self.schema.table.clone(),
            what,
        }
    }
}

impl RingChunk {
    /// The bounds of the time, if they are known.
    pub(crate) fn time(&self) -> Option<Zone> {
        let (min, max) = (self.ts_min, self.ts_max);
        (min <= max).then(|| Zone::Int { min, max }.shifted(self.wall_offset))
    }

    /// Whether it is known that a column has a value in every row.
    fn is_whole(&self, column: usize) -> bool {
        self.tally(column)
            .is_some_and(|tally| tally.values == self.rows)
    }

    /// What else is known of a column.
    pub(crate) fn tally(&self, column: usize) -> Option<Tally> {
        let words = self.sealed.as_ref()?.words(Layout::zone(column) + 16);
        Some(Tally::from_words(words, self.rows))
    }
}

/// What a chunk says of itself, among what others say.
#[derive(Debug, Clone)]
struct Head {
    bytes: Arc<Bytes>,
    range: Range<usize>,
}

impl Head {
    fn as_slice(&self) -> &[u8] {
        let all = self.bytes.as_slice();
        all.get(self.range.clone()).unwrap_or_default()
    }

    fn words(&self, at: u64) -> [u64; 2] {
        [at, at + 8].map(|at| u64_at(self.as_slice(), at))
    }
}

/// Makes times of the monotonic clock times since 1970.
fn later(values: &mut Bytes, offset: i64) {
    for value in values.as_mut_slice().as_chunks_mut().0 {
        *value = i64::from_le_bytes(*value)
            .wrapping_add(offset)
            .to_le_bytes();
    }
}

/// Checks that views point to text, and makes them such as Arrow wants them: empty where there is no value, zero after a
/// short text, with the beginning of a long one.
fn checked_views(
    views: &mut Bytes,
    validity: Option<&Bytes>,
    text: &Bytes,
    strings: &Strings,
) -> Option<()> {
    let in_chunk = LazyCell::new(|| std::str::from_utf8(text.as_slice()).ok());
    let in_heap = LazyCell::new(|| std::str::from_utf8(strings.heap().as_slice()).ok());
    for (row, slot) in views
        .as_mut_slice()
        .as_chunks_mut::<16>()
        .0
        .iter_mut()
        .enumerate()
    {
        if !is_valid(validity, row) {
            *slot = [0; 16];
            continue;
        }
        let found = u128::from_le_bytes(*slot);
        if strings.is_known(found) {
            continue;
        }
        let view = match text::whereabouts(found) {
            TextLocation::Inline { length } => {
                let view = text::without_rest(found, length);
                // Most texts are of plain letters, and a look at all bytes at once tells.
                if !text::is_ascii(view) {
                    std::str::from_utf8(&slot[4..4 + length]).ok()?;
                }
                view
            }
            TextLocation::Buffer {
                buffer,
                offset,
                length,
            } => {
                let from = match buffer {
                    IN_CHUNK => (*in_chunk)?,
                    IN_HEAP => (*in_heap)?,
                    _ => return None,
                };
                let found = from.get(offset..offset.checked_add(length)?)?;
                text::pointing(length, found.as_bytes(), buffer, offset as u32)
            }
        };
        *slot = view.to_le_bytes();
    }
    Some(())
}

pub(crate) fn is_valid(validity: Option<&Bytes>, row: usize) -> bool {
    validity.is_none_or(|bits| {
        bits.as_slice()
            .get(row / 8)
            .is_some_and(|byte| byte >> (row % 8) & 1 == 1)
    })
}
