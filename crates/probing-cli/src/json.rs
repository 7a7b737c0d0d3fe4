//! Answers as JSON, for programs.

use std::io::{self, BufWriter, Write as _};

use probing_proto::text::visible::{self, Notation};
use serde::Serialize;

use crate::terminal;

/// Prints `value` to stdout, as it is made: it may be long.
pub(crate) fn print(value: &impl Serialize) -> io::Result<()> {
    let mut out = BufWriter::new(terminal::rows(Notation::Json));
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    out.flush()
}

/// `value` on one line.
pub(crate) fn line(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(visible::json)
}
