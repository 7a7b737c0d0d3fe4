//! Rows that the program records: `probing.record`, spans and events.
//!
//! Needs no server and no thread: a call appends to a ring in shared memory (`probing-store`), and who wants to know reads
//! that from outside. The GIL makes all threads of the program one writer. What a call does while it holds our state runs
//! no code of the program, so nothing of it is met half-way; a child of a fork leaves the parent's alone and has its own.

pub(crate) mod call_site_cache;
pub(crate) mod calls;
pub(crate) mod captures;
pub(crate) mod collectives;
pub(crate) mod process;
pub(crate) mod step;
pub(crate) mod steps;
pub(crate) mod tables;
pub(crate) mod torch;
pub(crate) mod trace;
pub(crate) mod tracers;
pub(crate) mod values;

use std::path::PathBuf;

use probing_proto::tables::builtin::OwnTable;
use probing_proto::tables::schema::{Kind, SchemaError, Storage};
use probing_store::{Writer, WriterError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use self::tables::Tables;
use crate::process::per_process::PerProcess;
use crate::python::gil_cell::GilCell;

pub(crate) use self::calls::add_to;
pub(crate) use self::captures::{
    Capture, Exception, Variable, capture, exception, make_room_for_variables, memory, variable,
};
pub(crate) use self::collectives::{Ledger, Operation, Outcome, Site, collective_symbol, ledger};
pub(crate) use self::steps::{StepEnd, step_end};
pub(crate) use self::trace::thread_id;
pub(crate) use self::tracers::{Budget, Sums, budget, ring_of_tracers, sums};

pub(crate) use self::torch::{Called, Stage, TensorRow, TorchRow, called, tensor_row, torch_row};

/// What this process records, once it has recorded something. Whoever has them runs no code of the program.
static TABLES: PerProcess<GilCell<Tables>> = PerProcess::new();

/// Why something is not recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error("tables of this schema are Probing's own: {table}")]
    Reserved { table: String },
    #[error("this process has too many recorded tables, {limit}, for one more: {table}")]
    TooManyTables { table: String, limit: usize },
    #[error("not a kind of column: {kind}")]
    NoSuchKind { kind: String },
    #[error(transparent)]
    Writer(WriterError),
}

impl From<WriterError> for RecordError {
    fn from(error: WriterError) -> Self {
        match error {
            WriterError::Schema(error) => Self::Schema(error),
            other @ WriterError::NoMemory { .. } => Self::Writer(other),
        }
    }
}

impl From<RecordError> for PyErr {
    fn from(error: RecordError) -> Self {
        let hint = match &error {
            RecordError::Schema(error) => error.hint(),
            RecordError::Reserved { .. } => "choose another name before the dot".to_owned(),
            RecordError::TooManyTables { .. } => {
                "put the varying part into a column instead of the table's name".to_owned()
            }
            RecordError::NoSuchKind { .. } => "one of: bool, int, float, str".to_owned(),
            RecordError::Writer(error) => return PyOSError::new_err(error.to_string()),
        };
        PyValueError::new_err(format!("{error}\nhint: {hint}"))
    }
}

/// Works with what this process records. `work` must not run code of the program.
fn with_tables<T>(py: Python<'_>, work: impl FnOnce(&mut Tables) -> T) -> T {
    crate::recorders::collectives::notice_rank(py);
    let tables = TABLES.get().unwrap_or_else(|| new_tables(py));
    work(&mut tables.borrow_mut(py))
}

/// Makes tables for a process that has none. A child declares what its parent has declared.
#[cold]
fn new_tables(py: Python<'_>) -> &'static GilCell<Tables> {
    crate::server::lifecycle::follow_forks();
    let parent = TABLES.of_any_process();
    let declared = parent.and_then(|parent| Some(parent.try_borrow_mut(py)?.declared()));
    let fresh = Tables::new(py, declared.unwrap_or_default());
    TABLES.get_or_init(|| GilCell::new(fresh))
}

/// Torch has told which rank this process has: those who look when it is gone know it, too.
pub(crate) fn rank_is_known(py: Python<'_>) {
    if TABLES.of_any_process().is_some() {
        with_tables(py, Tables::describe_rank);
    }
}

/// A ring of its own for a thread that does not hold the GIL: its rows are rows of the table, too.
pub(crate) fn ring(py: Python<'_>, own: &OwnTable) -> Result<Writer, RecordError> {
    with_tables(py, |tables| tables.ring(own))
}

/// Where rows go; `None` when nothing has been recorded yet.
fn storage(py: Python<'_>) -> Option<Storage> {
    if TABLES.of_any_process().is_none() {
        return None;
    }
    Some(with_tables(py, |tables| tables.storage()))
}

/// What this process has recorded, for who copies it.
pub(crate) struct Recorded {
    /// The folder of its rings.
    pub(crate) rings: Option<PathBuf>,
    /// Why some rows are in no file.
    pub(crate) heap: Option<String>,
}

/// `None` when nothing has been recorded yet.
pub(crate) fn recorded(py: Python<'_>) -> Option<Recorded> {
    let storage = storage(py)?;
    Some(Recorded {
        rings: with_tables(py, |tables| tables.folder()),
        heap: match storage {
            Storage::Shared => None,
            Storage::Heap { reason } => Some(reason),
        },
    })
}

/// The kind of column that Python calls so.
fn kind_named(name: &str) -> Result<Kind, RecordError> {
    match name {
        "bool" => Ok(Kind::Bool),
        "int" => Ok(Kind::I64),
        "float" => Ok(Kind::F64),
        "str" => Ok(Kind::Text),
        other => Err(RecordError::NoSuchKind {
            kind: other.to_owned(),
        }),
    }
}
