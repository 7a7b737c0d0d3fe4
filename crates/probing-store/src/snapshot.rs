//! A table at one moment: its chunks, and their columns as buffers that Arrow can take over.

use std::sync::{Arc, OnceLock};

use probing_proto::tables::schema::{Column, Kind};

use crate::error::ReadError;
use crate::reader::{Ring, RingChunk, is_valid};
use crate::ring::header::u32_at;
use crate::ring::packed::{self, Functions, Packed, PackedRows, Records};
use crate::ring::zones::{Tally, Zone};
use crate::values::bytes::Bytes;
use crate::values::text;
use crate::values::widen;

/// A table at one moment. Rows that come later are not in it. The oldest may go meanwhile: [`Snapshot::read`] then says so.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) table: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) parts: Vec<Part>,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) overwritten: u64,
}

/// One ring of a table, and where the table's columns are in it.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) ring: Arc<Ring>,
    pub(crate) places: Vec<ColumnSource>,
    pub(crate) strings: OnceLock<Arc<Strings>>,
    pub(crate) functions: OnceLock<Arc<Functions>>,
}

/// What a table's column comes from in one of its rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnSource {
    /// The ring has no such column.
    Nowhere,
    Column(usize),
    /// It is put together from what a tracer wrote.
    Packed(Packed),
}

/// Up to some thousand rows that were recorded one after the other.
#[derive(Debug, Clone)]
pub struct Chunk {
    pub(crate) part: usize,
    pub(crate) of_ring: Arc<RingChunk>,
    /// Of a ring of tracers: what its rows are made of.
    pub(crate) records: Option<Arc<Records>>,
}

/// Which chunk of a snapshot this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkId {
    part: usize,
    first_row: u64,
}

impl Chunk {
    pub fn id(&self) -> ChunkId {
        ChunkId {
            part: self.part,
            first_row: self.of_ring.first_row,
        }
    }

    pub fn rows(&self) -> usize {
        let records = self.records.as_ref();
        records.map_or(self.of_ring.rows as usize, |records| records.rows)
    }

    /// The number of its first row among all rows of its ring, those that are gone among them; of a ring of tracers that of
    /// its first record.
    pub fn first_row(&self) -> u64 {
        self.of_ring.first_row
    }
}

/// One column of a chunk, laid out as an Arrow array is.
#[derive(Debug, Clone)]
pub struct ColumnData {
    /// Symbols come as text; times since 1970.
    pub kind: Kind,
    pub rows: usize,
    /// A bit per row: 1 where there is a value. None: there is one everywhere.
    pub validity: Option<Bytes>,
    /// Bools as bits, text as 16-byte views, the others as they are (little-endian).
    pub values: Bytes,
    /// What the views of text point into: buffers 0 and 1. All of it is UTF-8, and every view is checked.
    pub texts: Option<[Arc<Bytes>; 2]>,
}

impl ColumnData {
    /// The text of a row; `None` where there is none, or this is not text.
    pub fn text(&self, row: usize) -> Option<&str> {
        let view = self.values.as_slice().as_chunks::<16>().0.get(row)?;
        let texts = self.texts.as_ref()?;
        if !self.is_valid(row) {
            return None;
        }
        let bytes = match text::whereabouts(u128::from_le_bytes(*view)) {
            text::TextLocation::Inline { length } => &view[4..4 + length],
            text::TextLocation::Buffer {
                buffer,
                offset,
                length,
            } => texts
                .get(buffer as usize)?
                .as_slice()
                .get(offset..offset.checked_add(length)?)?,
        };
        std::str::from_utf8(bytes).ok()
    }

    /// Whether a row has a value.
    pub fn is_valid(&self, row: usize) -> bool {
        row < self.rows && is_valid(self.validity.as_ref(), row)
    }

    pub(crate) fn nothing(kind: Kind, rows: usize) -> Self {
        let bytes = crate::ring::layout::values_bytes(kind, rows as u32) as usize;
        let is_text = kind == Kind::Text;
        Self {
            kind,
            rows,
            validity: Some(Bytes::zeroed(rows.div_ceil(8))),
            values: Bytes::zeroed(bytes),
            texts: is_text.then(|| [Arc::default(), Arc::default()]),
        }
    }
}

impl Snapshot {
    /// `user.train`
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Its columns, those of all its rings together. The first is the time.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Oldest first.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    pub fn rows(&self) -> usize {
        self.chunks.iter().map(Chunk::rows).sum()
    }

