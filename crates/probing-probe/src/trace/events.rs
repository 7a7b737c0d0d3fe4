//! What an event means for who wants to know of its code: a row, sums, and what taps do.
//!
//! However the interpreter tells us of it, it comes here, with the GIL held. Nothing here runs code of the program.

use probing_store::TraceRowId;
use probing_store::ring::packed::TraceEventKind;
use pyo3::Python;

use crate::trace::clock;
use crate::trace::code_table::{EventFollowUp, Table};
use crate::trace::function_stats::Tracing;
use crate::trace::lines;
use crate::trace::tap::Tap;
use crate::trace::thread::{self, NOWHERE, Open, Thread};

/// What came of an event.
#[derive(Clone, Copy)]
pub(crate) struct EventDispatch {
    /// The first that is to be told, outside.
    pub(crate) tap: Option<&'static dyn Tap>,
    /// There are others, too.
    pub(crate) has_more: bool,
    pub(crate) way: EventFollowUp,
}

/// A code object was met; `None` when nobody wants to know of it.
#[inline]
pub(crate) fn heard(
    py: Python<'_>,
    table: &mut Table,
    code: usize,
    did: TraceEventKind,
) -> Option<EventDispatch> {
    let entry = table.entry_there(code)?;
    let (tap, has_more) = (entry.tap, entry.has_more);
    let way = match &mut entry.tracing {
        None => EventFollowUp::ON,
        Some(tracing) => {
            let way = thread::with_own(|thread| match did {
                TraceEventKind::Call | TraceEventKind::Resume => {
                    began(py, tracing, thread, (code, did))
                }
                TraceEventKind::Return | TraceEventKind::Yield | TraceEventKind::Exception => {
                    ended(py, tracing, thread, (code, did))
                }
            });
            way.unwrap_or(EventFollowUp::ON)
        }
    };
    Some(EventDispatch {
        tap,
        has_more,
        way: EventFollowUp {
            // A tap wants to hear more.
            again: way.again || tap.is_some(),
            ..way
        },
    })
}

/// A function whose calls are followed calls something: that costs, too, though it is no row.
pub(crate) fn calls(table: &mut Table, code: usize) -> Option<EventFollowUp> {
    let tracing = table.entry_there(code)?.tracing.as_mut()?;
    tracing.calls += 1;
    if tracing.is_too_much() {
        return Some(tracing.mute());
    }
    let is_due = thread::with_own(Thread::is_due);
    Some(EventFollowUp {
        is_due: is_due.unwrap_or(false),
        ..EventFollowUp::ON
    })
}

#[inline]
fn began(
    py: Python<'_>,
    tracing: &mut Tracing,
    thread: &mut Thread,
    (code, did): (usize, TraceEventKind),
) -> EventFollowUp {
    let levels = if tracing.is_plain() {
        tracing.levels
    } else {
        match asked(tracing, thread, did) {
            Ok(levels) => levels,
            Err(way) => return way,
        }
    };
    let now = clock::now();
    let row = if tracing.is_summed {
        TraceRowId::NOWHERE
    } else {
        thread.write_begin(py, did, tracing.function, now)
    };
    thread.enter(Open {
        code,
        began: now,
        of_others: 0,
        levels,
        trace: tracing.trace.id,
        place: NOWHERE,
        row,
    });
    tracing.events += 1;
    EventFollowUp {
        again: true,
        is_due: thread.is_due(),
        looks_again: levels > 0 && tracing.looks_again(),
    }
}

/// How much further to follow what it calls, when that is not plain; or what to do in place of following it.
#[inline(never)]
fn asked(
    tracing: &mut Tracing,
    thread: &Thread,
    did: TraceEventKind,
) -> Result<u32, EventFollowUp> {
    let trace = &tracing.trace;
    let levels = if tracing.is_root() {
        if trace.is_over() || did == TraceEventKind::Call && trace.has_had_its_steps() {
            return Err(over(tracing));
        }
        tracing.levels
    } else {
        // It is told of only below the function that the trace is of.
        match thread.open.last() {
            Some(open) if open.levels > 0 => open.levels - 1,
            _ => {
                tracing.events += 1;
                return Err(if tracing.is_too_much() {
                    tracing.mute()
                } else {
                    EventFollowUp::ON
                });
            }
        }
    };
    if tracing.is_too_much() {
        return Err(tracing.mute());
    }
    Ok(levels)
}

#[inline]
fn ended(
    py: Python<'_>,
    tracing: &mut Tracing,
    thread: &mut Thread,
    (code, did): (usize, TraceEventKind),
) -> EventFollowUp {
    tracing.events += 1;
    let again = !(tracing.is_muted || tracing.trace.is_over());
    let left = thread.leave(code);
    let now = clock::now();
    if tracing.lines.is_some() {
        lines::end(py, tracing, thread, code, now);
    }
    let Some(open) = left.filter(|open| open.began >= tracing.since) else {
        return EventFollowUp {
            again,
            ..EventFollowUp::ON
        };
    };
    let took = (now - open.began).max(0);
    if let Some(outer) = thread.open.last_mut() {
        outer.of_others += took;
    }
    tracing.sums.add(took, open.of_others);
    if did == TraceEventKind::Exception {
        tracing.sums.errors += 1;
    }
    if !tracing.is_summed {
        thread.write_end(py, open.row, did, tracing.function, (now, took));
    }
    EventFollowUp {
        again,
        is_due: thread.is_due(),
        looks_again: false,
    }
}

#[cold]
fn over(tracing: &mut Tracing) -> EventFollowUp {
    let is_news = !tracing.trace.is_over();
    if is_news {
        tracing.trace.end();
        tracing
            .trace
            .note(Some("ended: all of its steps are recorded".to_owned()));
    }
    EventFollowUp {
        again: false,
        is_due: is_news,
        looks_again: false,
    }
}
