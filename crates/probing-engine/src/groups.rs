//! Rows by group, as they are recorded: neighbours mostly belong to one step, and the same few names come again and again.
//! Values get small numbers, which are quicker to compare and to look up than the values themselves, and what stands together
//! is put together before it comes to its group.

mod grouping;
mod keys;
mod node;
mod numbers;
mod pairs;
mod runs;
#[cfg(test)]
mod tests;
mod texts;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use self::node::Grouped;

/// Has rows grouped here where the keys are such that it is quicker. Comes after all other rules, which do not know it.
#[derive(Debug)]
pub(crate) struct Groups;

impl PhysicalOptimizerRule for Groups {
    fn name(&self) -> &'static str {
        "groups"
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let grouped = |node: Arc<dyn ExecutionPlan>| {
            let aggregate = node.downcast_ref::<AggregateExec>();
            Ok(match aggregate.and_then(Grouped::instead_of) {
                None => Transformed::no(node),
                Some(grouped) => Transformed::yes(Arc::new(grouped) as _),
            })
        };
        plan.transform_up(grouped).data()
    }

    fn schema_check(&self) -> bool {
        true
    }
}
