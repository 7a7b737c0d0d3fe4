//! Offsets in a ring, which follow from its schema and six numbers of its header.
//!
//! Everything follows from the schema and six numbers of the header, so that there is no offset in a file that a
//! reader would have to believe.
//!
//! ```text
//! header, schema │ end of each string │ bytes of strings │ head of chunk 0 │ of chunk 1 │ … │ chunk 0 │ chunk 1 │ …
//!
//! head: 64 bytes │ bounds and sum of each column
//! chunk: per column: validity bits, values │ text
//! ```
//!
//! Heads are together: who reads them all, as every query does, reads them at once.

use probing_proto::tables::schema::{Kind, Schema};

/// Rows of a chunk where there is room. Smaller chunks have a power of two of them, too, and no fewer than 64.
pub const CHUNK_ROWS: u32 = 4096;
pub const MIN_CHUNK_ROWS: u32 = 64;

/// What a reader accepts; a writer stays far below.
const MAX_CHUNK_ROWS: u32 = 1 << 16;
const MAX_SLOTS: u32 = 1 << 20;
const MAX_SCHEMA: u32 = 1 << 18;
const MAX_STRINGS: u32 = 1 << 20;
const MAX_HEAP: u32 = 1 << 28;
const MAX_TEXT: u32 = 1 << 28;

pub(crate) const PAGE: u64 = 4096;
/// The fixed part of the header: one page.
pub(crate) const HEADER_BYTES: u64 = PAGE;
const HEAD_BYTES: u64 = 64;
/// Least and greatest value, sum, and how many there are.
pub(crate) const ZONE_BYTES: u64 = 32;
/// Slabs begin where a cache line does.
const LINE: u64 = 64;

/// The six numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the schema as it stands in the file.
    pub schema_bytes: u32,
    /// Rows of one chunk.
    pub rows: u32,
    /// Chunks at most.
    pub slots: u32,
    /// Strings at most.
    pub strings: u32,
    /// Bytes of all strings at most.
    pub heap_bytes: u32,
    /// Bytes of text in one chunk.
    pub text_bytes: u32,
}

impl Shape {
    /// Whether the numbers are ones that a writer may have written.
    pub fn is_sane(&self) -> bool {
        (MIN_CHUNK_ROWS..=MAX_CHUNK_ROWS).contains(&self.rows)
            && self.rows.is_power_of_two()
            && (1..=MAX_SLOTS).contains(&self.slots)
            && self.schema_bytes <= MAX_SCHEMA
            && self.strings <= MAX_STRINGS
            && self.heap_bytes <= MAX_HEAP
            && self.text_bytes <= MAX_TEXT
    }
}

/// Where things are in one ring; offsets from its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub shape: Shape,
    pub(crate) ends: u64,
    pub(crate) heap: u64,
    pub(crate) heads: u64,
    pub(crate) head_bytes: u64,
    pub(crate) chunks: u64,
    pub(crate) chunk_bytes: u64,
    pub(crate) slabs: Vec<Slab>,
    /// From the beginning of a chunk.
    pub(crate) text: u64,
}

/// Where a column is in a chunk; offsets from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slab {
    pub(crate) kind: Kind,
    pub(crate) validity: Option<u64>,
    pub(crate) values: u64,
}

impl Layout {
    /// `None` for numbers that cannot be.
    pub fn new(schema: &Schema, shape: Shape) -> Option<Self> {
        if !shape.is_sane() || schema.columns.is_empty() {
            return None;
        }
        // With the limits above nothing here comes near the end of a u64.
        let ends = up(HEADER_BYTES + u64::from(shape.schema_bytes), PAGE);
        let heap = ends + up(4 * u64::from(shape.strings), PAGE);
        let heads = heap + up(u64::from(shape.heap_bytes), PAGE);
        let head_bytes = up(Self::zone(schema.columns.len()), LINE);
        let chunks = heads + up(head_bytes * u64::from(shape.slots), PAGE);
        let mut at = 0;
        let mut take = |bytes: u64| {
            let begin = at;
            at = up(at + bytes, LINE);
            begin
        };
        let slabs = schema
            .columns
            .iter()
            .map(|column| Slab {
                kind: column.kind,
                validity: column
                    .nullable
                    .then(|| take(values_bytes(Kind::Bool, shape.rows))),
                values: take(values_bytes(column.kind, shape.rows)),
            })
            .collect();
        let text = take(u64::from(shape.text_bytes));
        Some(Self {
            shape,
            ends,
            heap,
            heads,
            head_bytes,
            chunks,
            chunk_bytes: up(at, PAGE),
            slabs,
            text,
        })
    }

    pub(crate) fn chunk(&self, slot: u32) -> u64 {
        self.chunks + self.chunk_bytes * u64::from(slot)
    }

    pub(crate) fn head(&self, slot: u32) -> u64 {
        self.heads + self.head_bytes * u64::from(slot)
    }

    /// Whole pages that the heads of so many chunks take.
    pub(crate) fn heads_of(&self, chunks: u32) -> u64 {
        up(self.head_bytes * u64::from(chunks), PAGE)
    }

    /// The whole, with all its chunks.
    pub(crate) fn bytes(&self) -> u64 {
        self.chunk(self.shape.slots)
    }

    /// Where the least and the greatest value of a column, and what else is known of it, are kept, from the beginning of a
    /// head.
    pub(crate) fn zone(column: usize) -> u64 {
        HEAD_BYTES + ZONE_BYTES * column as u64
    }
}

/// Bytes that `rows` values of a kind take.
pub(crate) fn values_bytes(kind: Kind, rows: u32) -> u64 {
    match width(kind) {
        Some(width) => width * u64::from(rows),
        None => u64::from(rows.div_ceil(8)),
    }
}

/// Bytes of one value; `None` for bits.
pub(crate) fn width(kind: Kind) -> Option<u64> {
    match kind {
        Kind::Bool => None,
        Kind::U8 => Some(1),
        Kind::U16 => Some(2),
        Kind::I32 | Kind::U32 | Kind::Symbol => Some(4),
        Kind::Time | Kind::I64 | Kind::F64 => Some(8),
        Kind::Bytes16 | Kind::Text => Some(16),
    }
}

fn up(bytes: u64, to: u64) -> u64 {
    bytes.next_multiple_of(to)
}
