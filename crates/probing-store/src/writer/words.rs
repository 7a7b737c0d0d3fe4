//! Rows of tracers, which are written without being looked at.

use super::Writer;
use crate::header::{COMMITTED, TS_MAX, TS_MIN};
use crate::memory::{Begin, Lanes, Words};
use crate::packed;

impl Writer {
    /// Appends a row of a tracer. Nothing of it is looked at: what it costs is a handful of stores. Of a ring of other rows it
    /// is none.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as part of `append_trace`")]
    pub(crate) fn append_words(&mut self, values: Words) {
        if self.at.row == self.layout.shape.rows {
            self.next_chunk();
        }
        let Some(lanes) = &self.lanes else {
            return;
        };
        let ts = values.longs[0];
        // Before the row: a reader that sees it has bounds that hold it.
        if ts < self.at.ts_min {
            self.at.ts_min = ts;
            self.memory.put(self.at.head + TS_MIN, ts);
        }
        let is_latest = ts > self.at.ts_max;
        if is_latest {
            self.at.ts_max = ts;
        }
        self.memory.put_row(lanes, self.at.row, values, is_latest);
        self.at.row += 1;
    }

    /// Where the rows of the chunk go that has begun, if this is a ring of tracers.
    pub(super) fn lanes(&self) -> Option<Lanes> {
        let starts = |column: usize| self.at.chunk + self.layout.slabs[column].values;
        self.is_packed.then(|| {
            let begin = Begin {
                longs: packed::LONGS.map(starts),
                words: packed::WORDS.map(starts),
                latest: self.at.head + TS_MAX,
                committed: self.at.head + COMMITTED,
            };
            self.memory.lanes(&begin, self.layout.shape.rows)
        })
    }
}
