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
mod bytes;
mod clock;
mod columns;
mod error;
mod header;
pub mod layout;
mod memory;
pub mod packed;
mod place;
mod plan;
mod reader;
mod ring_file;
mod snapshot;
mod strings;
mod table;
mod text;
mod value;
mod widen;
mod writer;
mod zones;

pub use budget::Budget;
pub use bytes::Bytes;
pub use clock::{monotonic_nanos, wall_offset_nanos};
pub use error::{OpenError, ReadError};
pub use header::Origin;
pub use place::{
    FolderError, Place, PlaceError, describe, free_bytes, is_held, is_in_memory, make_private,
    read_recorder,
};
pub use probing_proto::store::{Column, Kind, Recorder, Schema, Storage};
pub use reader::{Copies, Limits, Ring, copy};
pub use snapshot::{Chunk, ChunkId, ColumnData, Snapshot, Strings};
pub use table::{Store, Table, Unreadable};
pub use value::Value;
pub use writer::{AppendError, TracePlace, Writer, WriterError};
pub use zones::{Tally, Zone};
