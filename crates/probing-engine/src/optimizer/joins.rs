//! Joins by small numbers in place of their keys, as groups are made.
//!
//! What is joined was mostly recorded or grouped in the same order, and then stands together on both sides.

mod held;
mod joining;
mod known;
mod picked;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::common::{DataFusionError, NullEquality, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use futures::TryStreamExt as _;

use self::joining::{Cells, JoinOutput, Joining};
use self::known::BuildSide;
use crate::optimizer::exec_override::Work;
use crate::optimizer::key_interning;

/// Has rows joined here where the keys are such that it is quicker, and there are not so many rows that threads share them.
#[derive(Debug)]
pub(crate) struct Joins;

impl Work for Joins {
    type Node = HashJoinExec;
    const NAME: &'static str = "Joined";

    fn is_for(plan: &HashJoinExec) -> bool {
        let (left, right) = (plan.left(), plan.right());
        let is_one =
            |side: &Arc<dyn ExecutionPlan>| side.output_partitioning().partition_count() == 1;
        JoinOutput::by(*plan.join_type()).is_some()
            && !plan.null_aware
            && plan.null_equality() == NullEquality::NullEqualsNothing
            && plan.fetch().is_none()
            && plan.dynamic_expressions_produced().is_empty()
            && is_one(left)
            && is_one(right)
            && plan.on().iter().all(|(one, other)| {
                let types = one
                    .data_type(&left.schema())
                    .and_then(|one| Ok((one, other.data_type(&right.schema())?)));
                types.is_ok_and(|(one, other)| one == other && key_interning::is_for(&one))
            })
    }

    fn execute(
        plan: &HashJoinExec,
        part: usize,
        task: Arc<TaskContext>,
        metrics: BaselineMetrics,
    ) -> Result<SendableRecordBatchStream> {
        let (known_by, looked_up_by) = plan.on().iter().cloned().unzip();
        let (cells, asked) = (Cells::of(plan), JoinOutput::by(*plan.join_type()));
        let taken = MemoryConsumer::new("rows to join with").register(task.memory_pool());
        let at_once = task.session_config().batch_size();
        let left = plan.left().execute(part, Arc::clone(&task))?;
        let right = plan.right().execute(part, task)?;
        let all = async move {
            let known = BuildSide::read(left, known_by, &cells.known, &taken, &metrics).await?;
            let joining = Joining {
                asked: asked.map(|asked| asked.begin(known.len())),
                known,
                looked_up_by,
                rows: right,
                looking: None,
                cells,
                at_once,
                metrics,
                _taken: taken,
            };
            let next = |mut joining: Joining| async move {
                let batch = joining.next().await?;
                Ok(batch.map(|batch| (batch, joining)))
            };
            Ok::<_, DataFusionError>(futures::stream::try_unfold(joining, next))
        };
        let stream = futures::stream::once(all).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            plan.schema(),
            stream,
        )))
    }
}
