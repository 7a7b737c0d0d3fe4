//! What an event means for who wants to know of its code: a row, sums, and what taps do.
//!
//! However the interpreter tells us of it, it comes here, with the GIL held. Nothing here runs code of the program.

use probing_store::packed::Did;

use super::clock;
use super::table::{Table, Taps, Way};
use super::thread::{self, Open, Thread};
use super::tracing::Tracing;

/// What came of an event.
#[derive(Clone, Copy)]
pub(super) struct Heard {
    /// To be told, outside.
    pub(super) taps: Option<Taps>,
    /// Whether to be told again at this place.
    pub(super) again: bool,
    /// Whether it is time to look at what all this costs.
    pub(super) is_due: bool,
}

/// A code object was met; `None` when nobody wants to know of it.
#[inline]
pub(super) fn heard(table: &mut Table, code: usize, did: Did) -> Option<Heard> {
    let entry = table.entry_there(code)?;
    let taps = entry.taps_if_any();
    let Way { again, is_due } = match &mut entry.tracing {
        None => Way::ON,
        Some(tracing) => {
            let way = thread::with_own(|thread| match did {
                Did::Call | Did::Resume => began(tracing, thread, code, did),
                Did::Return | Did::Yield | Did::Exception => ended(tracing, thread, code, did),
            });
            // A tap wants to hear more.
            let way = way.unwrap_or(Way::ON);
            Way {
                again: way.again || taps.is_some(),
                ..way
            }
        }
    };
    Some(Heard {
        taps,
        again,
        is_due,
    })
}

#[inline]
fn began(tracing: &mut Tracing, thread: &mut Thread, code: usize, did: Did) -> Way {
    let trace = &tracing.trace;
    let levels = if tracing.is_root() {
        if trace.is_over() || did == Did::Call && trace.has_had_its_steps() {
            return over(tracing);
        }
        trace.wanted.depth
    } else {
        // It is told of only below the function that the trace is of.
        match thread.open.last() {
            Some(open) if open.levels > 0 => open.levels - 1,
            _ => {
                tracing.events += 1;
                return if tracing.is_too_much() {
                    muted(tracing)
                } else {
                    Way::ON
                };
            }
        }
    };
    if tracing.is_too_much() {
        return muted(tracing);
    }
    let now = clock::now();
    if !trace.wanted.stats {
        thread.write(did, tracing.function, (now, None));
    }
    thread.enter(Open {
        code,
        began: now,
        of_others: 0,
        levels,
    });
    tracing.events += 1;
    Way {
        again: true,
        is_due: thread.is_due(),
    }
}

#[inline]
fn ended(tracing: &mut Tracing, thread: &mut Thread, code: usize, did: Did) -> Way {
    tracing.events += 1;
    let again = !(tracing.is_muted || tracing.trace.is_over());
    let Some(open) = thread.leave(code) else {
        return Way {
            again,
            is_due: false,
        };
    };
    let now = clock::now();
    let took = (now - open.began).max(0);
    if let Some(outer) = thread.open.last_mut() {
        outer.of_others += took;
    }
    tracing.sums.add(took, open.of_others);
    if did == Did::Exception {
        tracing.sums.errors += 1;
    }
    if !tracing.trace.wanted.stats {
        thread.write(did, tracing.function, (now, Some(took)));
    }
    Way {
        again,
        is_due: thread.is_due(),
    }
}

#[cold]
fn over(tracing: &mut Tracing) -> Way {
    let is_news = !tracing.trace.is_over();
    if is_news {
        tracing.trace.end();
        tracing
            .trace
            .note(Some("ended: it has had its steps".to_owned()));
    }
    Way {
        again: false,
        is_due: is_news,
    }
}

#[cold]
fn muted(tracing: &mut Tracing) -> Way {
    if !tracing.is_muted {
        tracing.is_muted = true;
        tracing.trace.mute_one();
    }
    Way {
        again: false,
        is_due: false,
    }
}
