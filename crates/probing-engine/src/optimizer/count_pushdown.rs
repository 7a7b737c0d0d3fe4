//! Counts of whole tables from their statistics, without a plan.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::common::stats::Precision;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, TableScan};

/// The answer to a plan that has been optimised, if it counts all rows of one table and does nothing else.
pub(crate) fn count_rows(plan: &LogicalPlan) -> Result<Option<RecordBatch>> {
    let Some((counts, scan)) = counted(plan) else {
        return Ok(None);
    };
    let provider = source_as_provider(&scan.source)?;
    let Some(Precision::Exact(rows)) = provider.statistics().map(|known| known.num_rows) else {
        return Ok(None);
    };
    let Ok(rows) = i64::try_from(rows) else {
        return Ok(None);
    };
    let columns = (0..counts).map(|_| Arc::new(Int64Array::from(vec![rows])) as ArrayRef);
    let schema = Arc::clone(plan.schema().inner());
    Ok(Some(RecordBatch::try_new(schema, columns.collect())?))
}

/// Of how many columns it is, and the table.
fn counted(plan: &LogicalPlan) -> Option<(usize, &TableScan)> {
    let (named, counts) = match plan {
        // It gives them their names: all are the same number, in whichever order.
        LogicalPlan::Projection(projection) => {
            let is_plain = projection.expr.iter().all(is_named);
            let named = is_plain.then_some(projection.expr.len())?;
            (Some(named), projection.input.as_ref())
        }
        counts => (None, counts),
    };
    let LogicalPlan::Aggregate(Aggregate {
        input,
        group_expr,
        aggr_expr,
        ..
    }) = counts
    else {
        return None;
    };
    let LogicalPlan::TableScan(scan) = input.as_ref() else {
        return None;
    };
    let is_whole = scan.filters.is_empty() && scan.fetch.is_none();
    let is_count = group_expr.is_empty() && aggr_expr.iter().all(is_count_of_rows);
    (is_whole && is_count).then_some((named.unwrap_or(aggr_expr.len()), scan))
}

/// A column, perhaps by another name.
fn is_named(expression: &Expr) -> bool {
    match expression {
        Expr::Column(_) => true,
        Expr::Alias(alias) => is_named(&alias.expr),
        _ => false,
    }
}

/// `count(*)`, which the engine writes as a count of a number that every row has.
fn is_count_of_rows(expression: &Expr) -> bool {
    match expression {
        Expr::Alias(alias) => is_count_of_rows(&alias.expr),
        Expr::AggregateFunction(AggregateFunction { func, params }) => {
            let AggregateFunctionParams {
                args,
                distinct,
                filter,
                ..
            } = params;
            let is_of_all = matches!(&args[..], [Expr::Literal(value, _)] if !value.is_null());
            func.name() == "count" && is_of_all && !distinct && filter.is_none()
        }
        _ => false,
    }
}
