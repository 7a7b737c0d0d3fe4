//! SQL over a set of targets: the only part that knows `DataFusion`.
//!
//! A `statement` is understood and let through when it only reads; the tables that it names (`tables`, each a value of
//! `table`) are made for its targets (`sight`) by `live`, read by the leaves of the plan (`scan`) into `rows`; those that
//! programs recorded are read by `recorded` into `arrays`, those of captures by `kept`; those of other machines come by
//! `elsewhere` and `nodes`; `groups` and `joins` put rows together by their `keys`, `instead` of nodes of the engine's own, and
//! `counts` need none; `engine` runs it all within bounds of time and `memory`, a statement that was asked before by its
//! `plans`; rows come as an `answer`, and `formats` writes it.
//!
//! *Invariant:* nothing is written anywhere but where the answer goes, and nothing runs in a target.
//! *Invariant:* a query reads each target once: what two tables say of it was so at the same moment.

mod answer;
mod engine;
mod error;
mod formats;
mod functions;
mod memory;
mod optimizer;
mod session;
mod sources;
mod statement;
mod tables;
#[cfg(test)]
mod test_baseline;

pub use self::answer::{QueryLimits, ResultStream, Stopper, Summary};
pub use self::engine::{Engine, SHOW_TABLES};
pub use self::error::EngineError;
pub use self::formats::{Format, JsonTable, Layout};
pub use self::functions::{ALL as FUNCTIONS, Function};
pub use self::sources::moment::EngineSnapshot;
pub use self::sources::target_snapshot::{ReadFailure, UnreadTarget, missing_targets};
pub use self::tables::ALL as TABLES;
pub use self::tables::definition::{Column, Kind, Table, WHOSE};
pub use self::tables::names::{SchemaNames, TableNames};
pub use self::tables::reference::reference;
