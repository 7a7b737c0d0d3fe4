//! Sources of rows: live, recorded, remote and captured.

pub(crate) mod capture_table;
pub(crate) mod live;
pub(crate) mod predicate;
pub(crate) mod recorded;
pub(crate) mod remote_query;
pub(crate) mod remote_table;
pub(crate) mod scan;
pub(crate) mod target_columns;
