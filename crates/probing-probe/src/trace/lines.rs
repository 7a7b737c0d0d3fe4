//! Rows of traced lines, each with its duration.
//!
//! Lines of functions that are followed line by line: each is a row when a thread comes to it, and is told how long
//! it took when the thread comes to the next one of that function, or leaves it.

use probing_proto::message::breakpoints::SourceLocation;
use probing_store::TraceRowId;
use pyo3::Python;

use crate::trace::clock;
use crate::trace::code_table::{EventFollowUp, Table};
use crate::trace::function_stats::Tracing;
use crate::trace::functions;
use crate::trace::thread::{self, Thread};

/// No number yet.
const UNKNOWN: u32 = u32::MAX;
/// Lines of one function whose numbers are at hand; those of others are looked up each time.
const AT_HAND: usize = 1 << 14;

/// What is known of the lines of one function.
pub(crate) struct Lines {
    /// The line where it begins, and numbers of that one and those behind it: what rows say of them.
    first: u32,
    numbers: Vec<u32>,
    /// What a thread came to before was not followed to its end.
    since: i64,
}

/// A line that a thread has come to, and not left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    code: usize,
    /// That of its function.
    depth: usize,
    began: i64,
    row: TraceRowId,
}

impl Lines {
    pub(crate) fn of(function: u32) -> Self {
        Self {
            first: functions::with(function, |spot| spot.lineno).unwrap_or_default(),
            numbers: Vec::new(),
            since: 0,
        }
    }

    /// They are followed again.
    pub(crate) fn restart(&mut self) {
        self.since = clock::now();
    }

    /// The number of a line of this function.
    fn number(&mut self, function: u32, line: u32) -> u32 {
        let Some(place) = line
            .checked_sub(self.first)
            .map(|place| place as usize)
            .filter(|place| *place < AT_HAND)
        else {
            return looked_up(function, line);
        };
        if self.numbers.len() <= place {
            self.numbers.resize(place + 1, UNKNOWN);
        }
        if self.numbers[place] == UNKNOWN {
            self.numbers[place] = looked_up(function, line);
        }
        self.numbers[place]
    }
}

#[cold]
fn looked_up(function: u32, line: u32) -> u32 {
    let spot = functions::with(function, |spot| SourceLocation {
        lineno: line,
        ..spot.clone()
    });
    spot.map_or(function, |spot| functions::number(&spot))
}

/// A thread comes to a line of some code; `None` when nobody wants to know of it.
pub(crate) fn came(
    py: Python<'_>,
    table: &mut Table,
    code: usize,
    line: u32,
) -> Option<EventFollowUp> {
    let tracing = table.entry_there(code)?.tracing.as_mut()?;
    let number = {
        let lines = tracing.lines.as_mut()?;
        lines.number(tracing.function, line)
    };
    if tracing.trace.is_over() {
        return Some(EventFollowUp {
            again: false,
            ..EventFollowUp::ON
        });
    }
    if tracing.is_too_much() {
        return Some(tracing.mute());
    }
    tracing.events += 1;
    let now = clock::now();
    let is_due = thread::with_own(|thread| {
        let depth = thread.depth_of(code);
        end_at(py, tracing, thread, (code, depth), now);
        let row = thread.write_line(py, number, depth, now);
        thread.lines.push(Line {
            code,
            depth,
            began: now,
            row,
        });
        thread.is_due()
    });
    Some(EventFollowUp {
        is_due: is_due.unwrap_or(false),
        ..EventFollowUp::ON
    })
}

/// A thread has left a function: the line that it was at has ended.
pub(crate) fn end(py: Python<'_>, tracing: &Tracing, thread: &mut Thread, code: usize, now: i64) {
    let depth = thread.open.len();
    end_at(py, tracing, thread, (code, depth), now);
}

/// Ends the line that a thread is at in a function. Lines of functions inside that one have ended unseen: of those that are
/// deeper, and of those that a function of this depth has called whose beginning was not seen.
fn end_at(
    py: Python<'_>,
    tracing: &Tracing,
    thread: &mut Thread,
    (code, depth): (usize, usize),
    now: i64,
) {
    while thread.lines.pop_if(|line| line.depth > depth).is_some() {}
    let here = thread.lines.iter().rev();
    let mut here = here.take_while(|line| line.depth == depth);
    let Some(inside) = here.position(|line| line.code == code) else {
        return;
    };
    let place = thread.lines.len() - 1 - inside;
    let line = thread.lines[place];
    thread.lines.truncate(place);
    let since = tracing.lines.as_ref().map_or(0, |lines| lines.since);
    if line.began >= since.max(tracing.since) {
        thread.end_line(py, line.row, (now - line.began).max(0));
    }
}
