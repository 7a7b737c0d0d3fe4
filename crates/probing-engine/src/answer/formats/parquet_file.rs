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
use crate::error::EngineError;
use crate::formats::{in_schema, without_views};

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

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::RecordBatch;
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use probing_client::{Members, Ranks};

    use super::*;
    use crate::answer::QueryLimits;
    use crate::engine::Engine;

    #[test]
    fn a_file_holds_what_was_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.parquet");
        let members = Members {
            all: Vec::new(),
            missing: Ranks::default(),
        };
        let sql = "SELECT * FROM (VALUES (1, 'a', 1.5, true, TIMESTAMP '2026-01-02T03:04:05.000000006'), \
                   (NULL, 'a text of more than twelve bytes', 'NaN'::double, NULL, NULL)) AS t(n, text, x, ok, ts)";
        let engine = Engine::start().unwrap();
        let answer = engine.blocking_ask(sql, &members, &QueryLimits::default());
        assert_eq!(answer.unwrap().write_parquet(&path).unwrap().rows, 2);
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        let batches: Result<Vec<RecordBatch>, _> = reader.build().unwrap().collect();
        insta::assert_snapshot!(pretty_format_batches(&batches.unwrap()).unwrap(), @"
        +---+----------------------------------+-----+------+-------------------------------+
        | n | text                             | x   | ok   | ts                            |
        +---+----------------------------------+-----+------+-------------------------------+
        | 1 | a                                | 1.5 | true | 2026-01-02T03:04:05.000000006 |
        |   | a text of more than twelve bytes | NaN |      |                               |
        +---+----------------------------------+-----+------+-------------------------------+
        ");
        // Nothing else is beside it.
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }
}
