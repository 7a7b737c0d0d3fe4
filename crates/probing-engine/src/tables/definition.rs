//! The definition of a table: its name, its documented columns, an example, and its source of rows.
//!
//! `DESCRIBE`, `docs/tables.md` and the schema that queries are checked against come from it.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::sources::rows::RowsBuilder;
use crate::sources::target_snapshot::{Needs, ReadFailure, TargetSnapshot};

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

/// Whether a query names a column.
pub(crate) type ColumnFilter<'a> = dyn Fn(&str) -> bool + 'a;

/// A table that is read from the targets when a query asks for it.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// With its schema: `python.backtrace`.
    pub name: &'static str,
    pub doc: &'static str,
    /// Without those of [`WHOSE`].
    pub columns: &'static [Column],
    /// A query that shows what it is good for.
    pub example: &'static str,
    /// What has to be read of a target when these columns are asked for.
    pub(crate) needs: fn(&ColumnFilter<'_>) -> Needs,
    pub(crate) fill: fn(&TargetSnapshot, &mut RowsBuilder) -> Result<(), ReadFailure>,
}

impl Table {
    /// Schema and name.
    pub fn path(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }

    /// Those of [`WHOSE`], then its own.
    pub fn all_columns(&self) -> impl Iterator<Item = &Column> {
        WHOSE.iter().chain(self.columns)
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        let field = |column: &Column| Field::new(column.name, column.kind.data_type(), true);
        Arc::new(Schema::new(
            self.all_columns().map(field).collect::<Vec<_>>(),
        ))
    }
}
