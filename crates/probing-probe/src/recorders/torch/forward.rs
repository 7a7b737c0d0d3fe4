//! Calls of modules: what is told when one begins and ends.

use std::cell::RefCell;

use pyo3::Borrowed;
use pyo3::prelude::*;

use crate::process::fork_child;
use crate::python::frame;
use crate::python::interned::interned;
use crate::recorders::torch::modules;
use crate::recorders::torch::state::{self, State};
use crate::recorders::torch::{backward, cuda, tensors};
use crate::recording::{self, Called, Stage, TorchRow};

/// Calls that may be under way in one thread. Those that ended by an exception are found out later.
const MAX_DEPTH: usize = 1000;

/// A call that has begun.
#[derive(Debug, Clone, Copy)]
struct Call {
    /// The frame that runs it, by address.
    frame: usize,
    generation: u32,
    called: Called,
    began: i64,
}

thread_local! {
    static UNDER_WAY: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

/// A module is called; its frame is the innermost.
pub(crate) fn began(py: Python<'_>, nanos: i64, module: &Bound<'_, PyAny>, frame: usize) {
    let Some((called, is_root)) = known(module) else {
        return;
    };
    let call = Call {
        frame,
        generation: fork_child::generation(),
        called,
        began: nanos,
    };
    UNDER_WAY.with_borrow_mut(|calls| {
        if calls.len() >= MAX_DEPTH {
            calls.clear();
        }
        calls.push(call);
    });
    if is_root {
        backward::remember_root(called);
        if let Some(looks) = state::hooks_due() {
            let known = state::state(py).map(|state| state.modules.addresses(looks));
            backward::hook(py, &known.unwrap_or_default());
        }
    }
    if let Some((step, seq)) = state::next(py) {
        let row = TorchRow {
            called,
            stage: Stage::PreForward,
            step,
            seq,
            duration: 0.0,
            memory: None,
        };
        recording::torch_row(py, nanos, &row);
    }
}

/// A module has been called; its frame is still there.
pub(crate) fn ended(py: Python<'_>, nanos: i64, address: usize, value: Borrowed<'_, '_, PyAny>) {
    let generation = fork_child::generation();
    // What lies above it ended by an exception, of which nobody told.
    let call = UNDER_WAY.with_borrow_mut(|calls| {
        let place = calls.iter().rposition(|call| call.frame == address)?;
        calls.truncate(place + 1);
        calls.pop()
    });
    let Some(call) = call.filter(|call| call.generation == generation) else {
        return;
    };
    if let Some((step, seq)) = state::next(py) {
        let row = TorchRow {
            called: call.called,
            stage: Stage::PostForward,
            step,
            seq,
            duration: seconds(nanos - call.began),
            memory: cuda::after_module(py),
        };
        recording::torch_row(py, nanos, &row);
    }
    if state::looks_at_outputs()
        && let Some(frame) = frame::current(py)
    {
        tensors::after_call(&frame, &value);
    }
}

/// What a module is called, and whether it is a model. One that was never seen is looked for.
fn known(module: &Bound<'_, PyAny>) -> Option<(Called, bool)> {
    let py = module.py();
    let found = |state: &State| {
        let module = state.modules.get(module)?;
        Some((module.called, module.is_root))
    };
    if let Some(known) = found(&*state::state(py)?) {
        return Some(known);
    }
    learn(module);
    found(&*state::state(py)?)
}

/// Finds the model of a module, gives all of it names, and has its parameters tell of gradients.
#[cold]
fn learn(module: &Bound<'_, PyAny>) {
    let py = module.py();
    let step = crate::recording::step::now().unwrap_or(0);
    let Some((class, may_walk)) = state::state(py).and_then(|state| {
        let class = state.torch.as_ref()?.module_class.clone_ref(py);
        Some((class, state.modules.may_walk(step)))
    }) else {
        return;
    };
    let model = modules::model_of(module, class.bind(py), may_walk);
    let is_stray = model.is_stray;
    let (learned, root) = modules::named(model);
    let addresses: Vec<usize> = learned.iter().map(|(address, _)| *address).collect();
    let gone = state::state(py).map(|mut state| {
        if is_stray {
            state.modules.walked_in_vain(step);
        }
        state.modules.learn(learned, root)
    });
    drop(gone);
    backward::hook(py, &addresses);
}

/// The module whose call this is, by the frame that runs it.
pub(crate) fn module_of<'py>(frame: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    frame::variable(frame, interned!(frame.py(), "self"))
}

pub(crate) fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}
