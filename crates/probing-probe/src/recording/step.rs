//! The step that a training is in: what rows of every kind have in their column `step`.
//!
//! Somebody counts: the program (`probing.step()`), or, while it does not, the tracer of torch, at steps of optimizers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use pyo3::prelude::*;

type Listener = fn(Python<'_>);

/// What recorders do when a step has ended.
static LISTENERS: OnceLock<&'static [Listener]> = OnceLock::new();

use crate::recording::rank;
use crate::recording::{self, StepEnd};

/// No step is known.
const NONE: i64 = i64::MIN;

static CURRENT: AtomicI64 = AtomicI64::new(NONE);
/// Where whoever counts next goes on.
static NEXT: AtomicI64 = AtomicI64::new(0);
/// The program counts; nobody else does then.
static IS_COUNTED_BY_PROGRAM: AtomicBool = AtomicBool::new(false);
/// Whoever counts has seen a step end.
static COUNTED: AtomicBool = AtomicBool::new(false);
/// How often somebody began to count.
static PERIOD: AtomicI64 = AtomicI64::new(0);

/// The step that the program is in, if anybody counts.
#[inline]
pub(crate) fn now() -> Option<i64> {
    match CURRENT.load(Ordering::Relaxed) {
        NONE => None,
        step => Some(step),
    }
}

/// The same, where steps have been seen to end: a program may use torch and never train.
pub(crate) fn counted() -> Option<i64> {
    now().filter(|_| is_told() || COUNTED.load(Ordering::Relaxed))
}

/// Somebody counts from now on: the first step is 0, or the one after the last that was counted. How many there were
/// meanwhile nobody knows; readers find out from other ranks.
pub(crate) fn begin() {
    // Where a step is known already, it stays.
    let next = NEXT.load(Ordering::Relaxed);
    let begun = CURRENT.compare_exchange(NONE, next, Ordering::Relaxed, Ordering::Relaxed);
    if begun.is_ok() {
        PERIOD.fetch_add(1, Ordering::Relaxed);
    }
}

/// Nobody counts any more, unless the program does: which step it is in is not known.
pub(crate) fn end() {
    if is_told() {
        return;
    }
    COUNTED.store(false, Ordering::Relaxed);
    match CURRENT.swap(NONE, Ordering::Relaxed) {
        NONE => {}
        // A step of two periods would be two steps.
        last => NEXT.store(last + 1, Ordering::Relaxed),
    }
}

/// A step has ended, as far as torch can tell. A program that counts knows better.
pub(crate) fn count(py: Python<'_>) {
    if !is_told() {
        COUNTED.store(true, Ordering::Relaxed);
        let before = now();
        advance();
        ended(py, before, counted_by());
    }
}

/// From now on these are called when a step has ended.
pub(crate) fn tell(listeners: &'static [Listener]) {
    LISTENERS.set(listeners).ok();
}

/// What is recorded and looked at after each step.
fn ended(py: Python<'_>, step: Option<i64>, counted_by: &str) {
    if let Some(step) = step {
        let row = StepEnd {
            step,
            counted_by,
            period: PERIOD.load(Ordering::Relaxed),
            progress: rank::progress(py),
        };
        recording::step_end(py, &row);
    }
    for listener in LISTENERS.get().into_iter().copied().flatten() {
        listener(py);
    }
}

/// Whether the program counts.
pub(crate) fn is_told() -> bool {
    IS_COUNTED_BY_PROGRAM.load(Ordering::Relaxed)
}

/// Who counts, as rows say it.
pub(crate) fn counted_by() -> &'static str {
    if is_told() { "program" } else { "optimizer" }
}

/// Puts the function into the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(step, module)?)
}

/// Say which step of the training begins: this one, or the next (0 is the first). Returns it.
#[pyfunction]
#[pyo3(signature = (number=None, /))]
fn step(py: Python<'_>, number: Option<i64>) -> i64 {
    IS_COUNTED_BY_PROGRAM.store(true, Ordering::Relaxed);
    let before = now();
    let begun = match number {
        Some(number) => {
            CURRENT.store(number, Ordering::Relaxed);
            number
        }
        None => advance(),
    };
    ended(py, before, counted_by());
    begun
}

fn advance() -> i64 {
    let next = |step| if step == NONE { 0 } else { step + 1 };
    let before = CURRENT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |step| {
        Some(next(step))
    });
    next(before.unwrap_or(NONE))
}
