//! Rows in a Parquet file.

use std::fs::File;
use std::io;
use std::path::Path;

use datafusion::arrow::datatypes::{DataType, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use crate::answer::ResultStream;
use crate::answer::formats::without_views;
use crate::columns::arrays::in_schema;
use crate::error::EngineError;

/// Writes beside `path` and renames when all is written: nobody finds half of a file.
pub(super) fn write(answer: &mut ResultStream, path: &Path) -> Result<(), EngineError> {
    let not_written = |source| EngineError::NotWritten { source };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(not_written)?;
    rows(answer, file.as_file_mut())?;
    file.persist(path)
        .map_err(|error| not_written(error.error))?;
    Ok(())
}

fn rows(answer: &mut ResultStream, file: &mut File) -> Result<(), EngineError> {
    let schema = without_views(&answer.schema());
    let properties = Some(properties(&schema));
    let mut writer = ArrowWriter::try_new(file, schema.clone(), properties).map_err(write_error)?;
    while let Some(batch) = answer.blocking_next()? {
        writer
            .write(&in_schema(&batch, &schema)?)
            .map_err(write_error)?;
    }
    writer.close().map_err(write_error)?;
    Ok(())
}

/// Times grow row by row: what they differ by takes less room than what they are.
fn properties(schema: &Schema) -> WriterProperties {
    let level = ZstdLevel::default();
    let mut properties = WriterProperties::builder().set_compression(Compression::ZSTD(level));
    for field in schema.fields() {
        if matches!(field.data_type(), DataType::Timestamp(..)) {
            let column = ColumnPath::new(vec![field.name().clone()]);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
    }
    properties.build()
}

fn write_error(error: ParquetError) -> EngineError {
    EngineError::NotWritten {
        source: io::Error::other(error),
    }
}
