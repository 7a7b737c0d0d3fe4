//! Rows of tracers, which are written without being looked at.

use super::{AppendError, Writer};
use crate::packed;

impl Writer {
    /// Appends a row of a tracer: its time, the one number of 64 bits, and those of 32 with their columns. Nothing of it is
    /// looked at: what a row costs is a handful of stores.
    #[inline]
    pub(crate) fn append_words<const N: usize>(
        &mut self,
        ts: i64,
        long: i64,
        words: [(usize, u32); N],
    ) -> Result<(), AppendError> {
        if self.layout.slabs.len() != N + 2 {
            return Err(AppendError::Width {
                given: N + 1,
                wanted: self.columns.count(),
            });
        }
        if self.at.row == self.layout.shape.rows {
            self.next_chunk();
        }
        let (chunk, row) = (self.at.chunk, u64::from(self.at.row));
        let slabs = &self.layout.slabs;
        self.memory.put(chunk + slabs[0].values + 8 * row, ts);
        self.memory
            .put(chunk + slabs[packed::DURATION].values + 8 * row, long);
        for (column, word) in words {
            self.memory
                .put(chunk + slabs[column].values + 4 * row, word);
        }
        self.commit(ts, self.at.text_used);
        Ok(())
    }
}
