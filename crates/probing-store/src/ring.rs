//! Rings: the parts of the file that one writer fills.

pub(crate) mod columns;
pub(crate) mod file;
pub(crate) mod header;
pub mod layout;
pub(crate) mod memory;
pub mod packed;
pub(crate) mod sizing;
pub(crate) mod strings;
pub(crate) mod zones;
