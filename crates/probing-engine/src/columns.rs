//! Columns: what they hold, in documentation, as rows that are put together, and as arrays of a store.

pub(crate) mod arrays;
pub(crate) mod rows;

use datafusion::arrow::datatypes::{DataType, TimeUnit};

/// What a column holds. Few kinds, so that numbers of different tables can be compared as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Int,
    Float,
    Bool,
    Text,
    /// A moment, in UTC.
    Time,
}

impl Kind {
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Bool => DataType::Boolean,
            Self::Text => DataType::Utf8View,
            Self::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("+00:00".into())),
        }
    }

    /// As people are told.
    pub fn word(self) -> &'static str {
        match self {
            Self::Int => "integer",
            Self::Float => "number",
            Self::Bool => "boolean",
            Self::Text => "text",
            Self::Time => "time",
        }
    }
}

/// One column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    pub doc: &'static str,
}

pub(crate) const fn col(name: &'static str, kind: Kind, doc: &'static str) -> Column {
    Column { name, kind, doc }
}

/// Whose row it is: the first columns of every table.
pub const WHOSE: [Column; 3] = [
    col("pid", Kind::Int, "process that the row is about"),
    col("rank", Kind::Int, "its number in its job, if it has one"),
    col("host", Kind::Text, "machine that it runs on"),
];
