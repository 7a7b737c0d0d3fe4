//! The state of torch's recorder in this process.
//!
//! Reached with the GIL held.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use probing_proto::message::torch::{MemoryRead, TensorKind, TorchOptions};
use pyo3::prelude::*;

use crate::process::per_process::PerProcess;
use crate::python::gil_cell::{GilCell, GilGuard};
use crate::recorders::torch::hooks::{HookInfo, Hooks};
use crate::recorders::torch::modules::Modules;
use crate::recorders::torch::steps::Counter;
use crate::recorders::torch::tensors::Findings;
use crate::recorders::torch::torch_api::Torch;
use crate::recording::Called;
use crate::recording::step;

/// What a parent of this process had is left as it is: to drop it would run hooks' removals in a child that has none of it.
static STATE: PerProcess<GilCell<Option<Box<State>>>> = PerProcess::new();

/// Of how many steps one is recorded; 0 when none is. These are looked at in every call of a module.
static EVERY: AtomicU32 = AtomicU32::new(0);
static ACTIVATIONS_EVERY: AtomicU32 = AtomicU32::new(0);
static NAN: AtomicBool = AtomicBool::new(false);
/// Tensors that were looked at for NaN and Inf.
static LOOKS: AtomicU64 = AtomicU64::new(0);
static MODULE_MEMORY: AtomicBool = AtomicBool::new(false);
/// Parameters are to be hooked, by the thread that trains: one that is in a backward pass must not meet it half-way.
static HOOKS_DUE: AtomicU8 = AtomicU8::new(HookScan::NOWHERE);

/// How many states there have been.
static ERAS: AtomicU64 = AtomicU64::new(0);

/// The step that rows are numbered in, and the next number.
static SEQ_OF: AtomicI64 = AtomicI64::new(i64::MIN);
static SEQ: AtomicI64 = AtomicI64::new(0);

#[derive(Debug)]
pub(crate) struct State {
    /// Which one it is: after `off` and `on` it is another.
    pub(crate) era: u64,
    /// What clients and the environment ask for.
    pub(crate) wanted: TorchOptions,
    /// Whether it is looked for NaN and Inf because connections have borrowed that.
    pub(crate) is_nan_borrowed: bool,
    /// What we use of torch, once it is there.
    pub(crate) torch: Option<Torch>,
    pub(crate) modules: Modules,
    pub(crate) counter: Counter,
    pub(crate) hooks: Hooks,
    pub(crate) findings: Findings,
}

/// The state, lent.
pub(crate) struct Ours<'a>(GilGuard<'a, Option<Box<State>>>);

impl Deref for Ours<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_deref().expect("it was there when it was lent")
    }
}

impl DerefMut for Ours<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0
            .as_deref_mut()
            .expect("it was there when it was lent")
    }
}

