//! The definition of a table: its name, its documented columns, an example, and its source of rows.
//!
//! `DESCRIBE`, `docs/tables.md` and the schema that queries are checked against come from it.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};

use crate::columns::rows::RowsBuilder;
use crate::columns::{Column, WHOSE};
use crate::snapshot::target_snapshot::{Needs, ReadFailure, TargetSnapshot};

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
