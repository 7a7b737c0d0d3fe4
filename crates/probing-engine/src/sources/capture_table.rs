//! Tables of captures: the rows that there were when a capture was taken.

use std::io::Read;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, new_null_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::datasource::{MemTable, ViewTable, provider_as_source};
use datafusion::logical_expr::LogicalPlanBuilder;
use probing_capture::Capture;

use crate::error::EngineError;
use crate::memory;

/// The table of that name in captures; `None` when none of them has it. Its rows are kept in memory, as many bytes of them at
/// most as the query may take.
pub(crate) fn table(
    name: &str,
    captures: &[Capture],
    memory_bytes: usize,
) -> Result<Option<Arc<dyn TableProvider>>, EngineError> {
    let (mut batches, mut left) = (Vec::new(), memory_bytes);
    let mut schemas: Vec<SchemaRef> = Vec::new();
    for capture in captures {
        let mut names = capture.manifest().tables.iter();
        let Some(name) = names.find(|known| known.eq_ignore_ascii_case(name)) else {
            continue;
        };
        let rows = capture.table(name, |bytes| read(bytes, &mut left));
        let (schema, rows) = rows.map_err(probing_client::ClientError::from)??;
        schemas.push(schema);
        batches.extend(rows);
    }
    if schemas.is_empty() {
        return Ok(None);
    }
    let schema = merged(&schemas);
    let batches: Result<Vec<RecordBatch>, ArrowError> = batches
        .into_iter()
        .map(|batch| in_schema(&batch, &schema))
        .collect();
    let table = MemTable::try_new(schema, vec![batches?]);
    Ok(Some(Arc::new(
        table.map_err(|error| EngineError::of(error, ""))?,
    )))
}

/// The rows of both.
pub(crate) fn together(
    one: Arc<dyn TableProvider>,
    other: Arc<dyn TableProvider>,
) -> Result<Arc<dyn TableProvider>> {
    let scan = |name: &str, table| LogicalPlanBuilder::scan(name, provider_as_source(table), None);
    let other = scan("kept", other)?.build()?;
    let both = scan("living", one)?.union_by_name(other)?.build()?;
    Ok(Arc::new(ViewTable::new(both, None)))
}

type TableBatches = (SchemaRef, Vec<RecordBatch>);

fn read(bytes: &mut dyn Read, left: &mut usize) -> Result<TableBatches, EngineError> {
    let reader = StreamReader::try_new(bytes, None)?;
    let (schema, mut batches) = (reader.schema(), Vec::new());
    for batch in reader {
        let batch = batch?;
        let room = left.checked_sub(memory::weight(&batch));
        *left = room.ok_or_else(|| EngineError::TooLarge {
            message: "the rows of the captures are more than its limit".to_owned(),
        })?;
        batches.push(batch);
    }
    Ok((schema, batches))
}

/// Columns of all of them, wide enough.
fn merged(schemas: &[SchemaRef]) -> SchemaRef {
    let mut fields: Vec<Field> = Vec::new();
    for field in schemas.iter().flat_map(|schema| schema.fields()) {
        let there = fields
            .iter_mut()
            .find(|known| known.name().eq_ignore_ascii_case(field.name()));
        match there {
            Some(known) => {
                let both = (known.data_type().clone(), field.data_type());
                if both.0 != *both.1 {
                    known.set_data_type(wider(&both.0, both.1));
                }
            }
            None => fields.push(field.as_ref().clone().with_nullable(true)),
        }
    }
    Arc::new(Schema::new(fields))
}

fn wider(one: &DataType, other: &DataType) -> DataType {
    match (one, other) {
        (one, other) if one.is_integer() && other.is_integer() => DataType::Int64,
        (one, other) if one.is_numeric() && other.is_numeric() => DataType::Float64,
        _ => DataType::Utf8,
    }
}

fn in_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let own = batch.schema();
    let column = |field: &Arc<Field>| -> Result<ArrayRef, ArrowError> {
        let mut names = own.fields().iter();
        match names.position(|known| known.name().eq_ignore_ascii_case(field.name())) {
            Some(place) => cast(batch.column(place), field.data_type()),
            None => Ok(new_null_array(field.data_type(), batch.num_rows())),
        }
    };
    let columns = schema.fields().iter().map(column);
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)
}
