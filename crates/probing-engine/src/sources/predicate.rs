//! What rows have to meet, known to the scan that reads them: it then copies no more than it must.
//!
//! A condition may become stricter while a query runs (the tenth best so far), or be known only then (the answer to a
//! question within the question).

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array as _, AsArray as _, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr_common::physical_expr::{
    snapshot_generation, snapshot_physical_expr,
};

/// A condition on the rows of a scan.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    whole: Arc<dyn PhysicalExpr>,
    /// The columns that it names, by their places among those that are read.
    pub(crate) columns: Vec<usize>,
    /// The same over these alone.
    own: Arc<dyn PhysicalExpr>,
    pub(crate) schema: SchemaRef,
}

impl Condition {
    /// `schema` is that of all columns that are read.
    pub(crate) fn new(whole: Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Self> {
        let columns = collect_columns(&whole);
        let mut columns: Vec<usize> = columns.iter().map(Column::index).collect();
        columns.sort_unstable();
        let schema = Arc::new(schema.project(&columns)?);
        let own = reassign_expr_columns(Arc::clone(&whole), &schema)?;
        Ok(Self {
            whole,
            columns,
            own,
            schema,
        })
    }

    /// Which rows meet it, by a batch of its own columns.
    pub(crate) fn met(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        let met = self.own.evaluate(batch)?.into_array(batch.num_rows())?;
        let met = met.as_boolean();
        // What is unknown is not met.
        Ok(match met.nulls() {
            None => met.clone(),
            Some(nulls) => BooleanArray::new(met.values() & nulls.inner(), None),
        })
    }

    /// As it stands now: what needs no row has its value.
    pub(crate) fn now(&self) -> Result<Arc<dyn PhysicalExpr>> {
        let empty = RecordBatch::new_empty(Arc::clone(&self.schema));
        let known = |part: Arc<dyn PhysicalExpr>| {
            let is_known = part.downcast_ref::<Literal>().is_some();
            if is_known || !collect_columns(&part).is_empty() {
                return Ok(Transformed::no(part));
            }
            Ok(match part.evaluate(&empty) {
                Ok(ColumnarValue::Scalar(value)) => {
                    Transformed::yes(Arc::new(Literal::new(value)) as _)
                }
                // It stays what it is, and nothing is concluded from it.
                Ok(ColumnarValue::Array(_)) | Err(_) => Transformed::no(part),
            })
        };
        let now = snapshot_physical_expr(Arc::clone(&self.own))?;
        now.transform_up(known).data()
    }

    /// Another number whenever it has become stricter.
    pub(crate) fn generation(&self) -> u64 {
        snapshot_generation(&self.own)
    }

    /// Over all columns that are read.
    pub(crate) fn whole(&self) -> Arc<dyn PhysicalExpr> {
        Arc::clone(&self.whole)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.whole.fmt(f)
    }
}
