//! Capture files: a process at one moment, readable later and elsewhere without Python.
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

pub use probing_proto::capture::EXTENSION;

fn table_entry(name: &str) -> String {
    format!("tables/{name}.arrow")
}
