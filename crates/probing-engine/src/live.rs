//! A table that is read from the targets when a query runs.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array as _, AsArray as _, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;

use crate::rows::{Rows, Value};
use crate::scan::{Part, Scan};
use crate::sight::{Seen, Sight};
use crate::table::{Column, Table, WHOSE};

/// One table, over the targets of one query.
#[derive(Debug)]
pub(crate) struct LiveTable {
    table: &'static Table,
    columns: Arc<[Column]>,
    schema: SchemaRef,
    sight: Arc<Sight>,
}

impl LiveTable {
    pub(crate) fn new(table: &'static Table, sight: Arc<Sight>) -> Self {
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
        let support = |filter: &&Expr| {
            if is_about_whose(filter) {
                TableProviderFilterPushDown::Exact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(support).collect())
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

/// Whether it names no other columns than those that say whose a row is.
pub(crate) fn is_about_whose(filter: &Expr) -> bool {
    let columns = filter.column_refs();
    !columns.is_empty()
        && !filter.is_volatile()
        && columns
            .iter()
            .all(|column| WHOSE.iter().any(|whose| whose.name == column.name))
}

/// The targets that meet the conditions.
pub(crate) fn chosen(
    all: &[Arc<Seen>],
    session: &dyn Session,
    filters: &[Expr],
) -> Result<Vec<Arc<Seen>>> {
    let filters: Vec<&Expr> = filters
        .iter()
        .filter(|filter| is_about_whose(filter))
        .collect();
    if filters.is_empty() {
        return Ok(all.to_vec());
    }
    let batch = whose_rows(all)?;
    let schema = DFSchema::try_from(batch.schema())?;
    let mut kept = vec![true; all.len()];
    for filter in filters {
        let filter = session.create_physical_expr(filter.clone(), &schema)?;
        let fits = filter.evaluate(&batch)?.into_array(all.len())?;
        let fits = fits.as_boolean();
        for (index, kept) in kept.iter_mut().enumerate() {
            *kept &= fits.is_valid(index) && fits.value(index);
        }
    }
    let kept = all.iter().zip(kept).filter(|(_, kept)| *kept);
    Ok(kept.map(|(seen, _)| Arc::clone(seen)).collect())
}

fn whose_rows(all: &[Arc<Seen>]) -> Result<RecordBatch> {
    let table = Table {
        columns: &[],
        ..*crate::tables::ALL[0]
    };
    let mut rows = Rows::of(&WHOSE, &table.schema(), &[0, 1, 2], None)?;
    for seen in all {
        rows.are_of(whose(seen));
        rows.push([]);
    }
    Ok(rows.batch()?)
}

/// The first values of a target's rows.
pub(crate) fn whose(seen: &Seen) -> [Value<'static>; 3] {
    [
        seen.member.pid.map(|pid| pid.0).into(),
        seen.rank().into(),
        seen.host.to_string().into(),
    ]
}

/// The whole table: targets are asked at the same time anyway.
struct LivePart {
    table: &'static Table,
    columns: Arc<[Column]>,
    /// Of all columns.
    schema: SchemaRef,
    projection: Vec<usize>,
    limit: Option<usize>,
    sight: Arc<Sight>,
    chosen: Vec<Arc<Seen>>,
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
            let mut rows = match Rows::of(&columns, &schema, &projection, limit) {
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
}

impl fmt::Debug for LivePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.table.name)
    }
}
