//! The size of a new ring and of its parts, by the free space.

use std::io;

use probing_proto::tables::schema::{Kind, Schema};

use crate::ring::file::RingFile;
use crate::ring::layout::{CHUNK_ROWS, HEADER_BYTES, Layout, MIN_CHUNK_ROWS, Shape};
use crate::ring::memory::Memory;
use crate::ring::strings::{ENDS_STEP, HEAP_STEP};

/// Bytes of text per row and column that a chunk has room for.
const TEXT_PER_ROW: u32 = 32;
/// Strings and bytes of them per row of a chunk.
const STRINGS_PER_ROW: u32 = 4;
const HEAP_PER_ROW: u32 = 256;
/// A ring begins with two: one to write, and one to read meanwhile.
const FIRST_CHUNKS: u32 = 2;
/// A ring that begins takes at most this part of what is left, or it has smaller chunks.
const FIRST_SHARE: u64 = 4;

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) layout: Layout,
    pub(crate) schema_text: Vec<u8>,
    pub(crate) first_bytes: u64,
    pub(crate) first_chunks: u32,
}

impl Plan {
    /// Plans to try one after the other, each with smaller chunks than the one before, when `room` bytes may be taken.
    pub(crate) fn all(schema: &Schema, room: u64) -> impl Iterator<Item = Self> {
        [CHUNK_ROWS, CHUNK_ROWS / 4, CHUNK_ROWS / 16, MIN_CHUNK_ROWS]
            .into_iter()
            .filter_map(move |rows| {
                let plan = Self::new(schema, rows, room)?;
                let share = if rows == MIN_CHUNK_ROWS {
                    1
                } else {
                    FIRST_SHARE
                };
                (plan.first_bytes <= room / share).then_some(plan)
            })
    }

    fn new(schema: &Schema, rows: u32, room: u64) -> Option<Self> {
        let count = |kind| {
            schema
                .columns
                .iter()
                .filter(|column| column.kind == kind)
                .count() as u32
        };
        let texts = count(Kind::Text);
        let with_strings = texts + count(Kind::Symbol) > 0;
        let schema_text = serde_json::to_vec(schema).ok()?;
        let mut shape = Shape {
            schema_bytes: u32::try_from(schema_text.len()).ok()?,
            rows,
            slots: FIRST_CHUNKS,
            strings: if with_strings {
                STRINGS_PER_ROW * rows
            } else {
                0
            },
            heap_bytes: if with_strings { HEAP_PER_ROW * rows } else { 0 },
            text_bytes: TEXT_PER_ROW * rows * texts,
        };
        let layout = Layout::new(schema, shape)?;
        let first_bytes = layout.ends
            + ENDS_STEP.min(layout.heap - layout.ends)
            + HEAP_STEP.min(layout.heads - layout.heap)
            + layout.heads_of(FIRST_CHUNKS)
            + layout.chunk_bytes * u64::from(FIRST_CHUNKS);
        shape.slots = u32::try_from(room / layout.chunk_bytes)
            .ok()?
            .max(FIRST_CHUNKS);
        Some(Self {
            layout: Layout::new(schema, shape)?,
            schema_text,
            first_bytes,
            first_chunks: FIRST_CHUNKS,
        })
    }

    /// The longest text of one value: all of a row's find room in an empty chunk.
    pub(crate) fn max_text(&self, most: usize) -> usize {
        let shape = &self.layout.shape;
        let texts = shape.text_bytes / (TEXT_PER_ROW * shape.rows);
        match shape.text_bytes.checked_div(texts) {
            Some(each) => most.min(each as usize / 2),
            None => 0,
        }
    }

    /// Reserves the first part of the file and maps all of it.
    pub(crate) fn reserve(&self, file: &RingFile) -> io::Result<Memory> {
        let layout = &self.layout;
        let ends = ENDS_STEP.min(layout.heap - layout.ends);
        let heap = HEAP_STEP.min(layout.heads - layout.heap);
        for (offset, bytes) in [
            (0, layout.ends),
            (layout.ends, ends),
            (layout.heap, heap),
            (layout.heads, layout.heads_of(self.first_chunks)),
            (
                layout.chunks,
                layout.chunk_bytes * u64::from(self.first_chunks),
            ),
        ] {
            if bytes > 0 {
                file.reserve(offset, bytes)?;
            }
        }
        Memory::shared(file, layout.bytes() as usize)
    }

    pub(crate) fn write_schema(&self, memory: &mut Memory) {
        memory.put_bytes(HEADER_BYTES, &self.schema_text);
    }
}
