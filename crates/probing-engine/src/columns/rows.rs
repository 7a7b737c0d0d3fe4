//! Rows as columns, of which only those are kept that the query names.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, RecordBatch, RecordBatchOptions,
    StringViewBuilder, TimestampNanosecondBuilder,
};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;

use crate::columns::{Column, Kind};

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(Cow<'a, str>),
    /// Nanoseconds since 1970.
    Time(i64),
}

impl Value<'_> {
    pub(crate) fn time(nanos: u64) -> Self {
        Self::Time(nanos as i64)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.into())
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text.as_str().into())
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Int(number as i64)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<usize> for Value<'_> {
    fn from(number: usize) -> Self {
        Self::Int(number as i64)
    }
}

impl From<f64> for Value<'_> {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<bool> for Value<'_> {
    fn from(is_so: bool) -> Self {
        Self::Bool(is_so)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// Rows of one table, and of one target at a time.
pub(crate) struct RowsBuilder {
    /// Each column that is wanted: its place in the table, and what it holds so far.
    wanted: Vec<(usize, Builder)>,
    names: Vec<&'static str>,
    schema: SchemaRef,
    /// The first values of every row.
    whose: Vec<Value<'static>>,
    count: usize,
    /// No more than these are wanted.
    limit: Option<usize>,
}

enum Builder {
    Int(Int64Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringViewBuilder),
    Time(TimestampNanosecondBuilder),
}

impl RowsBuilder {
    /// For these columns of a table that has `all`.
    pub(crate) fn of(
        all: &[Column],
        schema: &Schema,
        projection: &[usize],
        limit: Option<usize>,
    ) -> Result<Self, ArrowError> {
        let builder = |place: &usize| (*place, Builder::of(all[*place].kind));
        Ok(Self {
            wanted: projection.iter().map(builder).collect(),
            names: projection.iter().map(|place| all[*place].name).collect(),
            schema: Arc::new(schema.project(projection)?),
            whose: Vec::new(),
            count: 0,
            limit,
        })
    }

    /// Whether the query names this column.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// The rows that follow begin with these values.
    pub(crate) fn are_of(&mut self, whose: [Value<'static>; 3]) {
        self.whose = whose.into();
    }

    pub(crate) fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.count >= limit)
    }

    /// The next row: all columns of the table behind the first three, in their order.
    pub(crate) fn push<const COLUMNS: usize>(&mut self, values: [Value<'_>; COLUMNS]) {
        if self.is_full() {
            return;
        }
        self.count += 1;
        let first = self.whose.len();
        for (place, builder) in &mut self.wanted {
            match place.checked_sub(first) {
                Some(own) => builder.push(&values[own]),
                None => builder.push(&self.whose[*place]),
            }
        }
    }

    pub(crate) fn batch(self) -> Result<RecordBatch, ArrowError> {
        let arrays = self.wanted.into_iter().map(|(_, builder)| builder.array());
        // A query may count rows without naming a column.
        let options = RecordBatchOptions::new().with_row_count(Some(self.count));
        RecordBatch::try_new_with_options(self.schema, arrays.collect(), &options)
    }
}

impl Builder {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Int => Self::Int(Int64Builder::new()),
            Kind::Float => Self::Float(Float64Builder::new()),
            Kind::Bool => Self::Bool(BooleanBuilder::new()),
            Kind::Text => Self::Text(StringViewBuilder::new()),
            Kind::Time => {
                Self::Time(TimestampNanosecondBuilder::new().with_data_type(Kind::Time.data_type()))
            }
        }
    }

    /// A value of another kind than the column's is no value.
    fn push(&mut self, value: &Value<'_>) {
        match (self, value) {
            (Self::Int(builder), Value::Int(number)) => builder.append_value(*number),
            (Self::Float(builder), Value::Float(number)) => builder.append_value(*number),
            (Self::Bool(builder), Value::Bool(is_so)) => builder.append_value(*is_so),
            (Self::Text(builder), Value::Text(text)) => builder.append_value(text),
            (Self::Time(builder), Value::Time(nanos)) => builder.append_value(*nanos),
            (builder, value) => {
                debug_assert_eq!(*value, Value::Null, "a value of another kind");
                builder.push_null();
            }
        }
    }

    fn push_null(&mut self) {
        match self {
            Self::Int(builder) => builder.append_null(),
            Self::Float(builder) => builder.append_null(),
            Self::Bool(builder) => builder.append_null(),
            Self::Text(builder) => builder.append_null(),
            Self::Time(builder) => builder.append_null(),
        }
    }

    fn array(self) -> ArrayRef {
        match self {
            Self::Int(mut builder) => Arc::new(builder.finish()),
            Self::Float(mut builder) => Arc::new(builder.finish()),
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Text(mut builder) => Arc::new(builder.finish()),
            Self::Time(mut builder) => Arc::new(builder.finish()),
        }
    }
}
