//! The leaf of every plan: reads a table in one or more parts, and tells `EXPLAIN` what it reads.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};

/// One part of a table, read by one thread.
pub(crate) trait Part: fmt::Debug + Send + Sync {
    fn read(&self, schema: &SchemaRef) -> Result<SendableRecordBatchStream>;

    /// How many rows it gives, when that is known before.
    fn rows(&self) -> Option<usize>;
}

/// Reads parts of a table at the same time.
#[derive(Debug)]
pub(crate) struct Scan {
    table: String,
    /// What was decided before reading, in words.
    note: String,
    parts: Vec<Arc<dyn Part>>,
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
            properties: Arc::new(properties),
        }
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
        )
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
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
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

    fn execute(&self, part: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.parts[part].read(&self.schema())
    }

    /// With the number of rows known, they need not be read to be counted.
    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let rows = match arguments.partition() {
            Some(part) => self.parts[part].rows(),
            None => self.parts.iter().map(|part| part.rows()).sum(),
        };
        let mut statistics = Statistics::new_unknown(&self.schema());
        if let Some(rows) = rows {
            statistics.num_rows = Precision::Exact(rows);
        }
        Ok(Arc::new(statistics))
    }
}
