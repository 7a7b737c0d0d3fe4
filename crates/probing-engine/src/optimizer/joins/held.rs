//! How much memory batches keep from being freed.

use std::collections::HashSet;

use datafusion::arrow::array::{Array as _, ArrayData, RecordBatch};
use datafusion::arrow::buffer::{Buffer, NullBuffer};

/// Batches are often pieces of the same memory, and each piece of memory counts once.
#[derive(Debug, Default)]
pub(super) struct BufferMemory {
    /// Where they begin.
    buffers: HashSet<usize>,
    bytes: usize,
}

impl BufferMemory {
    pub(super) fn add(&mut self, batch: &RecordBatch) {
        for column in batch.columns() {
            self.add_data(&column.to_data());
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.buffers.capacity() * size_of::<usize>()
    }

    fn add_data(&mut self, data: &ArrayData) {
        let nulls = data.nulls().map(NullBuffer::buffer);
        for buffer in data.buffers().iter().chain(nulls) {
            self.add_buffer(buffer);
        }
        for child in data.child_data() {
            self.add_data(child);
        }
    }

    fn add_buffer(&mut self, buffer: &Buffer) {
        if self.buffers.insert(buffer.data_ptr().addr().get()) {
            self.bytes += buffer.capacity();
        }
    }
}
