//! Rows that are picked from a side.

use std::ops::Range;

use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray, UInt32Array};
use datafusion::arrow::compute::{filter, take};
use datafusion::arrow::datatypes::UInt32Type;
use datafusion::common::Result;

#[derive(Debug)]
pub(super) enum RowSelection {
    /// They stand together: nothing has to be copied.
    Together(Range<usize>),
    Apart(UInt32Array),
}

impl RowSelection {
    pub(super) fn of(rows: Vec<u32>) -> Self {
        let are_together = rows.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        match rows.first() {
            Some(first) if are_together => {
                let first = *first as usize;
                Self::Together(first..first + rows.len())
            }
            _ => Self::Apart(rows.into()),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Together(rows) => rows.len(),
            Self::Apart(rows) => rows.len(),
        }
    }

    pub(super) fn each(&self, told: impl FnMut(usize)) {
        match self {
            Self::Together(rows) => rows.clone().for_each(told),
            Self::Apart(rows) => rows.values().iter().map(|row| *row as usize).for_each(told),
        }
    }

    /// Those of a column.
    pub(super) fn of_column(&self, column: &ArrayRef) -> Result<ArrayRef> {
        Ok(match self {
            Self::Together(rows) => column.slice(rows.start, rows.len()),
            Self::Apart(rows) => take(column, rows, None)?,
        })
    }

    /// Those for which it is so.
    pub(super) fn filtered(self, is_so: &BooleanArray) -> Result<Self> {
        let rows = match self {
            Self::Together(rows) => (rows.start as u32..rows.end as u32).collect(),
            Self::Apart(rows) => rows,
        };
        let rows = filter(&rows, is_so)?;
        Ok(Self::Apart(rows.as_primitive::<UInt32Type>().clone()))
    }
}