    /// Rows that the writer overwrote while the snapshot was taken; none of them is among [`Snapshot::rows`].
    pub fn overwritten(&self) -> u64 {
        self.overwritten
    }

    /// When the last row was recorded, since 1970; `None` without rows.
    pub fn last_row_nanos(&self) -> Option<i64> {
        let last = |chunk: &Chunk| match chunk.of_ring.time()? {
            Zone::Int { max, .. } => Some(max),
            Zone::Float { .. } | Zone::Empty => None,
        };
        self.chunks.iter().filter_map(last).max()
    }

    /// Bounds of a column's values in a chunk; `None`: unknown. Those of the time are always known.
    pub fn zone(&self, chunk: &Chunk, column: usize) -> Option<Zone> {
        let wanted = self.columns.get(column)?.kind;
        let part = self.parts.get(chunk.part)?;
        let place = match *part.places.get(column)? {
            ColumnSource::Nowhere => return Some(Zone::Empty),
            ColumnSource::Packed(_) => return None,
            ColumnSource::Column(place) => place,
        };
        let zone = part.ring.zone(&chunk.of_ring, place)?;
        let kind = part.ring.schema().columns.get(place)?.kind;
        widen::zone(zone, kind, wanted)
    }

    /// What else is known of a column in a chunk; `None`: nothing, the chunk may get more rows. The sum is that of the values
    /// as they were recorded, which may be of a narrower kind than the column is now.
    pub fn tally(&self, chunk: &Chunk, column: usize) -> Option<Tally> {
        let part = self.parts.get(chunk.part)?;
        match *part.places.get(column)? {
            ColumnSource::Nowhere => Some(Tally::NOTHING),
            // A record may be two rows: what is known of all records is not what is known of all rows. Each has a time.
            ColumnSource::Column(0) if chunk.records.is_some() => {
                let tally = chunk.of_ring.tally(0)?;
                let values = chunk.rows() as u32;
                Some(Tally { values, ..tally })
            }
            ColumnSource::Column(_) if chunk.records.is_some() => None,
            ColumnSource::Packed(_) => None,
            ColumnSource::Column(place) => chunk.of_ring.tally(place),
        }
    }

    /// Copies columns of a chunk, by their numbers in [`Snapshot::columns`]. `None`: the chunk has been used again since the
    /// snapshot, its rows are gone.
    pub fn read(
        &self,
        chunk: &Chunk,
        columns: &[usize],
    ) -> Result<Option<Vec<ColumnData>>, ReadError> {
        let no_column = |column| ReadError::NoColumn {
            table: self.table.clone(),
            column,
        };
        let part = self
            .parts
            .get(chunk.part)
            .ok_or_else(|| no_column(chunk.part))?;
        let ring_chunk = (&*part.ring, &*chunk.of_ring);
        let rows = match &chunk.records {
            None => None,
            Some(records) => match packed::rows(ring_chunk.0, ring_chunk.1, records) {
                Ok(Some(rows)) => Some(rows),
                Err(error) if part.ring.still_holds(&chunk.of_ring)? => return Err(error),
                Ok(None) | Err(_) => return Ok(None),
            },
        };
        let mut copied = Vec::with_capacity(columns.len());
        for &column in columns {
            let wanted = self
                .columns
                .get(column)
                .ok_or_else(|| no_column(column))?
                .kind;
            let data = match part.places[column] {
                ColumnSource::Nowhere => Ok(Some(ColumnData::nothing(shown(wanted), chunk.rows()))),
                ColumnSource::Column(place) if rows.is_none() => {
                    part.ring.column(&chunk.of_ring, place, &|| part.strings())
                }
                ColumnSource::Column(place) => {
                    part.put_together(ring_chunk, rows.as_ref(), packed::as_it_is(place))
                }
                ColumnSource::Packed(packed) => {
                    part.put_together(ring_chunk, rows.as_ref(), packed)
                }
            };
            match data {
                Ok(Some(data)) => copied.push(widen::column(data, shown(wanted))),
                // Damage, if the chunk is still the same.
                Err(error) if part.ring.still_holds(&chunk.of_ring)? => return Err(error),
                Ok(None) | Err(_) => return Ok(None),
            }
        }
        Ok(part.ring.still_holds(&chunk.of_ring)?.then_some(copied))
    }
}

