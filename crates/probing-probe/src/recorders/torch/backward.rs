//! Backward passes: each as a whole, and module by module, as their gradients become ready.
//!
//! torch tells when a gradient has been added to a leaf. Gradients become ready one after the other, so the time since the
//! one before is what a module took. One parameter of a module is enough to know that, and one hook costs about a
//! microsecond of a pass.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use probing_store::monotonic_nanos;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::call::{call, release};
use crate::python::immortal::{Hook as ImmortalHook, Numbered};
use crate::python::interned::interned;
use crate::python::signal_handlers;
use crate::recorders::torch::forward::seconds;
use crate::recorders::torch::hooks::GradientParameters;
use crate::recorders::torch::state::{self, HookScan, State};
use crate::recorders::torch::tensors;
use crate::recording::{self, Called, Stage, TorchRow};

thread_local! {
    /// The model that this thread called last: what a pass of it is called.
    static ROOT: Cell<Option<Called>> = const { Cell::new(None) };
    /// The pass that is under way, if any: when it began.
    static BEGAN: Cell<i64> = const { Cell::new(0) };
}

/// When the pass began, or its last gradient became ready. Passes run on threads of torch's own, too.
static MARK: AtomicI64 = AtomicI64::new(0);

/// How many modules have told in this pass, and how many in the one before.
static TOLD: AtomicU32 = AtomicU32::new(0);
static TOLD_BEFORE: AtomicU32 = AtomicU32::new(0);

pub(crate) fn remember_root(called: Called) {
    ROOT.set(Some(called));
}

/// A pass begins.
pub(crate) fn began(py: Python<'_>, nanos: i64) {
    BEGAN.set(nanos);
    MARK.store(nanos, Ordering::Relaxed);
    record(py, ROOT.get(), Stage::PreBackward, nanos, 0.0);
}

/// A pass has ended.
pub(crate) fn ended(py: Python<'_>, nanos: i64) {
    let took = seconds(nanos - BEGAN.get());
    record(py, ROOT.get(), Stage::PostBackward, nanos, took);
    let told = TOLD.swap(0, Ordering::Relaxed);
    let is_as_before = TOLD_BEFORE.swap(told, Ordering::Relaxed) == told;
    state::look_for_hooks(if is_as_before {
        HookScan::WhereSomeLack
    } else {
        HookScan::Everywhere
    });
}

fn record(py: Python<'_>, called: Option<Called>, stage: Stage, nanos: i64, duration: f64) {
    let Some(called) = called else {
        return;
    };
    if let Some((step, seq)) = state::next(py) {
        let row = TorchRow {
            called,
            stage,
            step,
            seq,
            duration,
            memory: None,
        };
        recording::torch_row(py, nanos, &row);
    }
}

static READY: Numbered<Ready> = Numbered::new();

/// A gradient has been added to a parameter.
struct Ready;

impl ImmortalHook for Ready {
    const NAME: &'static CStr = c"gradient_is_ready";

    fn is_on() -> bool {
        state::wants_gradients()
    }

    fn on_call(number: usize, parameter: &Bound<'_, PyAny>) {
        tell(parameter.py(), number, parameter);
    }
}

/// A hook of a parameter: how it is taken out.
#[derive(Debug)]
pub(crate) struct Hook {
    handle: Py<PyAny>,
}

impl Hook {
    /// Takes it out of its parameter.
    pub(crate) fn remove(self, py: Python<'_>) {
        let handle = self.handle.into_bound(py);
        // It fails when the parameter is gone, and the hook with it.
        signal_handlers::given_aside(py, || {
            call(&handle.getattr(interned!(py, "remove"))?, ()).map(release)
        });
        release(handle);
    }
}

/// Has modules tell when their gradients are ready: one parameter of each, or all where gradients are looked at.
pub(crate) fn hook(py: Python<'_>, addresses: &[usize]) {
    signal_handlers::aside(py, || hook_all(py, addresses));
}

fn hook_all(py: Python<'_>, addresses: &[usize]) {
    let Some((all_of_them, modules, _unheard)) = state::state(py).and_then(|state| {
        let all_of_them = state.wants_all_gradients()?;
        let modules = addresses.iter();
        let modules = modules.filter_map(|at| Some((*at, state.modules.at(*at)?.tensors(py))));
        let modules: Vec<_> = modules.collect();
        Some((all_of_them, modules, state.torch.as_ref()?.unheard(py)?))
    }) else {
        return;
    };
    let most = if all_of_them { usize::MAX } else { 1 };
    let wanting = modules.into_iter().map(|(address, tensors)| {
        let wanted = tensors.len().min(most);
        let tensors = tensors.into_iter();
        let parameters = tensors.filter(|(_, tensor)| gets_gradients(tensor));
        let parameters: Vec<_> = parameters.take(most).collect();
        let first = parameters.iter().take_while(|(place, _)| *place < wanted);
        GradientParameters {
            address,
            lacks_some: first.count() < wanted,
            parameters,
        }
    });
    let wanting: Vec<GradientParameters<'_>> = wanting.collect();
    let (era, due, gone) = {
        let Some(mut state) = state::state(py) else {
            return;
        };
        let era = state.era;
        let State { hooks, modules, .. } = &mut *state;
        let due = hooks.due(modules, wanting);
        let gone = if due.is_empty() {
            Vec::new()
        } else {
            hooks.gone()
        };
        (era, due, gone)
    };
    drop(gone);
    for due in due {
        let hook = hooked(&due.tensor, due.number);
        // Another thread may have switched it off meanwhile: then nobody else would take it out.
        match state::state(py).filter(|state| state.era == era) {
            Some(mut state) => state.hooks.add(due, hook),
            None => hook.into_iter().for_each(|hook| hook.remove(py)),
        }
    }
}

/// Whether it is a leaf for which gradients are added up.
fn gets_gradients(tensor: &Bound<'_, PyAny>) -> bool {
    let py = tensor.py();
    let is = |name: &Bound<'_, PyString>| {
        let flag = tensor.getattr(name);
        flag.is_ok_and(|flag| flag.is_truthy().unwrap_or(false))
    };
    is(interned!(py, "requires_grad")) && is(interned!(py, "is_leaf"))
}

/// Puts a hook on a parameter.
fn hooked(tensor: &Bound<'_, PyAny>, number: usize) -> Option<Hook> {
    let py = tensor.py();
    let handle = signal_handlers::given_aside(py, || {
        let register = tensor.getattr(interned!(py, "register_post_accumulate_grad_hook"));
        call(&register?, (READY.get(py, number)?,))
    })?;
    Some(Hook {
        handle: handle.unbind(),
    })
}

fn tell(py: Python<'_>, number: usize, parameter: &Bound<'_, PyAny>) {
    let called = state::timed(number, parameter);
    if called.is_some() {
        TOLD.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(called) = called
        && let Some((step, seq)) = state::next(py)
    {
        let now = monotonic_nanos();
        let before = MARK.swap(now, Ordering::Relaxed);
        let mut row = TorchRow {
            called,
            stage: Stage::PreBackward,
            step,
            seq,
            duration: 0.0,
            memory: None,
        };
        recording::torch_row(py, before, &row);
        if let Some((step, seq)) = state::next(py) {
            row.stage = Stage::PostBackward;
            (row.step, row.seq) = (step, seq);
            row.duration = seconds(now - before);
            recording::torch_row(py, now, &row);
        }
    }
    if state::looks_for_nan() {
        tensors::after_gradient(py, number, parameter);
    }
}
