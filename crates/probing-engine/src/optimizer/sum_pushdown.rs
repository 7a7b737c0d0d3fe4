//! Sums of whole tables from their statistics, without reading the rows.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;

use crate::sources::scan::Scan;

/// Has scans tell sums to those that sum nothing but their rows.
#[derive(Debug)]
pub(crate) struct Sums;

impl PhysicalOptimizerRule for Sums {
    fn name(&self) -> &'static str {
        "sums"
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let told = |node: Arc<dyn ExecutionPlan>| {
            let aggregate = node.downcast_ref::<AggregateExec>();
            let whole = aggregate.filter(|aggregate| aggregate.group_expr().is_empty());
            let scan = whole.and_then(|aggregate| aggregate.input().downcast_ref::<Scan>());
            let scan = scan.map(|scan| Arc::new(scan.that_tells_sums()));
            match scan {
                None => Ok(Transformed::no(node)),
                Some(scan) => replace_children_if_necessary(node, vec![scan]).map(Transformed::yes),
            }
        };
        plan.transform_up(told).data()
    }

    fn schema_check(&self) -> bool {
        true
    }
}