/// Symbols are shown as text.
pub(crate) fn shown(kind: Kind) -> Kind {
    if kind == Kind::Symbol {
        Kind::Text
    } else {
        kind
    }
}

impl Part {
    /// A column of a chunk of tracers.
    fn put_together(
        &self,
        (ring, chunk): (&Ring, &RingChunk),
        rows: Option<&PackedRows>,
        column: Packed,
    ) -> Result<Option<ColumnData>, ReadError> {
        let Some(rows) = rows else {
            return Ok(None);
        };
        packed::column((ring, chunk, rows), column, &|| self.strings(), &|| {
            self.functions()
        })
    }

    fn strings(&self) -> Result<Arc<Strings>, ReadError> {
        if let Some(strings) = self.strings.get() {
            return Ok(Arc::clone(strings));
        }
        let strings = Arc::new(self.ring.strings()?);
        Ok(Arc::clone(self.strings.get_or_init(|| strings)))
    }

    fn functions(&self) -> Result<Arc<Functions>, ReadError> {
        if let Some(functions) = self.functions.get() {
            return Ok(Arc::clone(functions));
        }
        let functions = Arc::new(Functions::of(&*self.strings()?));
        Ok(Arc::clone(self.functions.get_or_init(|| functions)))
    }
}

/// Where a view is noted among so many.
fn slot(view: u128, places: usize) -> usize {
    let mixed = ((view >> 96) as u32).wrapping_mul(0x9E37_79B1);
    (mixed >> 16) as usize & places.saturating_sub(1)
}

/// The strings of a ring, kept once each.
#[derive(Debug, Default)]
pub struct Strings {
    heap: Arc<Bytes>,
    /// Where each ends in it.
    ends: Vec<u32>,
    /// By number, as they stand in an Arrow array whose buffer 1 is the heap.
    views: Vec<u128>,
    /// The same by where they begin, as far as they do not meet there. Its size is a power of two.
    known: Vec<u128>,
}

/// Of more strings than these it is not noted which views are theirs.
const MAX_KNOWN: usize = 1 << 16;

impl Strings {
    /// `None` when the parts do not make strings.
    pub(crate) fn new(heap: Bytes, ends: &Bytes) -> Option<Self> {
        let text = std::str::from_utf8(heap.as_slice()).ok()?;
        let mut begin = 0;
        let mut views = Vec::with_capacity(ends.len() / 4);
        let mut ended = Vec::with_capacity(ends.len() / 4);
        for index in 0..ends.len() as u64 / 4 {
            let end = u32_at(ends.as_slice(), 4 * index) as usize;
            let string = text.get(begin..end)?.as_bytes();
            views.push(text::view(string, begin as u32));
            ended.push(end as u32);
            begin = end;
        }
        let mut known = vec![0; (2 * views.len()).min(MAX_KNOWN).next_power_of_two()];
        for view in &views {
            let slot = slot(*view, known.len());
            known[slot] = *view;
        }
        Some(Self {
            heap: Arc::new(heap),
            ends: ended,
            views,
            known,
        })
    }

    /// Each with where it begins in the heap.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &str)> {
        let heap = std::str::from_utf8(self.heap.as_slice()).unwrap_or_default();
        let ends = self.ends.iter().map(|end| *end as usize);
        let begins = std::iter::once(0).chain(ends.clone());
        begins
            .zip(ends)
            .map(move |(begin, end)| (begin, heap.get(begin..end).unwrap_or_default()))
    }

    /// Whether a view is one of a string here. It may be even when it is not known.
    pub(crate) fn is_known(&self, view: u128) -> bool {
        // 0 is the empty text, which has no place in the heap.
        self.known.get(slot(view, self.known.len())) == Some(&view) && view != 0
    }

    pub(crate) fn heap(&self) -> &Arc<Bytes> {
        &self.heap
    }

    /// Views for a column of numbers; `None` when one has no string.
    pub(crate) fn views_of(&self, ids: &Bytes, validity: Option<&Bytes>) -> Option<Bytes> {
        let ids = ids.as_slice().as_chunks::<4>().0;
        let mut views = Bytes::zeroed(16 * ids.len());
        let slots = views.as_mut_slice().as_chunks_mut::<16>().0.iter_mut();
        for (row, (id, slot)) in ids.iter().zip(slots).enumerate() {
            if is_valid(validity, row) {
                let view = self.views.get(u32::from_le_bytes(*id) as usize)?;
                *slot = view.to_le_bytes();
            }
        }
        Some(views)
    }
}
