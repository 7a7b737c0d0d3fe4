//! The build side of a join: its rows by their keys.

use std::sync::Arc;

use datafusion::arrow::array::{Array as _, RecordBatch};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::concat_batches;
use datafusion::common::{Result, resources_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures::StreamExt as _;

use crate::optimizer::joins::held::BufferMemory;
use crate::optimizer::key_interning::{Keys, NONE, arrays};

#[derive(Debug)]
pub(super) struct BuildSide {
    keys: Keys,
    /// The columns that are wanted of them.
    pub(super) rows: RecordBatch,
    /// By group: its first row.
    first: Vec<u32>,
    /// By row: the next of its group.
    next: Vec<u32>,
}

impl BuildSide {
    pub(super) async fn read(
        mut rows: SendableRecordBatchStream,
        by: Vec<Arc<dyn PhysicalExpr>>,
        wanted: &[usize],
        taken: &MemoryReservation,
        metrics: &BaselineMetrics,
    ) -> Result<Self> {
        let schema = rows.schema();
        let types = by.iter().map(|key| key.data_type(&schema));
        let mut keys = Keys::new(&types.collect::<Result<Vec<_>>>()?);
        let mut groups: Vec<u32> = Vec::new();
        let (mut batches, mut held) = (Vec::new(), BufferMemory::default());
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            let _working = metrics.elapsed_compute().timer();
            let values = arrays(&by, &batch)?;
            keys.take(&values)?;
            let nulls = NullBuffer::union_many(values.iter().map(|array| array.nulls()));
            match nulls {
                None => groups.extend(keys.groups()),
                // A key that is not there is equal to none.
                Some(nulls) => {
                    let found = keys.groups().iter().zip(&nulls);
                    groups.extend(
                        found.map(|(group, is_there)| if is_there { *group } else { NONE }),
                    );
                }
            }
            let batch = batch.project(wanted)?;
            held.add(&batch);
            batches.push(batch);
            // The rows are copied once more, and the lists of rows are made.
            let lists = (2 * groups.capacity() + keys.len()) * size_of::<u32>();
            taken.try_resize(keys.size() + lists + 2 * held.bytes())?;
        }
        let _working = metrics.elapsed_compute().timer();
        if groups.len() >= NONE as usize {
            return resources_err!("too many rows to join: {}", groups.len());
        }
        keys.close();
        let (first, next) = lists(&groups, keys.len());
        Ok(Self {
            keys,
            rows: concat_batches(&Arc::new(schema.project(wanted)?), &batches)?,
            first,
            next,
        })
    }

    /// How many rows.
    pub(super) fn len(&self) -> usize {
        self.next.len()
    }

    /// Looks up the rows of another side: what [`Known::first`] is asked for.
    pub(super) fn look_up(
        &mut self,
        batch: &RecordBatch,
        by: &[Arc<dyn PhysicalExpr>],
    ) -> Result<()> {
        self.keys.take(&arrays(by, batch)?)
    }

    /// The first row with the keys of this row of those that were looked up; [`NONE`].
    #[inline]
    pub(super) fn first(&self, row: usize) -> u32 {
        let group = self.keys.groups()[row];
        self.first.get(group as usize).copied().unwrap_or(NONE)
    }

    /// The next row with the same keys; [`NONE`].
    #[inline]
    pub(super) fn next(&self, row: u32) -> u32 {
        self.next[row as usize]
    }
}

/// The rows of each group, in their order: the first of each, and the one behind each.
fn lists(groups: &[u32], count: usize) -> (Vec<u32>, Vec<u32>) {
    let mut first = vec![NONE; count];
    let mut next = vec![NONE; groups.len()];
    for (row, group) in groups.iter().enumerate().rev() {
        if let Some(first) = first.get_mut(*group as usize) {
            next[row] = *first;
            *first = row as u32;
        }
    }
    (first, next)
}
