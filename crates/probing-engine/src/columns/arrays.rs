//! Columns of a store as Arrow arrays.
//!
//! The bytes stay where they are: a store lays them out as Arrow does.
#![expect(
    unsafe_code,
    reason = "texts were checked when they were read, and are not checked again"
)]

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, PrimitiveArray, RecordBatch, StringViewArray,
};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float64Type, Int32Type, Int64Type, SchemaRef,
    TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type,
};
use datafusion::arrow::error::ArrowError;
use probing_store::{Bytes, ColumnData, Kind};

use crate::columns::Kind as Shown;

/// What a kind of the store is in a query.
pub(crate) fn data_type(kind: Kind) -> DataType {
    match kind {
        Kind::Time => Shown::Time.data_type(),
        Kind::Bool => DataType::Boolean,
        Kind::U8 => DataType::UInt8,
        Kind::U16 => DataType::UInt16,
        Kind::I32 => DataType::Int32,
        Kind::U32 => DataType::UInt32,
        Kind::I64 => DataType::Int64,
        Kind::F64 => DataType::Float64,
        Kind::Bytes16 => DataType::FixedSizeBinary(16),
        Kind::Symbol | Kind::Text => DataType::Utf8View,
    }
}

/// As people are told.
pub(crate) fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Time => Shown::Time.word(),
        Kind::Bool => Shown::Bool.word(),
        Kind::U8 | Kind::U16 | Kind::I32 | Kind::U32 | Kind::I64 => Shown::Int.word(),
        Kind::F64 => Shown::Float.word(),
        Kind::Bytes16 => "16 bytes",
        Kind::Symbol | Kind::Text => Shown::Text.word(),
    }
}

/// The column as an array.
pub(crate) fn array(data: ColumnData) -> Result<ArrayRef, ArrowError> {
    let rows = data.rows;
    let bits = |bytes: Bytes| BooleanBuffer::new(buffer(bytes), 0, rows);
    // Where nothing is missing, kernels need not look.
    let nulls = data
        .validity
        .map(|validity| NullBuffer::new(bits(validity)))
        .filter(|nulls| nulls.null_count() > 0);
    Ok(match data.kind {
        Kind::Bool => Arc::new(BooleanArray::new(bits(data.values), nulls)),
        Kind::U8 => primitive::<UInt8Type>(data.values, rows, nulls)?,
        Kind::U16 => primitive::<UInt16Type>(data.values, rows, nulls)?,
        Kind::I32 => primitive::<Int32Type>(data.values, rows, nulls)?,
        Kind::U32 => primitive::<UInt32Type>(data.values, rows, nulls)?,
        Kind::I64 => primitive::<Int64Type>(data.values, rows, nulls)?,
        Kind::F64 => primitive::<Float64Type>(data.values, rows, nulls)?,
        Kind::Time => {
            let values = ScalarBuffer::new(buffer(data.values), 0, rows);
            let array = PrimitiveArray::<TimestampNanosecondType>::try_new(values, nulls)?;
            Arc::new(array.with_data_type(Shown::Time.data_type()))
        }
        Kind::Bytes16 => Arc::new(FixedSizeBinaryArray::try_new(
            16,
            buffer(data.values),
            nulls,
        )?),
        Kind::Symbol | Kind::Text => {
            let views = ScalarBuffer::new(buffer(data.values), 0, rows);
            let texts = data.texts.unwrap_or_default();
            let texts: Vec<Buffer> = texts.into_iter().map(shared).collect();
            // SAFETY: `Snapshot::read` promises of a column of text that each of its views is inside of these buffers, and
            // that what it points at is UTF-8; neither changes any more, since both are copies of our own.
            Arc::new(unsafe { StringViewArray::new_unchecked(views, texts, nulls) })
        }
    })
}

fn primitive<T: ArrowPrimitiveType>(
    values: Bytes,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let values = ScalarBuffer::new(buffer(values), 0, rows);
    Ok(Arc::new(PrimitiveArray::<T>::try_new(values, nulls)?))
}

fn buffer(bytes: Bytes) -> Buffer {
    let (words, length) = bytes.into_words();
    Buffer::from_vec(words).slice_with_length(0, length)
}

/// Texts that several columns point into.
fn shared(bytes: Arc<Bytes>) -> Buffer {
    struct Owner(Arc<Bytes>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            self.0.as_slice()
        }
    }
    Buffer::from(bytes::Bytes::from_owner(Owner(bytes)))
}

/// The same rows, in the types of a schema with the same columns.
pub(crate) fn in_schema(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns: Result<Vec<ArrayRef>, ArrowError> = columns
        .map(|(column, field)| cast(column, field.data_type()))
        .collect();
    RecordBatch::try_new(Arc::clone(schema), columns?)
}
