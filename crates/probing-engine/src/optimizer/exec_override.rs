//! Nodes of a plan that replace those of DataFusion and leave it everything but the work.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use datafusion::common::tree_node::{
    Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion,
};
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};

/// How the work of a kind of nodes is done here.
pub(crate) trait Work: fmt::Debug + Send + Sync + 'static {
    /// Those of the engine.
    type Node: ExecutionPlan;
    /// What `EXPLAIN` says.
    const NAME: &'static str;

    /// Whether this node's work is done here; else it is left to the node.
    fn is_for(node: &Self::Node) -> bool;

    fn execute(
        node: &Self::Node,
        part: usize,
        task: Arc<TaskContext>,
        metrics: BaselineMetrics,
    ) -> Result<SendableRecordBatchStream>;
}

/// Puts [`Instead`] into plans. Comes after all rules of the engine, which do not know it.
#[derive(Debug)]
pub(crate) struct Rule<W>(PhantomData<W>);

impl<W> Rule<W> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<W: Work> PhysicalOptimizerRule for Rule<W> {
    fn name(&self) -> &str {
        W::NAME
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let instead = |node: Arc<dyn ExecutionPlan>| {
            Ok(match node.downcast_ref::<W::Node>() {
                Some(known) if W::is_for(known) => {
                    Transformed::yes(Arc::new(OverrideExec::<W>::of(node)) as _)
                }
                _ => Transformed::no(node),
            })
        };
        plan.transform_up(instead).data()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct OverrideExec<W> {
    node: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
    work: PhantomData<W>,
}

impl<W> OverrideExec<W> {
    fn of(node: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            node,
            metrics: ExecutionPlanMetricsSet::new(),
            work: PhantomData,
        }
    }
}

impl<W: Work> DisplayAs for OverrideExec<W> {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", W::NAME)?;
        self.node.fmt_as(format, f)
    }
}

impl<W: Work> ExecutionPlan for OverrideExec<W> {
    fn name(&self) -> &str {
        W::NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.node.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.node.children()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.node.input_distribution_requirements()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.node.maintains_input_order()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.node.apply_expressions(visit)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        how: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let node = Arc::clone(&self.node).replace_children(children, how)?;
        Ok(Arc::new(Self::of(node)))
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

    fn child_stats_requests(&self, part: Option<usize>) -> Vec<ChildStats> {
        self.node.child_stats_requests(part)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.node.statistics_from_inputs(inputs, arguments)
    }

    fn execute(&self, part: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, part);
        let Some(node) = self.node.downcast_ref::<W::Node>() else {
            return internal_err!("{} stands for another kind of node", W::NAME);
        };
        W::execute(node, part, task, metrics)
    }
}
