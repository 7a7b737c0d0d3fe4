//! SQL over a set of targets: the only part that knows `DataFusion`.
//!
//! `engine` understands a statement, lets it through when it only reads, and runs it within bounds of time and `memory`.
//! The tables that it names (`tables`) are made for the targets as one `snapshot` has them, from `sources`: live targets,
//! recorded rows, captures, agents. `optimizer` replaces nodes of a plan, `session` holds its rules and `functions`; rows
//! come as an `answer`, which is written in one of its formats.
//!
//! *Invariant:* nothing is written anywhere but where the answer goes, and nothing runs in a target.
//! *Invariant:* a query reads each target once: what two tables say of it was so at the same moment.

mod answer;
mod columns;
mod engine;
mod error;
mod functions;
mod memory;
mod optimizer;
mod session;
mod snapshot;
mod sources;
mod tables;
#[cfg(test)]
mod test_baseline;

pub use self::answer::formats::{Format, JsonTable, Layout};
pub use self::answer::{QueryLimits, ResultStream, Stopper, Summary};
pub use self::columns::{Column, Kind, WHOSE};
pub use self::engine::moment::EngineSnapshot;
pub use self::engine::names::{SchemaNames, TableNames};
pub use self::engine::{Engine, SHOW_TABLES};
pub use self::error::EngineError;
pub use self::functions::{ALL as FUNCTIONS, Function};
pub use self::snapshot::target_snapshot::{ReadFailure, UnreadTarget, missing_targets};
pub use self::tables::ALL as TABLES;
pub use self::tables::definition::Table;
pub use self::tables::reference::reference;
