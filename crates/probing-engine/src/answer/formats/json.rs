//! Rows as JSON.

use std::io::Write;

use datafusion::arrow::array::{Array, AsArray as _, RecordBatch};
use datafusion::arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::Value;

use crate::answer::ResultStream;
use crate::answer::formats::{JsonTable, Scales};
use crate::error::EngineError;

/// One object a line, in an array. Columns of the same name follow each other: the last counts for most readers.
pub(super) fn write(answer: &mut ResultStream, out: &mut dyn Write) -> Result<(), EngineError> {
    let not_written = |source| EngineError::NotWritten { source };
    let schema = answer.schema();
    let names: Vec<String> = schema
        .fields()
        .iter()
        .map(|field| Value::from(field.name().as_str()).to_string())
        .collect();
    let mut before = "[\n";
    while let Some(batch) = answer.blocking_next()? {
        let cells = cells(&batch)?;
        for row in 0..batch.num_rows() {
            let pairs = names.iter().zip(&cells);
            let pairs: Vec<String> = pairs
                .map(|(name, cell)| format!("{name}: {}", cell(row)))
                .collect();
            write!(out, "{before}{{{}}}", pairs.join(", ")).map_err(not_written)?;
            before = ",\n";
        }
    }
    let end = if before == "[\n" { "[]\n" } else { "\n]\n" };
    out.write_all(end.as_bytes()).map_err(not_written)
}

pub(super) fn table(answer: &mut ResultStream, most: usize) -> Result<JsonTable, EngineError> {
    let schema = answer.schema();
    let columns = schema.fields().iter().map(|field| field.name().clone());
    let mut table = JsonTable {
        columns: columns.collect(),
        rows: Vec::new(),
    };
    let mut scales = Scales::of(answer);
    while let Some(batch) = answer.blocking_next()? {
        if table.rows.len() + batch.num_rows() > most {
            return Err(EngineError::TooMany { most });
        }
        scales.add(&batch)?;
        let cells = cells(&batch)?;
        let row = |row: usize| cells.iter().map(|cell| cell(row)).collect();
        table.rows.extend((0..batch.num_rows()).map(row));
    }
    Ok(table)
}

type Cell<'a> = Box<dyn Fn(usize) -> Value + 'a>;

fn cells(batch: &RecordBatch) -> Result<Vec<Cell<'_>>, ArrowError> {
    let columns = batch.columns().iter();
    columns.map(|column| cell(column.as_ref())).collect()
}

/// Numbers and truth are themselves, everything else is text.
fn cell(array: &dyn Array) -> Result<Cell<'_>, ArrowError> {
    macro_rules! number {
        ($kind:ty) => {{
            let array = array.as_primitive::<$kind>();
            Box::new(move |row| Value::from(array.value(row)))
        }};
    }
    let value: Cell<'_> = match array.data_type() {
        DataType::Null => Box::new(|_| Value::Null),
        DataType::Boolean => {
            let array = array.as_boolean();
            Box::new(move |row| Value::from(array.value(row)))
        }
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        // What is no number for JSON becomes null.
        DataType::Float32 => number!(Float32Type),
        DataType::Float64 => number!(Float64Type),
        DataType::Utf8View => {
            let array = array.as_string_view();
            Box::new(move |row| Value::from(array.value(row)))
        }
        _ => {
            let options = FormatOptions::new().with_display_error(true);
            let formatter = ArrayFormatter::try_new(array, &options)?;
            Box::new(move |row| Value::from(formatter.value(row).to_string()))
        }
    };
    Ok(Box::new(move |row| {
        if array.is_null(row) {
            Value::Null
        } else {
            value(row)
        }
    }))
}
