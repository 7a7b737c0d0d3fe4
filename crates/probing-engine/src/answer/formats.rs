//! Answers as they leave: a table for people, rows for programs.

mod json;
mod parquet_file;
mod text;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv::WriterBuilder;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::ipc::writer::StreamWriter;

pub use self::text::Layout;

use crate::answer::{ResultStream, Summary};
use crate::columns::arrays::in_schema;
use crate::error::EngineError;
use crate::memory;

/// Of rows that are shown all at once. Their text takes some times as much.
const MAX_BUFFERED_BYTES: usize = 256 << 20;
/// At most this part of what the query may take.
const SHARE_KEPT: usize = 4;

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns.
    Text(Layout),
    /// An array of objects, one for each row.
    Json,
    /// With a first line that names the columns.
    Csv,
    /// A stream of Arrow's IPC format.
    Arrow,
}

/// Rows as programs take them over JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonTable {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<serde_json::Value>>,
}

impl ResultStream {
    /// Writes all rows, as they come where the format allows it.
    pub fn write(mut self, format: Format, out: &mut dyn Write) -> Result<Summary, EngineError> {
        let not_written = |source| EngineError::NotWritten { source };
        match format {
            Format::Text(layout) => {
                let batches = self.all()?;
                // Nobody wants to see the frame of a table that could not be read.
                let schema = self.schema();
                let summary = self.end()?;
                let text = text::table(&schema, &batches, layout)?;
                out.write_all(text.as_bytes()).map_err(not_written)?;
                return Ok(summary);
            }
            Format::Json => json::write(&mut self, out)?,
            Format::Csv => {
                let mut writer = WriterBuilder::new().with_header(true).build(&mut *out);
                // The header comes with the first batch, also when there is none.
                writer.write(&RecordBatch::new_empty(self.schema()))?;
                while let Some(batch) = self.blocking_next()? {
                    writer.write(&batch)?;
                }
            }
            Format::Arrow => {
                let schema = without_views(&self.schema());
                let mut writer = StreamWriter::try_new(&mut *out, &schema)?;
                while let Some(batch) = self.blocking_next()? {
                    writer.write(&in_schema(&batch, &schema)?)?;
                }
                writer.finish()?;
            }
        }
        out.flush().map_err(not_written)?;
        self.end()
    }

    /// Writes all rows into a Parquet file, which is there when all of it is.
    pub fn write_parquet(mut self, path: &Path) -> Result<Summary, EngineError> {
        parquet_file::write(&mut self, path)?;
        self.end()
    }

    /// All rows as values of JSON, but no more than `most` of them.
    pub fn into_json(mut self, most: usize) -> Result<(JsonTable, Summary), EngineError> {
        let table = json::table(&mut self, most)?;
        Ok((table, self.end()?))
    }

    fn all(&mut self) -> Result<Vec<RecordBatch>, EngineError> {
        let (mut batches, mut scales) = (Vec::new(), Scales::of(self));
        while let Some(batch) = self.blocking_next()? {
            scales.add(&batch)?;
            batches.push(batch);
        }
        Ok(batches)
    }
}

/// Weighs rows that have to be kept until the last has come.
struct Scales {
    left: usize,
    most: usize,
}

impl Scales {
    fn of(answer: &ResultStream) -> Self {
        let most = MAX_BUFFERED_BYTES.min(answer.memory_bytes() / SHARE_KEPT);
        Self { left: most, most }
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        let left = self.left.checked_sub(memory::weight(batch));
        let megabytes = self.most >> 20;
        self.left = left.ok_or(EngineError::TooMuch { megabytes })?;
        Ok(())
    }
}

/// With texts as everybody can read them: not all readers know views yet.
fn without_views(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Utf8View => field.as_ref().clone().with_data_type(DataType::Utf8),
        DataType::BinaryView => field.as_ref().clone().with_data_type(DataType::Binary),
        _ => field.as_ref().clone(),
    };
    Arc::new(Schema::new(
        schema.fields().iter().map(field).collect::<Vec<_>>(),
    ))
}
