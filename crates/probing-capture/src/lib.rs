//! Capture files: a process as it was at one moment, to be looked at later and elsewhere, without it and without Python.
//!
//! A capture is a zip archive, so that anybody can open it: `capture.json` says whose it is, `stacks.json` has the stacks as
//! `probing backtrace --json` prints them, `tasks.json` those of asyncio, `sources.json` the lines around them, and `tables/` a file of Arrow's stream
//! format for each table. What the tables hold is the engine's business: here they are bytes.

mod error;
mod reader;
mod writer;

pub use error::CaptureError;
pub use reader::Capture;
pub use writer::CaptureWriter;

/// How the files are called, and known by on a command line.
pub const EXTENSION: &str = "probe";

const MANIFEST: &str = "capture.json";
const STACKS: &str = "stacks.json";
const SOURCES: &str = "sources.json";
const TASKS: &str = "tasks.json";

fn table_entry(name: &str) -> String {
    format!("tables/{name}.arrow")
}
