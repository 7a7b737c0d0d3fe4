//! Interrupts of evaluated code: a `KeyboardInterrupt` at a safe bytecode, or the cancellation of a task that waits.
#![expect(unsafe_code, reason = "PyThreadState_SetAsyncExc has no safe face")]

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use probing_proto::message::Progress;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::breakpoints;
use crate::eval::evaluation;
use crate::eval::interrupt_safety::{self, InterruptSafety};
use crate::python::call::{call, release};
use crate::python::signal_handlers;

/// How long code is awaited to come back from the standard library.
const LIBRARY_TIMEOUT: Duration = Duration::from_millis(80);
/// Between two looks at where it is: an eighth of the time that it has taken, within these.
const SHORTEST: Duration = Duration::from_millis(1);
const MAX_INTERVAL: Duration = Duration::from_millis(100);

/// No thread.
const NOBODY: u64 = 0;

/// The code has not begun.
const WAITS: u8 = 0;
/// It has, at least in that it has the GIL.
const BEGUN: u8 = 1;
/// It was cancelled before it began, and never will.
const ABANDONED: u8 = 2;

/// The handle by which one eval is interrupted.
#[derive(Default)]
pub(crate) struct Interrupt {
    /// One of the above: whether it begins or is abandoned is decided once.
    stage: AtomicU8,
    requested: AtomicBool,
    over: AtomicBool,
    /// A thread is waiting for the GIL to deliver it.
    on_its_way: AtomicBool,
    /// The thread that runs the code. Changes only under the GIL.
    thread: AtomicU64,
    /// The thread that code which has not begun waits for.
    awaited_thread: AtomicU64,
    /// Cancels the task that the code is, when none of its own code runs. Touched only under the GIL.
    cancel_task: Mutex<Option<Py<PyAny>>>,
    /// Told when the code was abandoned.
    on_abandoned: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Interrupt {
    /// Of code that a thread runs already; to be followed by [`Self::leave`].
    pub(crate) fn of_thread(thread: u64) -> Self {
        let interrupt = Self::default();
        interrupt.begin();
        interrupt.thread.store(thread, Ordering::Release);
        interrupt
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.stage.load(Ordering::Acquire) == BEGUN
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.stage.load(Ordering::Acquire) == ABANDONED
    }

    /// Whether there is nothing left to interrupt.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The eval has its answer.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(crate) fn progress(&self) -> Progress {
        let begun = self.has_begun();
        let thread = if begun {
            &self.thread
        } else {
            &self.awaited_thread
        };
        Progress {
            begun,
            thread: Some(thread.load(Ordering::Acquire)).filter(|thread| *thread != NOBODY),
        }
    }

    /// The code will begin when this thread comes to it.
    pub(crate) fn await_thread(&self, thread: u64) {
        self.awaited_thread.store(thread, Ordering::Release);
    }

    /// Calls `told` when the code is abandoned, or now if it was.
    pub(crate) fn when_abandoned(&self, told: Box<dyn Fn() + Send>) {
        let mut on_abandoned = lock(&self.on_abandoned);
        if self.is_abandoned() {
            told();
        } else {
            *on_abandoned = Some(told);
        }
    }

    /// Asks for it. Never waits: delivering needs the GIL, so a thread of its own does that.
    pub(crate) fn request(self: &Arc<Self>) {
        self.request_after(|_| ());
    }

    /// The same; `say` comes before anything that follows from it, and is told what was interrupted.
    pub(crate) fn request_after(self: &Arc<Self>, say: impl FnOnce(Progress)) {
        self.requested.store(true, Ordering::Release);
        let abandoned_now = self.enter(ABANDONED);
        say(self.progress());
        if abandoned_now && let Some(told) = &*lock(&self.on_abandoned) {
            told();
        }
        if self.is_abandoned() || self.is_over() || self.on_its_way.swap(true, Ordering::AcqRel) {
            return;
        }
        let interrupt = Arc::clone(self);
        let spawned = thread::Builder::new()
            .name("probing-cancel".to_owned())
            .spawn(move || interrupt.bring());
        if spawned.is_err() {
            self.on_its_way.store(false, Ordering::Release);
        }
    }

    /// Delivers it as soon as that can be, while there is something to interrupt.
    fn bring(&self) {
        let (began, mut before) = (Instant::now(), InterruptSafety::Free);
        loop {
            // None when the interpreter ends, which interrupts everything anyway.
            let met = Python::try_attach(|py| {
                let mut met = self.deliver(py, before, began.elapsed());
                if met == Some(InterruptSafety::Locking) && began.elapsed() >= LIBRARY_TIMEOUT {
                    // It is only harder to find a moment without it.
                    drop(interrupt_safety::shuffle(py, || {
                        met = self.deliver(py, before, began.elapsed());
                        met.is_none() || self.is_over()
                    }));
                }
                met
            });
            match met.flatten() {
                Some(moment) if !self.is_over() => before = moment,
                _ => break,
            }
            thread::sleep((began.elapsed() / 8).clamp(SHORTEST, MAX_INTERVAL));
        }
    }

