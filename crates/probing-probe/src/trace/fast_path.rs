//! The way of most events: of a function that a trace is of at every call, with rows, while that trace is within its budget.
//!
//! A straight line without a call: whatever is not as usual is left to `events.rs`, before anything has been changed.
#![expect(unsafe_code, reason = "reaches what is a thread's own, in its turn")]

use probing_store::ring::packed::TraceEventKind;

use crate::trace::clock;
use crate::trace::code_table::Table;
use crate::trace::thread;

/// Notes that a function begins, or goes on. `None`: it is to be told the long way.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a call and what it saves and restores are a tenth of an event"
)]
pub(crate) fn began(table: &mut Table, code: usize, did: TraceEventKind) -> Option<()> {
    // SAFETY: an event, which comes with the GIL held; nothing below comes here again.
    let thread = unsafe { thread::own_at_hand() }?;
    let (place, tracing) = table.quick(code)?;
    let now = clock::now_by_counter()?;
    let what = (tracing.trace.id, tracing.function);
    thread.begin_here(did, (code, place), what, now)?;
    tracing.events += 1;
    Some(())
}

/// Notes that a function ends, or is left for the time being. `None`: it is to be told the long way.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as above")]
pub(crate) fn ended(table: &mut Table, code: usize, did: TraceEventKind) -> Option<()> {
    // SAFETY: an event, which comes with the GIL held; nothing below reaches this thread's state a second time.
    let thread = unsafe { thread::own_at_hand() }?;
    let open = thread.innermost(code)?;
    let tracing = table.quick_at(open.place, code)?;
    if open.began < tracing.since {
        return None;
    }
    let now = clock::now_by_counter()?;
    let (took, of_others) = thread.end_here(did, now)?;
    tracing.sums.add(took, of_others);
    tracing.events += 1;
    Some(())
}
