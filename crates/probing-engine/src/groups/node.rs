//! The node of a plan that groups rows.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, InputOrderMode,
    PlanProperties,
};
use futures::{StreamExt as _, TryStreamExt as _};

use super::grouping::Grouping;
use super::keys;

/// What the engine's own node would do, done here. All but the work is left to that node.
#[derive(Debug)]
pub(super) struct Grouped {
    plan: Arc<AggregateExec>,
    metrics: ExecutionPlanMetricsSet,
}

impl Grouped {
    /// `None` where that node is the one to do it.
    pub(super) fn instead_of(plan: &AggregateExec) -> Option<Self> {
        let group_by = plan.group_expr();
        let input = plan.input().schema();
        let mut types = group_by.expr().iter().map(|(key, _)| key.data_type(&input));
        let is_plain = plan.mode().input_mode() == AggregateInputMode::Raw
            && *plan.input_order_mode() == InputOrderMode::Linear
            && plan.limit_options().is_none()
            && group_by.is_single()
            && !group_by.is_empty();
        let is_able = is_plain
            && types.all(|key| key.is_ok_and(|key| keys::is_for(&key)))
            && plan.aggr_expr().iter().all(|function| {
                function.groups_accumulator_supported() && function.order_bys().is_empty()
            });
        is_able.then(|| Self::of(plan.clone()))
    }

    fn of(plan: AggregateExec) -> Self {
        Self {
            plan: Arc::new(plan),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn over(&self, child: Arc<dyn ExecutionPlan>, how: ReplaceChildrenOptions) -> Result<Self> {
        let plan = Arc::clone(&self.plan) as Arc<dyn ExecutionPlan>;
        let plan = plan.replace_children(vec![child], how)?;
        if let Some(plan) = plan.downcast_ref::<AggregateExec>() {
            Ok(Self::of(plan.clone()))
        } else {
            internal_err!("groups are made of rows")
        }
    }
}

impl DisplayAs for Grouped {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grouped ")?;
        self.plan.fmt_as(format, f)
    }
}

impl ExecutionPlan for Grouped {
    fn name(&self) -> &'static str {
        "Grouped"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.plan.children()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.plan.input_distribution_requirements()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.plan.apply_expressions(visit)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        how: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(child) = children.pop().filter(|_| children.is_empty()) {
            Ok(Arc::new(self.over(child, how)?))
        } else {
            internal_err!("groups are made of the rows of one node")
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let how = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, how)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.plan.statistics_from_inputs(inputs, arguments)
    }

    fn execute(&self, part: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut grouping = Grouping::new(&self.plan)?;
        let taken = MemoryConsumer::new(format!("groups of part {part}"));
        let taken = taken.register(task.memory_pool());
        let at_once = task.session_config().batch_size();
        let metrics = BaselineMetrics::new(&self.metrics, part);
        let mut rows = self.plan.input().execute(part, task)?;
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
            self.schema(),
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
