//! The tables that are read from targets during a query, one file each.

mod backtrace;
mod breakpoints;
mod catalog;
pub(crate) mod definition;
mod envs;
mod info;
mod process_threads;
mod python_threads;
pub(crate) mod reference;

use crate::tables::definition::Table;

/// In the order in which people are told of them.
pub const ALL: [&Table; 9] = [
    &backtrace::TABLE,
    &backtrace::WITH_NATIVE,
    &python_threads::TABLE,
    &breakpoints::TABLE,
    &info::TABLE,
    &process_threads::TABLE,
    &envs::TABLE,
    &catalog::TABLES,
    &catalog::COLUMNS,
];
