//! The schema of a recorded table and its recorder, as files of a store have them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::process::Pid;

/// Columns of one table at most, its time among them.
pub const MAX_COLUMNS: usize = 256;
/// Bytes of a table's or a column's name at most.
pub const MAX_NAME: usize = 128;
/// Where tables of the program go when their name says nothing else.
pub const USER: &str = "user";
/// The first column of every table: when the row was recorded.
pub const TIME: &str = "ts";

/// A recorded table. The first column is its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// `user.train`
    pub table: String,
    pub columns: Vec<Column>,
}

/// One column of a recorded table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    /// Whether a row may be without a value.
    #[serde(default)]
    pub nullable: bool,
    /// What it means, for `DESCRIBE`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub doc: String,
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Nanoseconds since 1970; on file, of the monotonic clock.
    Time,
    Bool,
    U8,
    U16,
    I32,
    U32,
    I64,
    F64,
    /// Sixteen bytes as they are: an id, an address.
    Bytes16,
    /// One of few texts, kept once each; a row has its number.
    Symbol,
    /// Any text.
    Text,
}

impl Kind {
    /// The kind that holds the values of both, when a column has changed its kind over time.
    #[must_use]
    pub fn widened(self, other: Self) -> Self {
        if self == other {
            return self;
        }
        match self.width_among_numbers().zip(other.width_among_numbers()) {
            Some((ours, theirs)) if ours.max(theirs) == Self::FLOATS => Self::F64,
            Some(_) => Self::I64,
            None => Self::Text,
        }
    }

    const FLOATS: u8 = 2;

    fn width_among_numbers(self) -> Option<u8> {
        match self {
            Self::Bool => Some(0),
            Self::U8 | Self::U16 | Self::I32 | Self::U32 | Self::I64 => Some(1),
            Self::F64 => Some(Self::FLOATS),
            Self::Time | Self::Bytes16 | Self::Symbol | Self::Text => None,
        }
    }
}

/// Why a schema cannot be that of a recorded table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("the first column of a recorded table is `ts`, its time: {table}")]
    NoTime { table: String },
    #[error("not a name for a table or a column: {name:?}")]
    BadName { name: String },
    #[error("two columns have the same name: {name}")]
    Twice { name: String },
    #[error("a table has at most {MAX_COLUMNS} columns, this one has: {count}")]
    TooManyColumns { count: usize },
}

impl SchemaError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NoTime { .. } => "put it first, of kind time and never empty".to_owned(),
            Self::BadName { .. } => format!(
                "a name has 1 to {MAX_NAME} bytes, no control characters and no slash; a table may have a schema before it: `metrics.train`"
            ),
            Self::Twice { .. } => {
                "names differ in more than upper and lower case; `ts` is the row's time".to_owned()
            }
            Self::TooManyColumns { .. } => "record rare columns in their own table".to_owned(),
        }
    }
}

impl Schema {
    /// Whether this can be a recorded table.
    pub fn check(&self) -> Result<(), SchemaError> {
        check_table(&self.table)?;
        let count = self.columns.len();
        if count > MAX_COLUMNS {
            return Err(SchemaError::TooManyColumns { count });
        }
        match self.columns.first() {
            Some(first) if first.kind == Kind::Time && first.name == TIME && !first.nullable => {}
            _ => {
                return Err(SchemaError::NoTime {
                    table: self.table.clone(),
                });
            }
        }
        let mut seen = std::collections::HashSet::new();
        for column in &self.columns {
            check_name(&column.name)?;
            if !seen.insert(column.name.to_lowercase()) {
                return Err(SchemaError::Twice {
                    name: column.name.clone(),
                });
            }
        }
        Ok(())
    }

    /// Its schema, and its name in it.
    pub fn names(&self) -> (&str, &str) {
        self.table.split_once('.').unwrap_or((USER, &self.table))
    }
}

/// A table is called `schema.name`, both of which are names.
fn check_table(table: &str) -> Result<(), SchemaError> {
    let (schema, name) = table.split_once('.').ok_or_else(|| SchemaError::BadName {
        name: table.to_owned(),
    })?;
    check_name(schema)?;
    check_name(name)
}

fn check_name(name: &str) -> Result<(), SchemaError> {
    let bad = |c: char| c.is_control() || c == '/' || c == '\u{fffd}';
    if name.is_empty() || name.len() > MAX_NAME || name.contains(bad) {
        return Err(SchemaError::BadName {
            name: name.chars().take(MAX_NAME).collect(),
        });
    }
    Ok(())
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "time",
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::F64 => "f64",
            Self::Bytes16 => "bytes16",
            Self::Symbol => "symbol",
            Self::Text => "text",
        })
    }
}

/// Who records, and where to: `store.json` in the process's folder. It outlives the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorder {
    /// As the process sees itself.
    pub pid: Pid,
    pub start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`
    pub boot_id: String,
    #[serde(default)]
    pub rank: Option<u32>,
    /// `3.12.1`
    #[serde(default)]
    pub python: Option<String>,
    #[serde(default)]
    pub command: Vec<String>,
    /// What its rings may have together.
    pub budget_bytes: u64,
    #[serde(default)]
    pub storage: Storage,
    /// Tables that lack values which the program has recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, LeftOut>,
}

/// Why values of a table were left out: its columns have changed too often, or are too many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The first of them.
    pub column: String,
    /// How many the table has.
    pub columns: usize,
}

/// Where the rows are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Storage {
    /// In files in memory, which stay when the process ends.
    #[default]
    Shared,
    /// Some or all only in the process's own memory: they end with it.
    Heap { reason: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(table: &str, names: &[&str]) -> Schema {
        let column = |name: &&str| Column {
            name: (*name).to_owned(),
            kind: if *name == TIME { Kind::Time } else { Kind::I64 },
            nullable: false,
            doc: String::new(),
        };
        Schema {
            table: table.to_owned(),
            columns: names.iter().map(column).collect(),
        }
    }

    #[test]
    fn a_table_has_a_time_and_names_that_differ() {
        assert_eq!(schema("user.t", &["ts", "a", "b"]).check(), Ok(()));
        assert_eq!(schema("user.a b-ü", &["ts"]).check(), Ok(()));
        let refused = |table, names: &[&str]| assert!(schema(table, names).check().is_err());
        refused("t", &["ts"]);
        refused(".t", &["ts"]);
        refused("user.", &["ts"]);
        refused("user./etc", &["ts"]);
        refused("user.t", &[]);
        refused("user.t", &["a", "ts"]);
        refused("user.t", &["ts", "a", "A"]);
        refused("user.t", &["ts", "a\nb"]);
        refused("user.t", &["ts", &"x".repeat(MAX_NAME + 1)]);
    }

    #[test]
    fn a_column_that_changed_its_kind_has_one_that_holds_all() {
        assert_eq!(Kind::I64.widened(Kind::I64), Kind::I64);
        assert_eq!(Kind::Bool.widened(Kind::I64), Kind::I64);
        assert_eq!(Kind::F64.widened(Kind::I64), Kind::F64);
        assert_eq!(Kind::Text.widened(Kind::F64), Kind::Text);
        assert_eq!(Kind::Symbol.widened(Kind::Text), Kind::Text);
        assert_eq!(Kind::Bytes16.widened(Kind::Bytes16), Kind::Bytes16);
    }
}