    /// If it must wait, where the thread is; `before` is where it was at the last look.
    fn deliver(
        &self,
        py: Python<'_>,
        before: InterruptSafety,
        waited: Duration,
    ) -> Option<InterruptSafety> {
        let thread = self.thread.load(Ordering::Acquire);
        let moment = match thread {
            NOBODY => InterruptSafety::Free,
            _ => InterruptSafety::of(py, thread),
        };
        let may_come = match moment {
            InterruptSafety::Free => true,
            InterruptSafety::Inside => waited >= LIBRARY_TIMEOUT,
            InterruptSafety::Waiting(_) => waited >= LIBRARY_TIMEOUT && moment == before,
            InterruptSafety::Locking => false,
        };
        // To look where a thread is may run code of the program (an audit hook), which lets others have the GIL: the code that
        // is meant may have ended meanwhile. From here to the end nothing lets go of the GIL.
        let class = class(py);
        if !may_come || self.thread.load(Ordering::Acquire) != thread {
            return Some(moment);
        }
        self.on_its_way.store(false, Ordering::Release);
        if thread == NOBODY {
            self.cancel_task(py);
        } else {
            set_pending_exception(py, thread, class);
        }
        None
    }

    /// How to cancel the task that the code is.
    pub(crate) fn cancel_with(&self, cancel: Bound<'_, PyAny>) {
        *lock(&self.cancel_task) = Some(cancel.unbind());
    }

    /// Cancels the task that the code is, if it is one.
    pub(crate) fn cancel_task(&self, py: Python<'_>) {
        let cancel = lock(&self.cancel_task)
            .as_ref()
            .map(|cancel| cancel.clone_ref(py));
        if let Some(cancel) = cancel {
            // A loop that is closed takes nothing any more; then the task has ended, too.
            drop(call(cancel.bind(py), ()));
        }
    }

    /// The task has ended.
    pub(crate) fn forget_task(&self, py: Python<'_>) {
        let cancel = lock(&self.cancel_task).take();
        if let Some(cancel) = cancel {
            release(cancel.into_bound(py));
        }
    }

    /// The code begins; false if it was cancelled before.
    pub(crate) fn begin(&self) -> bool {
        self.enter(BEGUN)
    }

    /// Leaves the first stage, for one of the others; false when it has been left already.
    fn enter(&self, stage: u8) -> bool {
        self.stage
            .compare_exchange(WAITS, stage, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Runs `code`, which may be interrupted; afterwards nothing of an interrupt is left in this thread.
    pub(crate) fn allow<T>(&self, py: Python<'_>, code: impl FnOnce() -> T) -> T {
        self.thread.store(own_thread(), Ordering::Release);
        let result = breakpoints::quietly(code);
        self.settle(py);
        result
    }

    /// The code of [`Self::of_thread`] has ended, in this thread.
    pub(crate) fn leave(&self, py: Python<'_>) {
        self.settle(py);
        self.end();
    }

    /// One that came when the code had just ended must not hit what follows. To take it back would leave Pythons before
    /// 3.13 looking for it at every call of every thread, for good; so it is let come.
    fn settle(&self, py: Python<'_>) {
        self.thread.store(NOBODY, Ordering::Release);
        if self.is_requested() {
            signal_handlers::kept_out(py, || drop(evaluation::run_nothing(py)));
        }
    }
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.progress().fmt(f)
    }
}

/// The calling thread, by the number that Python knows it by.
pub(crate) fn own_thread() -> u64 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::pthread_self() }
}

/// What comes to code that is interrupted: a `KeyboardInterrupt` in all but identity, so that it is not taken for the program's.
fn class(py: Python<'_>) -> Bound<'_, PyType> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        let base = py.get_type::<PyKeyboardInterrupt>();
        PyErr::new_type(py, c"builtins.KeyboardInterrupt", None, Some(&base), None)
    });
    match class {
        Ok(class) => class.bind(py).clone(),
        // Without memory for it.
        Err(_) => py.get_type::<PyKeyboardInterrupt>(),
    }
}

/// Whether an interrupt of ours is what was raised.
pub(crate) fn is_ours(py: Python<'_>, error: &PyErr) -> bool {
    error.get_type(py).is(class(py))
}

fn set_pending_exception(_py: Python<'_>, thread: u64, exception: Bound<'_, PyType>) {
    // SAFETY: the GIL is held, as `_py` shows; the exception is a class. A thread that is gone is not found, which is fine.
    unsafe { ffi::PyThreadState_SetAsyncExc(thread as i64, exception.as_ptr()) };
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
