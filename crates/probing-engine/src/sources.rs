//! Sources of rows: live, recorded, remote and captured.

pub(crate) mod arrays;
pub(crate) mod capture_table;
pub(crate) mod live;
pub(crate) mod moment;
pub(crate) mod predicate;
pub(crate) mod recorded;
pub(crate) mod remote_query;
pub(crate) mod remote_table;
pub(crate) mod rows;
pub(crate) mod scan;
pub(crate) mod target_columns;
pub(crate) mod target_snapshot;
