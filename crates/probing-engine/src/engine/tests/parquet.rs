//! Rows in a Parquet file.

use std::fs::File;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use probing_client::{Members, Ranks};

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
