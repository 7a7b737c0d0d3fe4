//! The step that a training is in: what rows of every kind have in their column `step`.
//!
//! Somebody counts: the program (`probing.step()`), or, while it does not, the tracer of torch, at steps of optimizers.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use pyo3::prelude::*;

use crate::{collectives, usage};

/// No step is known.
const NONE: i64 = i64::MIN;

static CURRENT: AtomicI64 = AtomicI64::new(NONE);
/// The program counts; nobody else does then.
static TOLD: AtomicBool = AtomicBool::new(false);

/// The step that the program is in, if anybody counts.
#[inline]
pub(crate) fn now() -> Option<i64> {
    match CURRENT.load(Ordering::Relaxed) {
        NONE => None,
        step => Some(step),
    }
}

/// Somebody counts from now on: the first step is 0.
pub(crate) fn begin() {
    // Where a step is known already, it stays.
    CURRENT
        .compare_exchange(NONE, 0, Ordering::Relaxed, Ordering::Relaxed)
        .ok();
}

/// A step has ended, as far as torch can tell. A program that counts knows better.
pub(crate) fn count(py: Python<'_>) {
    if !is_told() {
        advance();
        ended(py);
    }
}

/// What is looked at behind each step.
fn ended(py: Python<'_>) {
    usage::stepped(py);
    collectives::poll(py);
}

/// Whether the program counts.
pub(crate) fn is_told() -> bool {
    TOLD.load(Ordering::Relaxed)
}

/// Puts the function into the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(step, module)?)
}

/// Say which step of the training begins: this one, or the next (0 is the first). Returns it.
#[pyfunction]
#[pyo3(signature = (number=None, /))]
fn step(py: Python<'_>, number: Option<i64>) -> i64 {
    TOLD.store(true, Ordering::Relaxed);
    let begun = match number {
        Some(number) => {
            CURRENT.store(number, Ordering::Relaxed);
            number
        }
        None => advance(),
    };
    ended(py);
    begun
}

fn advance() -> i64 {
    let next = |step| if step == NONE { 0 } else { step + 1 };
    let before = CURRENT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |step| {
        Some(next(step))
    });
    next(before.unwrap_or(NONE))
}
