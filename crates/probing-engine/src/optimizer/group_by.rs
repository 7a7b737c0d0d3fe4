//! Groups of recorded rows, whose neighbours mostly belong to one group.
//! Values get small numbers, which are quicker to compare and to look up than the values themselves, and what stands together
//! is put together before it comes to its group.

mod grouping;
mod runs;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan as _, InputOrderMode};
use futures::{StreamExt as _, TryStreamExt as _};

use self::grouping::Grouping;
use crate::optimizer::exec_override::Work;
use crate::optimizer::key_interning;

/// Has rows grouped here where the keys are such that it is quicker.
#[derive(Debug)]
pub(crate) struct Groups;

impl Work for Groups {
    type Node = AggregateExec;
    const NAME: &'static str = "Grouped";

    fn is_for(plan: &AggregateExec) -> bool {
        let group_by = plan.group_expr();
        let input = plan.input().schema();
        let mut types = group_by.expr().iter().map(|(key, _)| key.data_type(&input));
        let is_plain = plan.mode().input_mode() == AggregateInputMode::Raw
            && *plan.input_order_mode() == InputOrderMode::Linear
            && plan.limit_options().is_none()
            && group_by.is_single()
            && !group_by.is_empty();
        is_plain
            && types.all(|key| key.is_ok_and(|key| key_interning::is_for(&key)))
            && plan.aggr_expr().iter().all(|function| {
                function.groups_accumulator_supported() && function.order_bys().is_empty()
            })
    }

    fn execute(
        plan: &AggregateExec,
        part: usize,
        task: Arc<TaskContext>,
        metrics: BaselineMetrics,
    ) -> Result<SendableRecordBatchStream> {
        let mut grouping = Grouping::new(plan)?;
        let taken = MemoryConsumer::new(format!("groups of part {part}"));
        let taken = taken.register(task.memory_pool());
        let at_once = task.session_config().batch_size();
        let mut rows = plan.input().execute(part, task)?;
        let all = async move {
            while let Some(batch) = rows.next().await {
                let batch = batch?;
                let _working = metrics.elapsed_compute().timer();
                grouping.take(&batch)?;
                taken.try_resize(grouping.size())?;
            }
            let _working = metrics.elapsed_compute().timer();
            let all = grouping.finish()?;
            metrics.record_output(all.num_rows());
            Ok::<_, DataFusionError>(futures::stream::iter(Pieces {
                all,
                begin: 0,
                at_once,
                _taken: taken,
            }))
        };
        let stream = futures::stream::once(all).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            plan.schema(),
            stream,
        )))
    }
}

/// All groups, some at once. What they take is given back with the last.
struct Pieces {
    all: RecordBatch,
    begin: usize,
    at_once: usize,
    _taken: MemoryReservation,
}

impl Iterator for Pieces {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = self.at_once.min(self.all.num_rows() - self.begin);
        let piece = self.all.slice(self.begin, length);
        self.begin += length;
        (length > 0).then_some(Ok(piece))
    }
}
