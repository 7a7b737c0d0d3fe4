//! Changes that were reported in the middle of an assignment and wait for the thread's next instruction.
//!
//! Then conditions are asked, and it may stop.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

use crate::breakpoints::index::breakpoint_index;
use crate::breakpoints::registry::Breakpoint;
use crate::breakpoints::setting;
use crate::python::frame;
use crate::watchpoints::{Change, lines, seen};

/// Changes of one thread that may wait.
const MAX_WAITING: usize = 1000;

/// How many threads have some.
static THREADS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static WAITING: RefCell<Waiting> = const { RefCell::new(Waiting { changes: Vec::new(), codes: Vec::new() }) };
}

struct Waiting {
    changes: Vec<(Arc<Breakpoint>, Option<Change>)>,
    /// Code that was told to tell of its next instruction.
    codes: Vec<Py<PyAny>>,
}

/// Whether this thread may have some.
pub(crate) fn has_some() -> bool {
    THREADS.load(Ordering::Acquire) > 0
}

/// Has a change wait for the next instruction of the frame; none means that lines matter now, or no more.
pub(crate) fn add(frame: &Bound<'_, PyAny>, point: &Arc<Breakpoint>, change: Option<Change>) {
    let py = frame.py();
    let code = frame::code_of(frame);
    let is_new = WAITING.with_borrow_mut(|waiting| {
        if waiting.changes.is_empty() {
            THREADS.fetch_add(1, Ordering::AcqRel);
        } else if waiting.changes.len() >= MAX_WAITING {
            point.leave_out();
            return false;
        }
        waiting.changes.push((Arc::clone(point), change));
        let is_new = !waiting.codes.iter().any(|other| other.is(&code));
        if is_new {
            waiting.codes.push(code.clone().unbind());
        }
        is_new
    });
    if is_new {
        breakpoint_index(py).code_mut(&code).waits += 1;
        setting::tell_again(&code);
    }
}

/// This thread is where something may be run.
pub(crate) fn settle(py: Python<'_>) {
    let (changes, codes) = WAITING.with_borrow_mut(|waiting| {
        (
            std::mem::take(&mut waiting.changes),
            std::mem::take(&mut waiting.codes),
        )
    });
    if changes.is_empty() {
        return;
    }
    THREADS.fetch_sub(1, Ordering::AcqRel);
    for code in codes {
        let code = code.into_bound(py);
        {
            let mut armed = breakpoint_index(py);
            let arms = armed.code_mut(&code);
            arms.waits = arms.waits.saturating_sub(1);
        }
        setting::tell_again(&code);
    }
    let forgotten = breakpoint_index(py).forget_empty();
    drop(forgotten);
    if changes.iter().any(|(_, change)| change.is_none()) {
        lines::refresh(py);
    }
    let changes = changes
        .into_iter()
        .filter_map(|(point, change)| Some((point, change?)));
    let changes: Vec<_> = changes.collect();
    if let Some(frame) = frame::current(py).filter(|_| !changes.is_empty()) {
        seen(&frame, changes);
    }
}

/// In a forked child: its only thread forgets what it saw as the parent.
pub(crate) fn forget() {
    THREADS.store(0, Ordering::Release);
    let waiting = WAITING.with_borrow_mut(|waiting| {
        (
            std::mem::take(&mut waiting.changes),
            std::mem::take(&mut waiting.codes),
        )
    });
    drop(waiting);
}
