//! Where functions of some code are to call out, and a twin does: for points, and for a trace.

use pyo3::Python;

use crate::breakpoints::index::breakpoint_index;
use crate::trace;
use crate::watchpoints::Store;

/// Where a twin calls out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) lines: Vec<u32>,
    pub(crate) begin: bool,
    /// The offsets in its own code that follow writes.
    pub(crate) writes: Vec<u32>,
    /// Where it begins and ends.
    pub(crate) traced: bool,
    /// At each line, for a trace.
    pub(crate) every_line: bool,
}

impl Calls {
    pub(crate) fn wanted(py: Python<'_>, code: usize) -> Self {
        let (traced, every_line) = (trace::wants_calls(py, code), trace::wants_lines(py, code));
        let armed = breakpoint_index(py);
        let Some(arms) = armed.code(code) else {
            return Self {
                lines: Vec::new(),
                begin: false,
                writes: Vec::new(),
                traced,
                every_line,
            };
        };
        let each_once = |mut numbers: Vec<u32>| {
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        Self {
            lines: each_once(arms.lines.iter().map(|(line, _)| *line).collect()),
            begin: !arms.starts.is_empty(),
            writes: each_once(arms.stores.iter().map(Store::offset).collect()),
            traced,
            every_line,
        }
    }

    pub(crate) fn has_points(&self) -> bool {
        !self.lines.is_empty() || self.begin || !self.writes.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.has_points() && !self.traced && !self.every_line
    }

    /// Whether what runs with these tells all that those do of points.
    pub(crate) fn suffice(&self, wanted: &Self) -> bool {
        let has_all = |own: &[u32], wanted: &[u32]| wanted.iter().all(|it| own.contains(it));
        has_all(&self.lines, &wanted.lines) && has_all(&self.writes, &wanted.writes)
    }
}
