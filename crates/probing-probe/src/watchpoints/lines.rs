//! Watched values that no mechanism reports, compared at each line.
#![expect(unsafe_code, reason = "a code object is remembered by its address")]

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use probing_proto::message::breakpoints::SourceLocation;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::breakpoints::index::breakpoint_index;
use crate::breakpoints::{events, is_of_this_process, setting};
use crate::process::fork_guard;
use crate::python::call::release;
use crate::python::frame;
use crate::watchpoints::{count, operation, record, seen, values};

/// Code objects that are kept: so an address stays theirs.
const MAX_KEPT: usize = 20_000;

static ARE_ON: AtomicBool = AtomicBool::new(false);
/// Grows when what was kept is let go of.
static ROUND: AtomicU32 = AtomicU32::new(1);
/// Reached with the GIL held only.
static KEPT: Mutex<Option<HashMap<usize, Py<PyAny>>>> = Mutex::new(None);

#[derive(Clone, Copy)]
struct Line {
    code: usize,
    number: u32,
    round: u32,
}

thread_local! {
    /// The line that this thread was at last.
    static BEFORE: Cell<Line> = const { Cell::new(Line { code: 0, number: 0, round: 0 }) };
}

/// Whether any line has to be told.
pub(crate) fn are_on() -> bool {
    ARE_ON.load(Ordering::Acquire)
}

/// Whether some watch needs lines has changed; to be called where Python may run.
pub(crate) fn refresh(py: Python<'_>) {
    let points = breakpoint_index(py).values.clone();
    let needs =
        |point: &_| values::watched_value(point).is_some_and(|value| value.is_compared(py).1);
    let wanted = points.iter().any(|point| needs(point));
    if ARE_ON.swap(wanted, Ordering::AcqRel) == wanted {
        return;
    }
    if wanted {
        setting::refresh(py);
        setting::restart(py);
    } else {
        forget(py);
        setting::refresh(py);
    }
}

/// Lets go of what was kept.
pub(crate) fn forget(py: Python<'_>) {
    ARE_ON.store(false, Ordering::Release);
    ROUND.fetch_add(1, Ordering::AcqRel);
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).take();
    for code in kept.into_iter().flat_map(HashMap::into_values) {
        release(code.into_bound(py));
    }
}

/// A thread is about to run a line.
pub(crate) fn at_line<'py>(
    py: Python<'py>,
    code: usize,
    line: u32,
    frame: Option<&Bound<'py, PyAny>>,
) {
    if !is_of_this_process() || fork_guard::are_under_way() {
        return;
    }
    let round = ROUND.load(Ordering::Acquire);
    let before = BEFORE.replace(Line {
        code,
        number: line,
        round,
    });
    if before.code != code || before.round != round {
        keep(py, code);
    }
    let mut changes = Vec::new();
    let mut dropped = Vec::new();
    // Each is taken out first: to describe a value may let another thread come in.
    let point_at = |index: usize| breakpoint_index(py).values.get(index).cloned();
    for point in (0..).map_while(point_at) {
        let change =
            values::watched_value(&point).and_then(|value| value.at_line(py, &point, &mut dropped));
        changes.extend(change.map(|change| (point, change)));
    }
    for dict in dropped {
        release(dict.into_bound(py).into_any());
    }
    if changes.is_empty() {
        return;
    }
    let at = (before.round == round).then(|| spot(py, before)).flatten();
    for (point, change) in &mut changes {
        change.at.clone_from(&at);
        if values::watched_value(point).is_some_and(|value| value.is_compared(py).0) {
            change.operation = code_at(py, before)
                .filter(|_| before.round == round && !events::is_quiet())
                .and_then(|code| operation(&code, before.number));
        }
    }
    match frame.cloned().or_else(|| frame::current(py)) {
        Some(frame) if !events::is_quiet() => seen(&frame, changes),
        _ => {
            for (point, change) in changes {
                if count(&point) {
                    record(py, &point, &change);
                }
            }
        }
    }
}

/// So that its address stays its own.
fn keep(py: Python<'_>, code: usize) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let all = kept.get_or_insert_default();
    if all.contains_key(&code) {
        return;
    }
    let dropped = if all.len() >= MAX_KEPT {
        ROUND.fetch_add(1, Ordering::AcqRel);
        std::mem::take(all)
    } else {
        HashMap::new()
    };
    let address = std::ptr::with_exposed_provenance_mut::<ffi::PyObject>(code);
    // SAFETY: the code that this thread runs right now.
    let code_object: Bound<'_, PyAny> = unsafe { Bound::from_borrowed_ptr(py, address) };
    all.insert(code, code_object.unbind());
    drop(kept);
    for code in dropped.into_values() {
        release(code.into_bound(py));
    }
}

fn code_at(py: Python<'_>, at: Line) -> Option<Bound<'_, PyAny>> {
    let address = std::ptr::with_exposed_provenance_mut::<ffi::PyObject>(at.code);
    // SAFETY: null, or a code object that is kept, as its round says.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, address) }
}

fn spot(py: Python<'_>, at: Line) -> Option<SourceLocation> {
    let code = code_at(py, at)?;
    Some(SourceLocation {
        func: frame::name_of(&code),
        file: frame::file_of(&code),
        lineno: at.number,
    })
}
