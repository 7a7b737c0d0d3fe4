//! The scan at the leaf of every plan: reads a table in one or more parts.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, ScalarValue, Statistics, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    EquivalenceProperties, PhysicalExpr, PhysicalSortExpr, conjunction,
};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    SortOrderPushdownResult,
};

use crate::sources::predicate::Condition;

/// One part of a table, read by one thread.
pub(crate) trait Part: fmt::Debug + Send + Sync {
    fn read(&self, schema: &SchemaRef) -> Result<SendableRecordBatchStream>;

    /// How many rows it gives, when that is known before.
    fn rows(&self) -> Option<usize>;

    /// What is known before of a column of those that are read.
    fn known(&self, _column: usize) -> ColumnStats {
        ColumnStats::default()
    }

    /// The same rows, those first that are likely to be the first by this column; `None` when it cannot tell.
    fn best_first(&self, _column: usize, _order: SortOptions) -> Option<Arc<dyn Part>> {
        None
    }

    /// The same part, of which only rows that meet the condition are wanted; `None` when it cannot choose.
    fn with_condition(&self, condition: Condition) -> Option<Arc<dyn Part>>;
}

/// What is known of a column before it is read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ColumnStats {
    /// The least and the greatest value.
    pub(crate) range: Option<(ScalarValue, ScalarValue)>,
    /// As wide as the values: it may have wrapped, as that of SQL does.
    pub(crate) sum: Option<i64>,
    /// Rows that have no value.
    pub(crate) nulls: Option<usize>,
}

impl ColumnStats {
    /// Of the rows of both.
    fn and(self, other: Self) -> Self {
        let range = self.range.zip(other.range);
        Self {
            range: range.map(|((least, most), (min, max))| {
                let least = if min < least { min } else { least };
                let most = if max > most { max } else { most };
                (least, most)
            }),
            sum: self
                .sum
                .zip(other.sum)
                .map(|(one, two)| one.wrapping_add(two)),
            nulls: self.nulls.zip(other.nulls).map(|(one, two)| one + two),
        }
    }
}

/// Reads parts of a table at the same time.
#[derive(Debug, Clone)]
pub(crate) struct Scan {
    table: String,
    /// What was decided before reading, in words.
    note: String,
    parts: Vec<Arc<dyn Part>>,
    condition: Option<Condition>,
    /// Whether it tells the sums of its columns.
    tells_sums: bool,
    properties: Arc<PlanProperties>,
}

impl Scan {
    /// `schema` is that of the columns that are read.
    pub(crate) fn of(
        table: impl Into<String>,
        note: String,
        schema: SchemaRef,
        parts: Vec<Arc<dyn Part>>,
    ) -> Self {
        // No order is told, though rows mostly come by time and step: with one, groups are made row by row to be forgotten
        // early, which takes a quarter longer than all columns at a time.
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(parts.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            table: table.into(),
            note,
            parts,
            condition: None,
            tells_sums: false,
            properties: Arc::new(properties),
        }
    }

    /// The same, which tells the sums of its columns where they are known. Only for who sums all rows of it and does
    /// nothing else before: behind a join a column would go by the sum of all its rows, though some are not there and others
    /// are twice.
    pub(crate) fn that_tells_sums(&self) -> Self {
        Self {
            tells_sums: true,
            ..self.clone()
        }
    }

    /// The same of which only rows that meet these conditions, too, are wanted; `None` when it cannot choose.
    fn with_conditions(&self, more: &[Arc<dyn PhysicalExpr>]) -> Result<Option<Self>> {
        let known = self.condition.iter().map(Condition::whole);
        let all = conjunction(known.chain(more.iter().cloned()));
        let condition = Condition::new(all, &self.schema())?;
        let parts = self.parts.iter();
        let parts: Option<Vec<_>> = parts
            .map(|part| part.with_condition(condition.clone()))
            .collect();
        Ok(parts.map(|parts| Self {
            parts,
            condition: Some(condition),
            ..self.clone()
        }))
    }

    fn known(&self, column: usize, parts: &[Arc<dyn Part>]) -> ColumnStats {
        if self.condition.is_some() {
            return ColumnStats::default();
        }
        let known = parts.iter().map(|part| part.known(column));
        known.reduce(ColumnStats::and).unwrap_or_default()
    }
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let columns: Vec<&str> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        write!(
            f,
            "Scan: {}, columns=[{}]{}",
            self.table,
            columns.join(", "),
            self.note
        )?;
        match &self.condition {
            Some(condition) => write!(f, ", where={condition}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for Scan {
    fn name(&self) -> &'static str {
        "Scan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        match &self.condition {
            Some(condition) => visit(&condition.whole()),
            None => Ok(TreeNodeRecursion::Continue),
        }
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() {
            Ok(self)
        } else {
            internal_err!("a scan has no children")
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() {
            Ok(self)
        } else {
            internal_err!("a scan has no children")
        }
    }

    /// Rows are chosen here, where what is not wanted need not be copied.
    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        conditions: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let more = conditions.parent_filters.iter();
        let more: Vec<_> = more
            .map(|condition| Arc::clone(&condition.filter))
            .collect();
        if more.is_empty() {
            return Ok(FilterPushdownPropagation::all_unsupported(conditions));
        }
        Ok(match self.with_conditions(&more)? {
            None => FilterPushdownPropagation::all_unsupported(conditions),
            Some(scan) => {
                let met = vec![PushedDown::Yes; more.len()];
                FilterPushdownPropagation::with_parent_pushdown_result(met)
                    .with_updated_node(Arc::new(scan))
            }
        })
    }

    /// Whoever wants the ten greatest gets great ones first, and leaves out the rest by what is known of it.
    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
    ) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        let first = order.first();
        let by =
            first.and_then(|first| Some((first.expr.downcast_ref::<Column>()?, first.options)));
        let parts: Option<Vec<_>> = by.and_then(|(column, options)| {
            let parts = self.parts.iter();
            parts
                .map(|part| part.best_first(column.index(), options))
                .collect()
        });
        let Some(parts) = parts else {
            return Ok(SortOrderPushdownResult::Unsupported);
        };
        Ok(SortOrderPushdownResult::Inexact {
            inner: Arc::new(Self {
                parts,
                ..self.clone()
            }),
        })
    }

    fn execute(&self, part: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.parts[part].read(&self.schema())
    }

    /// With the number of rows known, they need not be read to be counted; nor for the greatest of them.
    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let parts = match arguments.partition() {
            Some(part) => &self.parts[part..=part],
            None => &self.parts[..],
        };
        let mut statistics = Statistics::new_unknown(&self.schema());
        if let Some(rows) = parts.iter().map(|part| part.rows()).sum() {
            statistics.num_rows = Precision::Exact(rows);
        }
        for (column, known) in statistics.column_statistics.iter_mut().enumerate() {
            let ColumnStats { range, sum, nulls } = self.known(column, parts);
            if let Some((least, most)) = range {
                known.min_value = Precision::Exact(least);
                known.max_value = Precision::Exact(most);
            }
            if let Some(sum) = sum.filter(|_| self.tells_sums) {
                known.sum_value = Precision::Exact(ScalarValue::Int64(Some(sum)));
            }
            if let Some(nulls) = nulls {
                known.null_count = Precision::Exact(nulls);
            }
        }
        Ok(Arc::new(statistics))
    }
}