/// This process's, while something is recorded. `None` also for who comes here in the middle of itself.
#[inline]
pub(crate) fn state(py: Python<'_>) -> Option<Ours<'_>> {
    let lent = STATE.get()?.try_borrow_mut(py)?;
    lent.is_some().then(|| Ours(lent))
}

/// Whether anything was ever recorded; without the GIL.
pub(crate) fn is_used() -> bool {
    STATE.of_any_process().is_some()
}

/// Makes one, if there is none.
pub(crate) fn begin(py: Python<'_>) -> Option<Ours<'_>> {
    let state = STATE.get_or_init(|| GilCell::new(None));
    let mut lent = state.try_borrow_mut(py)?;
    if lent.is_none() {
        *lent = Some(Box::new(State {
            era: ERAS.fetch_add(1, Ordering::Relaxed),
            wanted: TorchOptions::default(),
            is_nan_borrowed: false,
            torch: None,
            modules: Modules::default(),
            counter: Counter::default(),
            hooks: Hooks::default(),
            findings: Findings::default(),
        }));
    }
    Some(Ours(lent))
}

/// Ends it: what there was, to be dropped outside.
pub(crate) fn end(py: Python<'_>) -> Option<Box<State>> {
    apply(&TorchOptions::default());
    STATE.get()?.try_borrow_mut(py)?.take()
}

/// Has events look at these settings.
pub(crate) fn apply(wanted: &TorchOptions) {
    let every = wanted.trace.as_ref().map_or(0, |trace| trace.every);
    EVERY.store(every, Ordering::Relaxed);
    let activations = wanted
        .tensors
        .as_ref()
        .filter(|tensors| tensors.kinds.contains(&TensorKind::Activations));
    ACTIVATIONS_EVERY.store(activations.map_or(0, |it| it.every), Ordering::Relaxed);
    NAN.store(wanted.nan, Ordering::Relaxed);
    let memory = wanted.trace.as_ref().map(|trace| trace.memory);
    MODULE_MEMORY.store(memory == Some(MemoryRead::Module), Ordering::Relaxed);
    look_for_hooks(HookScan::Everywhere);
}

/// At which modules it is looked, for parameters that get gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HookScan {
    /// Where some got none when it was last looked.
    WhereSomeLack = 1,
    Everywhere = 2,
}

impl HookScan {
    const NOWHERE: u8 = 0;
}

/// Has the thread that trains look which parameters get gradients, when it next calls a model.
pub(crate) fn look_for_hooks(looks: HookScan) {
    HOOKS_DUE.fetch_max(looks as u8, Ordering::Relaxed);
}

/// Whether the memory of a GPU is read behind each module.
#[inline]
pub(crate) fn reads_module_memory() -> bool {
    MODULE_MEMORY.load(Ordering::Relaxed)
}

/// Where other parameters than before may get gradients, or are to be looked at.
pub(crate) fn hooks_due() -> Option<HookScan> {
    match HOOKS_DUE.swap(HookScan::NOWHERE, Ordering::Relaxed) {
        HookScan::NOWHERE => None,
        due if due == HookScan::Everywhere as u8 => Some(HookScan::Everywhere),
        _ => Some(HookScan::WhereSomeLack),
    }
}

/// The step and number of the next row; `None` when this step is not recorded.
#[inline]
pub(crate) fn next(_py: Python<'_>) -> Option<(i64, i64)> {
    let step = step::now().unwrap_or(0);
    if !is_due(EVERY.load(Ordering::Relaxed), step) {
        return None;
    }
    // Whoever comes here has the GIL: nobody else writes meanwhile.
    let seq = if SEQ_OF.load(Ordering::Relaxed) == step {
        SEQ.load(Ordering::Relaxed)
    } else {
        SEQ_OF.store(step, Ordering::Relaxed);
        0
    };
    SEQ.store(seq + 1, Ordering::Relaxed);
    Some((step, seq))
}

#[inline]
pub(crate) fn is_due(every: u32, step: i64) -> bool {
    match every {
        0 => false,
        1 => true,
        _ => step.rem_euclid(i64::from(every)) == 0,
    }
}

/// Whether what modules give is looked at in this step.
#[inline]
pub(crate) fn looks_at_outputs() -> bool {
    looks_for_nan() || are_activations_due()
}

pub(crate) fn are_activations_due() -> bool {
    let every = ACTIVATIONS_EVERY.load(Ordering::Relaxed);
    every != 0 && is_due(every, step::now().unwrap_or(0))
}

/// Whether gradients that become ready are recorded or looked at.
#[inline]
pub(crate) fn wants_gradients() -> bool {
    EVERY.load(Ordering::Relaxed) != 0 || looks_for_nan()
}

#[inline]
pub(crate) fn looks_for_nan() -> bool {
    NAN.load(Ordering::Relaxed)
}

pub(crate) fn looks() -> u64 {
    LOOKS.load(Ordering::Relaxed)
}

/// Counts a look for NaN and Inf; its number, from 1 on.
pub(crate) fn next_look() -> u64 {
    LOOKS.fetch_add(1, Ordering::Relaxed) + 1
}

/// What the hook of a number tells of, if it is this parameter's.
pub(crate) fn hooked(number: usize, parameter: &Bound<'_, PyAny>) -> Option<HookInfo> {
    let py = parameter.py();
    state(py)?.hooks.about(number, parameter).cloned()
}

/// What is called so by a hook's rows, if it is the one by which its module is timed.
#[inline]
pub(crate) fn timed(number: usize, parameter: &Bound<'_, PyAny>) -> Option<Called> {
    let py = parameter.py();
    let state = state(py)?;
    let about = state.hooks.about(number, parameter)?;
    about.tells_time.then_some(about.called)
}

impl State {
    /// What is recorded, whoever wants it.
    pub(crate) fn in_effect(&self) -> TorchOptions {
        TorchOptions {
            nan: self.wanted.nan || self.is_nan_borrowed,
            ..self.wanted.clone()
        }
    }

    /// How often the memory of a GPU is read.
    pub(crate) fn memory_read(&self) -> MemoryRead {
        let trace = self.wanted.trace.as_ref();
        trace.map_or(MemoryRead::Never, |trace| trace.memory)
    }

    /// Whether one parameter of each module is to tell when its gradient is ready, or all; `None` when none is.
    pub(crate) fn wants_all_gradients(&self) -> Option<bool> {
        let wants_time = self.wanted.trace.is_some();
        let wants_nan = self.wanted.nan || self.is_nan_borrowed;
        (wants_time || wants_nan).then_some(wants_nan)
    }
}
