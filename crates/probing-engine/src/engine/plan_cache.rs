//! Plans of earlier statements, for pages, prompts and `--every` that repeat them.
//!
//! A page, a prompt and `--every` ask the same again and again, of tables that have more rows by then but the same
//! columns.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{
    Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion,
};
use datafusion::common::{Result, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::logical_plan::builder::LogicalTableSource;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, TableSource, Volatility};

use crate::session::DEFAULT_SCHEMA;

/// The number of statements whose plans are kept.
const MAX_PLANS: usize = 32;
/// Longer statements are not asked by hand or by a page.
const MAX_SQL_BYTES: usize = 8 << 10;

/// What is remembered, the statement that was asked last at the end.
#[derive(Debug, Default)]
pub(crate) struct Plans(Mutex<VecDeque<(String, Arc<Plan>)>>);

/// A plan over tables of these columns. It holds none of the tables.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) tables: Vec<TableReference>,
    plan: LogicalPlan,
}

impl Plans {
    pub(crate) fn find(&self, sql: &str) -> Option<Arc<Plan>> {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = plans.iter().position(|(known, _)| known == sql)?;
        let found = plans.remove(place)?;
        let plan = Arc::clone(&found.1);
        plans.push_back(found);
        Some(plan)
    }

    pub(crate) fn remember(&self, sql: &str, plan: Plan) {
        if sql.len() > MAX_SQL_BYTES {
            return;
        }
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.retain(|(known, _)| known != sql);
        plans.push_back((sql.to_owned(), Arc::new(plan)));
        if plans.len() > MAX_PLANS {
            plans.pop_front();
        }
    }
}

impl Plan {
    /// Of a plan that has been optimised, over these tables.
    pub(crate) fn of(plan: LogicalPlan, tables: Vec<TableReference>) -> Result<Self> {
        let plan = with_sources(plan, |scan| {
            Some(Arc::new(LogicalTableSource::new(scan.source.schema())))
        })?;
        Ok(Self { tables, plan })
    }

    /// The same over tables that are there now; `None` when not all are, or one has other columns.
    pub(crate) fn over(&self, tables: &[Named]) -> Result<Option<LogicalPlan>> {
        let mut is_whole = true;
        let plan = with_sources(self.plan.clone(), |scan| {
            let mut tables = tables.iter();
            let table = tables.find(|table| is_same(&table.name, &scan.table_name));
            let table = table.filter(|table| table.provider.schema() == scan.source.schema());
            is_whole &= table.is_some();
            table.map(|table| provider_as_source(Arc::clone(&table.provider)))
        });
        plan.map(|plan| is_whole.then_some(plan))
    }
}

/// A table as a statement names it.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) name: TableReference,
    pub(crate) provider: Arc<dyn TableProvider>,
}

/// Whether a plan means the same at every time: it is one of rows, and nothing in it is as it was when it was made.
pub(crate) fn is_lasting(plan: &LogicalPlan) -> Result<bool> {
    let mut is_lasting = !matches!(
        plan,
        LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) | LogicalPlan::DescribeTable(_)
    );
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::ScalarFunction(call) = part {
                    is_lasting &= call.func.signature().volatility == Volatility::Immutable;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(is_lasting)
}

/// The plan with other tables in it; those stay for which there is no other.
fn with_sources(
    plan: LogicalPlan,
    mut other: impl FnMut(&TableScan) -> Option<Arc<dyn TableSource>>,
) -> Result<LogicalPlan> {
    let changed = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::TableScan(scan) => Ok(match other(&scan) {
            Some(source) => Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan })),
            None => Transformed::no(LogicalPlan::TableScan(scan)),
        }),
        node => Ok(Transformed::no(node)),
    });
    changed.data()
}

fn is_same(one: &TableReference, other: &TableReference) -> bool {
    let of = |name: &TableReference| {
        let schema = name.schema().unwrap_or(DEFAULT_SCHEMA);
        (schema.to_owned(), name.table().to_owned())
    };
    of(one) == of(other)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, RecordBatch};
    use datafusion::catalog::MemTable;
    use datafusion::prelude::SessionContext;

    use super::*;

    fn table(column: &str, values: &[i64]) -> Named {
        let values = Arc::new(Int64Array::from(values.to_vec()));
        let batch = RecordBatch::try_from_iter([(column, values as _)]).unwrap();
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
        Named {
            name: TableReference::bare("t"),
            provider: Arc::new(table),
        }
    }

    async fn optimised(context: &SessionContext, sql: &str) -> LogicalPlan {
        let frame = context.sql(sql).await.unwrap();
        frame.into_optimized_plan().unwrap()
    }

    async fn count(context: &SessionContext, plan: LogicalPlan) -> i64 {
        let frame = context.execute_logical_plan(plan).await.unwrap();
        let rows = frame.collect().await.unwrap();
        let count = rows[0].column(0).as_any().downcast_ref::<Int64Array>();
        count.unwrap().value(0)
    }

    #[tokio::test]
    async fn a_plan_is_good_for_tables_of_the_same_columns() {
        let context = SessionContext::new();
        let first = table("x", &[1, 2, 3]);
        context
            .register_table("t", Arc::clone(&first.provider))
            .unwrap();
        let sql = "SELECT count(*) FROM t WHERE x > (SELECT min(x) FROM t)";
        let plan = optimised(&context, sql).await;
        let held = Arc::strong_count(&first.provider);
        let remembered = Plan::of(plan, vec![first.name.clone()]).unwrap();
        assert!(
            Arc::strong_count(&first.provider) < held,
            "it holds the table"
        );

        let more = table("x", &[5, 5, 6, 7, 8, 9]);
        let over = remembered.over(&[more]).unwrap().unwrap();
        assert_eq!(count(&context, over).await, 4);
        let over = remembered.over(&[table("y", &[1])]).unwrap();
        assert!(over.is_none(), "it has other columns");
        assert!(remembered.over(&[]).unwrap().is_none(), "it is gone");
    }

    #[tokio::test]
    async fn what_is_of_its_time_is_not_kept() {
        let context = SessionContext::new();
        for (sql, wanted) in [
            ("SELECT abs(-1)", true),
            ("SELECT now()", false),
            ("SELECT 1 WHERE 1 < (SELECT random())", false),
            ("EXPLAIN SELECT 1", false),
        ] {
            let plan = context.state().create_logical_plan(sql).await.unwrap();
            assert_eq!(is_lasting(&plan).unwrap(), wanted, "{sql}");
        }
    }

    #[test]
    fn the_statement_that_nobody_asks_for_longest_is_forgotten() {
        let plans = Plans::default();
        let plan = || Plan {
            tables: Vec::new(),
            plan: LogicalPlan::default(),
        };
        for number in 0..MAX_PLANS {
            plans.remember(&number.to_string(), plan());
        }
        assert!(plans.find("0").is_some());
        plans.remember("new", plan());
        plans.remember(&"long".repeat(MAX_SQL_BYTES), plan());
        let known = |sql: &str| plans.find(sql).is_some();
        assert!(known("0") && !known("1") && known("2") && known("new"));
        assert!(!known(&"long".repeat(MAX_SQL_BYTES)));
    }
}
