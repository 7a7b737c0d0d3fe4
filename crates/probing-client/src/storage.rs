//! Storage: recorded rows, captures and core files of processes.

pub(crate) mod capture;
pub(crate) mod cleanup;
pub(crate) mod core_file;
pub(crate) mod recording;
