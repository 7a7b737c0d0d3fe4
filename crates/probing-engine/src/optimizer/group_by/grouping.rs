//! Batches in, groups out.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::logical_expr::GroupsAccumulator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan as _;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateOutputMode};

use crate::optimizer::group_by::runs::{RunAggregate, Runs, finished};
use crate::optimizer::key_interning::{Keys, arrays};

pub(super) struct Grouping {
    keys: Keys,
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    aggregates: Vec<Aggregate>,
    /// For the usual way in.
    groups: Vec<usize>,
    schema: SchemaRef,
    is_state: bool,
}

/// One function, and what it keeps of the groups.
struct Aggregate {
    values: Vec<Arc<dyn PhysicalExpr>>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    short: Option<RunAggregate>,
    kept: Box<dyn GroupsAccumulator>,
}

impl Grouping {
    pub(super) fn new(plan: &AggregateExec) -> Result<Self> {
        let expressions = plan.group_expr().input_exprs();
        let input = plan.input().schema();
        let types = expressions.iter().map(|key| key.data_type(&input));
        let functions = plan.aggr_expr().iter().zip(plan.filter_expr());
        let aggregates = functions.map(|(function, filter)| {
            Ok(Aggregate {
                values: function.expressions(),
                filter: filter.clone(),
                short: RunAggregate::of(function).filter(|_| filter.is_none()),
                kept: function.create_groups_accumulator()?,
            })
        });
        Ok(Self {
            keys: Keys::new(&types.collect::<Result<Vec<_>>>()?),
            aggregates: aggregates.collect::<Result<_>>()?,
            expressions,
            groups: Vec::new(),
            schema: plan.schema(),
            is_state: plan.mode().output_mode() == AggregateOutputMode::Partial,
        })
    }

    pub(super) fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        self.keys.take(&arrays(&self.expressions, batch)?)?;
        let groups = self.keys.groups();
        let runs = Runs::of(groups);
        // Nobody may need them row by row.
        self.groups.clear();
        let total = self.keys.len();
        for aggregate in &mut self.aggregates {
            let values = arrays(&aggregate.values, batch)?;
            let kept = &mut *aggregate.kept;
            if let Some((short, runs)) = aggregate.short.zip(runs.as_ref())
                && short.take(&values, runs, total, kept)?
            {
                continue;
            }
            let filter = aggregate.filter.as_slice();
            let filter = arrays(filter, batch)?;
            let filter = filter.first().map(AsArray::as_boolean);
            if self.groups.is_empty() {
                let groups = groups.iter().map(|group| *group as usize);
                self.groups.extend(groups);
            }
            kept.update_batch(&values, &self.groups, filter, total)?;
        }
        Ok(())
    }

    pub(super) fn size(&self) -> usize {
        let kept = self
            .aggregates
            .iter()
            .map(|aggregate| aggregate.kept.size());
        self.keys.size() + self.groups.capacity() * size_of::<usize>() + kept.sum::<usize>()
    }

    /// All groups.
    pub(super) fn finish(self) -> Result<RecordBatch> {
        let mut columns = self.keys.arrays()?;
        for aggregate in self.aggregates {
            columns.extend(finished(aggregate.kept, self.is_state)?);
        }
        Ok(RecordBatch::try_new(self.schema, columns)?)
    }
}
