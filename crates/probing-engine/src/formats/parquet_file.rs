//! Rows in a Parquet file.

use std::fs::File;
use std::io;
use std::path::Path;

use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::{in_schema, without_views};
use crate::engine::Answer;
use crate::error::EngineError;

/// Writes beside `path` and renames when all is written: nobody finds half of a file.
pub(super) fn write(answer: &mut Answer<'_>, path: &Path) -> Result<(), EngineError> {
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

fn rows(answer: &mut Answer<'_>, file: &mut File) -> Result<(), EngineError> {
    let schema = without_views(&answer.schema());
    let level = ZstdLevel::default();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .build();
    let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(told)?;
    while let Some(batch) = answer.next()? {
        writer.write(&in_schema(&batch, &schema)?).map_err(told)?;
    }
    writer.close().map_err(told)?;
    Ok(())
}

fn told(error: ParquetError) -> EngineError {
    EngineError::NotWritten {
        source: io::Error::other(error),
    }
}
