//! Storage: what processes have recorded or left behind, while they live and after.

pub(crate) mod capture;
pub(crate) mod cleanup;
pub(crate) mod core_file;
pub(crate) mod recording;
