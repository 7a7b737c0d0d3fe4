//! Lines of source as the target has them: from its memory where they are in no file, else from the file or the archive.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;

use probing_proto::message::breakpoints::Source;
use probing_proto::message::{Event, Failure};
use pyo3::prelude::*;

use crate::eval::traceback;
use crate::python::call::call;
use crate::python::code_search;

/// A file longer than that is no source.
const MAX_BYTES: u64 = 16 << 20;
/// Lines of one answer.
const MAX_LINES: usize = 5000;

/// Answers with lines of a file, counted from 1.
pub(crate) fn answer(py: Python<'_>, file: &str, first: u32, count: u32) -> Event {
    let lines = remembered(py, file)
        .or_else(|| traceback::source_of(file).map(|text| lines_of(&text)))
        .map_or_else(|| py.detach(|| read(file)), Ok)
        .or_else(|failure| traceback::lines_in_archive(py, file).ok_or(failure));
    match lines {
        Ok(lines) => Event::Source(chosen(lines, first, count)),
        Err(failure) => Event::Failed(failure),
    }
}

/// Some lines of a file; none where it cannot be read.
pub(crate) fn lines(py: Python<'_>, file: &str, first: u32, count: u32) -> Option<Vec<String>> {
    match answer(py, file, first, count) {
        Event::Source(source) if !source.lines.is_empty() => Some(source.lines),
        _ => None,
    }
}

fn chosen(lines: Vec<String>, first: u32, count: u32) -> Source {
    let of = lines.len() as u32;
    let first = first.max(1);
    let lines = lines.into_iter().skip(first as usize - 1);
    Source {
        first,
        lines: lines.take((count as usize).min(MAX_LINES)).collect(),
        of,
    }
}

/// What the program's own tracebacks would show.
fn remembered(py: Python<'_>, file: &str) -> Option<Vec<String>> {
    let names = code_search::namespace(py).ok()?;
    let teller = names.as_any().get_item("lines_in_memory").ok()?;
    call(&teller, (file,)).ok()?.extract().ok()?
}

fn read(file: &str) -> Result<Vec<String>, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot read the source: {file}: {error}"))
            .with_hint("the program was moved, or its code has no file")
    };
    // Nothing is waited for: neither a pipe, nor what the kernel may say some day (/proc/kmsg), which says that it is empty.
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(file)
        .map_err(failed)?;
    let found = opened.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(Failure::new(format!("not a file: {file}")));
    }
    let mut bytes = Vec::new();
    opened
        .take(found.len().min(MAX_BYTES))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(lines_of(&String::from_utf8_lossy(&bytes)))
}

fn lines_of(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}
