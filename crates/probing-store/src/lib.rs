//! Recorded rows: rings in memory-backed files, each with one writer and any number of readers.
//!
//! A ring ([`layout`]) is a header with the table's schema, an append-only heap of strings, and chunks of rows. In a
//! chunk each column is a slab laid out like an Arrow buffer, so that a reader copies it once and is done.
//!
//! [`Writer`] appends: no lock, no allocation and no system call per row; one release store makes a row visible. What it
//! may touch has been reserved before, so a full file system is never a SIGBUS. Rows survive the process, however it ends.
//!
//! [`Store`] is what one process has recorded: its tables, each made of one or more rings. A [`Snapshot`] is a table at one
//! moment. Readers go through `pread` and not through a mapping: the worst that a hostile or truncated file can do is to
//! be refused.

mod budget;
mod clock;
mod error;
mod reader;
pub mod ring;
mod ring_dir;
mod snapshot;
mod table;
mod values;
mod writer;

pub use self::budget::Budget;
pub use self::clock::{monotonic_nanos, wall_offset_nanos};
pub use self::error::{OpenError, ReadError};
pub use self::reader::{CopyReport, Limits, Ring, copy};
pub use self::ring::header::Origin;
pub use self::ring::zones::{Tally, Zone};
pub use self::ring_dir::{
    FolderError, PlaceError, RingDir, describe, free_bytes, is_held, is_in_memory, make_private,
    make_runtime_dir, read_recorder,
};
pub use self::snapshot::{Chunk, ChunkId, ColumnData, Snapshot, Strings};
pub use self::table::{Store, Table, Unreadable};
pub use self::values::bytes::Bytes;
pub use self::values::value::Value;
pub use self::writer::{AppendError, TraceRowId, Writer, WriterError};
pub use probing_proto::tables::schema::{Column, Kind, Recorder, Schema, Storage};
