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
mod arrays;
#[cfg(test)]
mod beside;
mod condition;
mod counts;
mod elsewhere;
mod engine;
mod error;
mod formats;
mod functions;
mod groups;
mod instead;
mod joins;
mod kept;
mod keys;
mod live;
mod memory;
mod moment;
mod nearest;
mod nodes;
mod plans;
mod recorded;
mod reference;
mod rows;
mod scan;
mod session;
mod sight;
mod statement;
mod sums;
mod table;
mod tables;
mod whose;
mod words;

pub use answer::{Answer, Stopper, Summary, Terms};
pub use engine::{Engine, SHOW_TABLES};
pub use error::EngineError;
pub use formats::{Format, JsonTable, Layout};
pub use functions::{ALL as FUNCTIONS, Function};
pub use moment::Moment;
pub use reference::reference;
pub use sight::{Missing, Unseen, missing_targets};
pub use table::{Column, Kind, Table, WHOSE};
pub use tables::ALL as TABLES;
pub use words::{TableWords, Words};
