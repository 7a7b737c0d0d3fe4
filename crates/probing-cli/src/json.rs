//! Answers as JSON, for programs.

use std::io::{self, BufWriter, Write as _};

use serde::Serialize;

/// Prints `value` to stdout, as it is made: it may be long.
pub(crate) fn print(value: &impl Serialize) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    out.flush()
}
