//! Rows of tracers, which are written without being looked at.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ring::header::COMMITTED;
use crate::ring::memory::{Begin, RawRow};
use crate::ring::packed;
use crate::writer::Writer;

/// Of all chunks that this process ever wrote rows of tracers to.
static CHUNKS: AtomicU64 = AtomicU64::new(1);

/// Where a row of a tracer went: in which chunk, of all that this process has begun, and in which of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRowId(u64);

/// A chunk has no more rows than this many bits can tell.
const ROW_BITS: u32 = 16;

impl TraceRowId {
    /// It went nowhere.
    pub const NOWHERE: Self = Self(0);

    #[inline]
    fn chunk(self) -> u64 {
        self.0 >> ROW_BITS
    }

    #[inline]
    fn row(self) -> u32 {
        self.0 as u32 & ((1 << ROW_BITS) - 1)
    }
}

/// What is known of the rows of tracers in the chunk that is being written.
#[derive(Debug, Clone, Copy)]
pub(super) struct TraceChunk {
    /// Which chunk it is, of all in this process: no other writer has one of this number. 0: none.
    chunk: u64,
    /// How many rows have got their end.
    pub(super) ended: u32,
}

impl TraceChunk {
    pub(super) const NOTHING: Self = Self { chunk: 0, ended: 0 };
}

impl Writer {
    /// Appends a row of a tracer, unless the chunk is full. Nothing of it is looked at: what it costs is a handful of stores.
    /// Of a ring of other rows it is none.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as part of `append_trace`")]
    pub(crate) fn append_words(&mut self, values: RawRow) -> Option<TraceRowId> {
        let place = self.next_words()?;
        self.at.row += 1;
        self.memory.put_row(place.row(), values).then_some(place)
    }

    /// Where the next one goes, unless the chunk is full.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as part of `append_trace`")]
    pub(crate) fn next_words(&self) -> Option<TraceRowId> {
        let row = self.at.row;
        let place = TraceRowId(self.traced.chunk << ROW_BITS | u64::from(row));
        self.memory.has_row(row).then_some(place)
    }

    /// The same, in another chunk if this one is full.
    #[inline(never)]
    pub(crate) fn append_words_anywhere(&mut self, values: RawRow) -> TraceRowId {
        if self.is_packed && self.at.row == self.layout.shape.rows {
            self.next_chunk();
        }
        self.append_words(values).unwrap_or(TraceRowId::NOWHERE)
    }

    /// Puts the end of what a row tells of into that row: whether it is one of the chunk that is being written, and has the
    /// same step.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as part of `end_trace`")]
    pub(crate) fn end_words(&mut self, place: TraceRowId, step: u32, end: i64) -> bool {
        let step = (packed::STEP_WORD, step);
        let is_told =
            self.traced.chunk == place.chunk() && self.memory.put_end(place.row(), step, end);
        if is_told {
            self.traced.ended += 1;
        }
        is_told
    }

    /// Tells in a row how long what it tells of took, which has no end of its own: whether the row is one of the chunk that is
    /// being written.
    pub(crate) fn put_duration(&mut self, place: TraceRowId, took: i64) -> bool {
        self.traced.chunk == place.chunk() && self.memory.put_duration(place.row(), took)
    }

    /// A chunk has begun: where its rows go, if this is a ring of tracers.
    pub(super) fn begin_traced(&mut self) {
        if !self.is_packed {
            return;
        }
        let starts = |column: usize| self.at.chunk + self.layout.slabs[column].values;
        let begin = Begin {
            longs: packed::LONGS.map(starts),
            words: packed::WORDS.map(starts),
            committed: self.at.head + COMMITTED,
        };
        self.memory.set_lanes(&begin, self.layout.shape.rows);
        self.traced = TraceChunk {
            chunk: CHUNKS.fetch_add(1, Ordering::Relaxed),
            ended: 0,
        };
    }

    /// The first and the last time of the rows of tracers in the chunk that is being written.
    pub(super) fn times_traced(&self) -> (i64, i64) {
        let bytes = |column: usize| {
            let begin = self.at.chunk + self.layout.slabs[column].values;
            self.memory.bytes(begin, 8 * self.at.row as usize)
        };
        let [times, durations] = packed::LONGS.map(bytes);
        packed::bounds(times, durations)
    }
}
