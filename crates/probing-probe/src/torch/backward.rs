//! Backward passes: each as a whole, and module by module, as their gradients become ready.
//!
//! torch tells when a gradient has been added to a leaf. Gradients become ready one after the other, so the time since the
//! one before is what a module took. One parameter of a module is enough to know that, and one hook costs about a
//! microsecond of a pass.
#![expect(
    unsafe_code,
    reason = "hooks are C functions, which take arguments as Python passes them"
)]

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use probing_store::monotonic_nanos;
use pyo3::Borrowed;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::forward::seconds;
use super::hooks::Wanting;
use super::state::{self, Looks, State};
use super::tensors;
use crate::forked;
use crate::guarded::{call, release};
use crate::interned::interned;
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

pub(super) fn remember_root(called: Called) {
    ROOT.set(Some(called));
}

/// A pass begins.
pub(super) fn began(py: Python<'_>, nanos: i64) {
    BEGAN.set(nanos);
    MARK.store(nanos, Ordering::Relaxed);
    record(py, ROOT.get(), Stage::PreBackward, nanos, 0.0);
}

/// A pass has ended.
pub(super) fn ended(py: Python<'_>, nanos: i64) {
    let took = seconds(nanos - BEGAN.get());
    record(py, ROOT.get(), Stage::PostBackward, nanos, took);
    let told = TOLD.swap(0, Ordering::Relaxed);
    let is_as_before = TOLD_BEFORE.swap(told, Ordering::Relaxed) == told;
    state::look_for_hooks(if is_as_before {
        Looks::WhereSomeLack
    } else {
        Looks::Everywhere
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

static mut READY: ffi::PyMethodDef = ffi::PyMethodDef {
    ml_name: c"gradient_is_ready".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: ready },
    ml_flags: ffi::METH_O,
    ml_doc: c"".as_ptr(),
};

/// A hook of a parameter: how it is taken out.
#[derive(Debug)]
pub(super) struct Hook {
    handle: Py<PyAny>,
}

impl Hook {
    /// Takes it out of its parameter.
    pub(super) fn remove(self, py: Python<'_>) {
        let handle = self.handle.into_bound(py);
        if let Ok(remove) = handle.getattr(interned!(py, "remove")) {
            // It fails when the parameter is gone, and the hook with it.
            drop(call(&remove, ()));
        }
        release(handle);
    }
}

/// The part of a hook's number that counts hooks; the rest is of the process.
const NUMBER: u64 = u32::MAX as u64;

fn own_mark() -> u64 {
    u64::from(forked::generation()) << 32
}

/// Has modules tell when their gradients are ready: one parameter of each, or all where gradients are looked at.
pub(super) fn hook(py: Python<'_>, addresses: &[usize]) {
    let Some((all_of_them, modules, _unheard)) = state::state().and_then(|state| {
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
        Wanting {
            address,
            lacks_some: first.count() < wanted,
            parameters,
        }
    });
    let wanting: Vec<Wanting<'_>> = wanting.collect();
    let (due, gone) = {
        let Some(mut state) = state::state() else {
            return;
        };
        let State { hooks, modules, .. } = &mut *state;
        let due = hooks.due(modules, wanting);
        let gone = if due.is_empty() {
            Vec::new()
        } else {
            hooks.gone()
        };
        (due, gone)
    };
    drop(gone);
    for due in due {
        let hook = hooked(&due.tensor, due.number);
        if let Some(mut state) = state::state() {
            state.hooks.add(due, hook);
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
    let number = (own_mark() | number as u64).into_pyobject(py).ok()?;
    // SAFETY: the definition is static and nobody changes it; the number is a live object; no module is needed.
    let function: Bound<'_, PyAny> = unsafe {
        let function =
            ffi::PyCFunction_NewEx(&raw mut READY, number.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, function).ok()?
    };
    let register = tensor.getattr(interned!(py, "register_post_accumulate_grad_hook"));
    let handle = call(&register.ok()?, (function,)).ok()?;
    Some(Hook {
        handle: handle.unbind(),
    })
}

/// A gradient has been added to a parameter.
///
/// # Safety
///
/// Called by the interpreter: with the number that the function was made with, and one argument.
unsafe extern "C" fn ready(number: *mut PyObject, parameter: *mut PyObject) -> *mut PyObject {
    let body = || {
        // SAFETY: whoever calls a function of Python has the GIL; both are live objects.
        let (py, number, parameter) = unsafe {
            let py = Python::assume_attached();
            let parameter: Borrowed<'_, '_, PyAny> = Borrowed::from_ptr(py, parameter);
            (py, ffi::PyLong_AsUnsignedLongLong(number), parameter)
        };
        // A child of a fork has its parent's hooks, and not what they are numbers of.
        if number & !NUMBER == own_mark() {
            tell(py, (number & NUMBER) as usize, &parameter);
        }
    };
    // No panic leaves the probe.
    drop(panic::catch_unwind(AssertUnwindSafe(body)));
    // SAFETY: the GIL is held.
    unsafe { ffi::Py_NewRef(ffi::Py_None()) }
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
