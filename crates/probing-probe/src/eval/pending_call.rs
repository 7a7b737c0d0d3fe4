//! Errands for the main thread, which it runs at its next bytecode boundary.
//!
//! The interpreter takes only a few such calls at a time, so there is one of ours at most, which runs all that wait.
#![expect(unsafe_code, reason = "Py_AddPendingCall has no safe face")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::process::per_process::PerProcess;
use crate::python::exc_info::Handled;
use crate::python::signal_handlers;

/// Something to do with the GIL.
pub(crate) type Errand = Box<dyn FnOnce(Python<'_>) + Send>;

static ERRANDS: PerProcess<Errands> = PerProcess::new();

#[derive(Default)]
struct Errands {
    waiting: Mutex<VecDeque<Errand>>,
    /// The interpreter knows that there are some.
    announced: AtomicBool,
}

/// Has the main thread run it. False when the interpreter has too much to do for it already. Called with the GIL held.
pub(crate) fn send(errand: Errand) -> bool {
    let errands = ERRANDS.get_or_init(Errands::default);
    errands.lock().push_back(errand);
    if errands.announced.swap(true, Ordering::AcqRel) {
        return true;
    }
    // SAFETY: the function lives as long as this library, which Python never unloads, and needs no argument.
    let taken = unsafe { ffi::Py_AddPendingCall(Some(run), ptr::null_mut()) } == 0;
    if !taken {
        errands.announced.store(false, Ordering::Release);
        errands.lock().pop_back();
    }
    taken
}

impl Errands {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Errand>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Called by the interpreter in the main thread, with the GIL held and no exception set.
extern "C" fn run(_: *mut c_void) -> c_int {
    // Nothing may get out of here but what handlers of the program have raised.
    let is_quiet = panic::catch_unwind(|| {
        Python::try_attach(|py| {
            let errands = ERRANDS.get_or_init(Errands::default);
            errands.announced.store(false, Ordering::Release);
            let run_all = || {
                loop {
                    let Some(errand) = errands.lock().pop_front() else {
                        break;
                    };
                    drop(panic::catch_unwind(AssertUnwindSafe(|| errand(py))));
                }
            };
            signal_handlers::kept_out(py, || Handled::aside(py, run_all));
            !signal_handlers::may_wait() || signal_handlers::run(py)
        })
    });
    match is_quiet {
        Ok(Some(false)) => -1,
        _ => 0,
    }
}
