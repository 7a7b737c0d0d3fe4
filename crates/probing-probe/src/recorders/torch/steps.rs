//! Steps of optimizers, and the steps of the training that they end.
//!
//! A step of the training ends with a step of the optimizer that was seen to step first, however many backward passes led to
//! it. Others do not count, unless that one is gone or has not stepped for a hundred steps of another; nor do steps inside
//! of a step. A program that counts itself (`probing.step`) is believed.

use std::cell::RefCell;

use pyo3::prelude::*;

use crate::process::fork_child;
use crate::python::weak::{is_target, target_is_gone, weak_of};
use crate::recorders::torch::forward::seconds;
use crate::recorders::torch::modules::class_name;
use crate::recorders::torch::{cuda, state, tensors};
use crate::recording::step;
use crate::recording::{self, Called, Stage, TorchRow};

/// Steps of another optimizer after which that one counts.
const MAX_OTHER_STEPS: u32 = 100;

/// Whose steps count.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    leader: Option<Py<PyAny>>,
    pub(crate) class: Option<String>,
    /// Steps of others since its last.
    others: u32,
    /// The class that stepped last, and what its rows are called.
    last: Option<(Py<PyAny>, Called)>,
}

/// A step that has begun.
#[derive(Debug, Clone, Copy)]
struct StepInProgress {
    frame: usize,
    generation: u32,
    called: Called,
    began: i64,
}

thread_local! {
    static UNDER_WAY: RefCell<Vec<StepInProgress>> = const { RefCell::new(Vec::new()) };
}

/// An optimizer begins a step. `frame` runs it, and others are around that.
pub(crate) fn began(
    optimizer: &Bound<'_, PyAny>,
    frame: usize,
    around: impl FnOnce() -> Vec<usize>,
    nanos: i64,
) {
    let py = optimizer.py();
    forget_abandoned(around);
    let called = called(optimizer);
    let is_outermost = UNDER_WAY.with_borrow_mut(|steps| {
        let is_outermost = steps.is_empty();
        steps.push(StepInProgress {
            frame,
            generation: fork_child::generation(),
            called,
            began: nanos,
        });
        is_outermost
    });
    if is_outermost {
        record(py, called, Stage::PreStep, nanos, 0.0);
        tensors::before_step(optimizer);
    }
}

/// What rows of an optimizer are called. To look that up takes longer than to write them.
fn called(optimizer: &Bound<'_, PyAny>) -> Called {
    let py = optimizer.py();
    let class = optimizer.get_type().into_any();
    let known = state::state(py).and_then(|state| {
        let (of, called) = state.counter.last.as_ref()?;
        of.is(&class).then_some(*called)
    });
    if let Some(known) = known {
        return known;
    }
    let name = class_name(optimizer);
    let called = recording::called(py, &name, &name, "");
    let before = state::state(py).and_then(|mut state| {
        let counter = &mut state.counter;
        counter.last.replace((class.unbind(), called))
    });
    drop(before);
    called
}

/// An optimizer has ended its step.
pub(crate) fn ended(optimizer: &Bound<'_, PyAny>, frame: usize, nanos: i64) {
    let py = optimizer.py();
    let ended = UNDER_WAY.with_borrow_mut(|steps| {
        let place = steps.iter().rposition(|step| step.frame == frame)?;
        let ended = steps[place];
        steps.truncate(place);
        (steps.is_empty() && ended.generation == fork_child::generation()).then_some(ended)
    });
    let Some(StepInProgress { called, began, .. }) = ended else {
        return;
    };
    record(py, called, Stage::PostStep, nanos, seconds(nanos - began));
    tensors::after_step(py);
    count(optimizer);
}

fn record(py: Python<'_>, called: Called, stage: Stage, nanos: i64, duration: f64) {
    if let Some((step, seq)) = state::next(py) {
        let row = TorchRow {
            called,
            stage,
            step,
            seq,
            duration,
            memory: (stage == Stage::PostStep)
                .then(|| cuda::after_step(py))
                .flatten(),
        };
        recording::torch_row(py, nanos, &row);
    }
}

/// Steps that ended by an exception, of which nobody told, are not around this one.
fn forget_abandoned(around: impl FnOnce() -> Vec<usize>) {
    if UNDER_WAY.with_borrow(Vec::is_empty) {
        return;
    }
    let around = around();
    UNDER_WAY.with_borrow_mut(|steps| steps.retain(|step| around.contains(&step.frame)));
}

/// A step of the training ends, if it is this optimizer whose steps count.
fn count(optimizer: &Bound<'_, PyAny>) {
    let py = optimizer.py();
    let replaced = {
        let Some(mut state) = state::state(py) else {
            return;
        };
        let counter = &mut state.counter;
        let leads = match &counter.leader {
            Some(leader) if is_target(leader, optimizer) => true,
            Some(leader) if !target_is_gone(leader) => {
                counter.others += 1;
                if counter.others < MAX_OTHER_STEPS {
                    return;
                }
                false
            }
            _ => false,
        };
        counter.others = 0;
        if leads {
            None
        } else {
            counter.class = Some(class_name(optimizer));
            std::mem::replace(&mut counter.leader, weak_of(optimizer))
        }
    };
    drop(replaced);
    step::count(optimizer.py());
}
