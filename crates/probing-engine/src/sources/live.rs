//! A table that is read from the targets when a query runs.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;

use crate::columns::Column;
use crate::columns::rows::RowsBuilder;
use crate::snapshot::target_snapshot::{TargetSetSnapshot, TargetSnapshot};
use crate::sources::predicate::Condition;
use crate::sources::scan::{Part, Scan};
use crate::sources::target_columns::{chosen, pushdown, whose};
use crate::tables::definition::Table;

/// One table, over the targets of one query.
#[derive(Debug)]
pub(crate) struct LiveTable {
    table: &'static Table,
    columns: Arc<[Column]>,
    schema: SchemaRef,
    sight: Arc<TargetSetSnapshot>,
}

impl LiveTable {
    pub(crate) fn new(table: &'static Table, sight: Arc<TargetSetSnapshot>) -> Self {
        Self {
            table,
            columns: table.all_columns().copied().collect(),
            schema: table.schema(),
            sight,
        }
    }
}

#[async_trait]
impl TableProvider for LiveTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// A condition on whose rows they are spares asking the others.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(pushdown(filters, TableProviderFilterPushDown::Unsupported))
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.columns.len()).collect();
        let projection: Vec<usize> = projection.cloned().unwrap_or_else(all);
        let names: Vec<&str> = projection
            .iter()
            .map(|place| self.columns[*place].name)
            .collect();
        self.sight
            .need((self.table.needs)(&|name| names.contains(&name)));
        let chosen = chosen(&self.sight.all, session, filters)?;
        let note = format!(", targets={} of {}", chosen.len(), self.sight.all.len());
        let schema = Arc::new(self.schema.project(&projection)?);
        let part = LivePart {
            table: self.table,
            columns: Arc::clone(&self.columns),
            schema: Arc::clone(&self.schema),
            projection,
            limit,
            sight: Arc::clone(&self.sight),
            chosen,
        };
        let parts: Vec<Arc<dyn Part>> = vec![Arc::new(part)];
        Ok(Arc::new(Scan::of(self.table.name, note, schema, parts)))
    }
}

/// The whole table: targets are asked at the same time anyway.
struct LivePart {
    table: &'static Table,
    columns: Arc<[Column]>,
    /// Of all columns.
    schema: SchemaRef,
    projection: Vec<usize>,
    limit: Option<usize>,
    sight: Arc<TargetSetSnapshot>,
    chosen: Vec<Arc<TargetSnapshot>>,
}

impl LivePart {
    /// A batch for each target that answers.
    fn batches(&self) -> Vec<Result<RecordBatch>> {
        let (table, columns) = (self.table, Arc::clone(&self.columns));
        let (schema, projection, limit) = (
            Arc::clone(&self.schema),
            self.projection.clone(),
            self.limit,
        );
        self.sight.ask(&self.chosen, move |seen| {
            let mut rows = match RowsBuilder::of(&columns, &schema, &projection, limit) {
                Ok(rows) => rows,
                Err(error) => return Ok(Err(error.into())),
            };
            rows.are_of(whose(seen));
            (table.fill)(seen, &mut rows)?;
            Ok(rows.batch().map_err(Into::into))
        })
    }
}

impl Part for LivePart {
    fn read(&self, schema: &SchemaRef) -> Result<SendableRecordBatchStream> {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(schema), 2);
        let sender = stream.tx();
        let part = Self {
            columns: Arc::clone(&self.columns),
            schema: Arc::clone(&self.schema),
            projection: self.projection.clone(),
            sight: Arc::clone(&self.sight),
            chosen: self.chosen.clone(),
            ..*self
        };
        stream.spawn_blocking(move || {
            for batch in part.batches() {
                if sender.blocking_send(batch).is_err() {
                    // Enough rows were read: nobody listens any more.
                    break;
                }
            }
            Ok(())
        });
        Ok(stream.build())
    }

    fn rows(&self) -> Option<usize> {
        None
    }

    fn with_condition(&self, _: Condition) -> Option<Arc<dyn Part>> {
        None
    }
}

impl fmt::Debug for LivePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.table.name)
    }
}
