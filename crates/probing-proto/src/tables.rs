//! Tables: schemas, and the tables that Probing records itself.

pub mod builtin;
pub mod schema;
