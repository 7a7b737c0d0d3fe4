//! Signal handlers that the program wrote in Python, while code of ours runs in its main thread.
//!
//! CPython runs a handler between two bytecodes of the main thread, whosever they are. Inside of a condition, what a handler
//! raises would be taken for the condition's, and the program would never see it. So the interpreter is told for that time
//! that no thread is the main one: signals wait, and handlers run where the program is, which gets what they raise. No other
//! thread notices, as none of them is the main one either way.
//!
//! Code that a client has evaluated may run for long, so there handlers run as ever; what one raised is recognised
//! (`handlers.py`) and raised again in the program. What is not known to come from a handler stays with the client: raised in
//! the program it might end it.
#![expect(
    unsafe_code,
    reason = "finds and writes the word by which the interpreter knows its main thread"
)]

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyTraceback};

use crate::process::fork_child;
use crate::python::call::{call, release, release_error, unwinding_sleeps};
use crate::python::compile::{self, Mode};
use crate::python::current_thread::own_thread;
use crate::python::embedded::embedded;
use crate::python::frame;
use crate::python::interrupt_class;
use crate::python::pending_call;
use crate::python::thread_state::{traced_again, untraced};

/// No thread.
const NOBODY: u64 = 0;
/// Those of Linux, with real-time signals.
const SIGNAL_COUNT: u32 = 64;
/// How much of `_PyRuntime` is searched, in words. Its beginning grew when it began to describe itself.
const WORDS: usize = 32;
const WORDS_SINCE_3_13: usize = 192;

/// Where the interpreter keeps the number of its main thread, once that is found.
static MAIN_THREAD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// It was looked for and not found.
static IS_UNKNOWN: AtomicBool = AtomicBool::new(false);
/// Handlers were kept out, so some may wait.
static MAY_WAIT: AtomicBool = AtomicBool::new(false);
/// What handlers raised inside of evaluated code, until the program has it.
static RAISED: Mutex<Vec<PyErr>> = Mutex::new(Vec::new());
/// As they were when the probe started: the program may replace them.
static SIGNALS: PyOnceLock<Signals> = PyOnceLock::new();

/// Of the module `_signal`.
struct Signals {
    set: Py<PyAny>,
    get: Py<PyAny>,
    /// Python's own handler of Ctrl-C.
    interrupt: Py<PyAny>,
}

thread_local! {
    /// Whether this thread keeps them out.
    static KEEPS_OUT: Cell<bool> = const { Cell::new(false) };
    /// Whether this is the first thread of the process, as of which fork.
    static IS_FIRST: Cell<Option<(u32, bool)>> = const { Cell::new(None) };
}

/// Takes hold of what will be needed.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    SIGNALS.get_or_try_init(py, || {
        let module = py.import("_signal")?;
        let function = |name| module.getattr(name).map(Bound::unbind);
        Ok::<_, PyErr>(Signals {
            set: function("signal")?,
            get: function("getsignal")?,
            interrupt: function("default_int_handler")?,
        })
    })?;
    Ok(())
}

/// Runs code of ours, or an expression, in a thread of the program: no handler runs meanwhile.
#[inline]
pub(crate) fn kept_out<T>(py: Python<'_>, code: impl FnOnce() -> T) -> T {
    let Some(word) = main_thread_word(py) else {
        return code();
    };
    let own = own_thread();
    if word.load(Ordering::Relaxed) != own {
        return code();
    }
    let _kept = MainThreadGuard::new(word, own);
    // 3.11 does not get past the beginning of a function that is traced while a signal waits.
    untraced(py, code)
}

/// The same from where nothing may be raised: handlers that wait run as soon as the program goes on.
pub(crate) fn aside<T>(py: Python<'_>, code: impl FnOnce() -> T) -> T {
    let result = kept_out(py, code);
    // Inside of another one, that one sees to it.
    if may_wait() {
        run_soon();
    }
    result
}

/// What Python code of ours gave, run [`aside`]. What it raised is nobody's; but what a handler raised is the program's.
pub(crate) fn given_aside<T>(py: Python<'_>, code: impl FnOnce() -> PyResult<T>) -> Option<T> {
    aside(py, || {
        code()
            .map_err(|error| {
                give_back(py, &error);
                release_error(py, error);
            })
            .ok()
    })
}

/// Runs code inside of [`kept_out`] in which handlers run as ever.
pub(crate) fn let_in<T>(py: Python<'_>, code: impl FnOnce() -> T) -> T {
    match known_word().filter(|_| KEEPS_OUT.get()) {
        Some(word) => {
            let _admitted = Admitted::new(word);
            traced_again(py, code)
        }
        None => code(),
    }
}

/// From now on handlers run, though a thread keeps them out: what it does takes too long. Needs no GIL.
pub(crate) fn open(thread: u64) {
    if let Some(word) = known_word() {
        word.compare_exchange(NOBODY, thread, Ordering::AcqRel, Ordering::Relaxed)
            .ok();
    }
}

/// Whether this is the main thread, and handlers may wait for it.
#[inline]
pub(crate) fn may_wait() -> bool {
    MAY_WAIT.load(Ordering::Relaxed)
        && known_word().is_some_and(|word| word.load(Ordering::Relaxed) == own_thread())
}

/// Runs handlers that wait, where the program is and may be raised at: false with an exception set, which is the program's.
pub(crate) fn run(py: Python<'_>) -> bool {
    MAY_WAIT.store(false, Ordering::Relaxed);
    let (first, has_more) = {
        let mut raised = raised_ones();
        let first = (!raised.is_empty()).then(|| raised.remove(0));
        (first, !raised.is_empty())
    };
    if let Some(error) = first {
        if has_more {
            run_soon();
        }
        error.restore(py);
        return false;
    }
    // Also what the interpreter has been asked to call, which waited, too.
    // SAFETY: the GIL is held, as `py` shows, and no exception is set.
    unwinding_sleeps(|| unsafe { ffi::Py_MakePendingCalls() }) == 0
}

/// Runs handlers that wait as soon as the program goes on; for where nothing may be raised.
pub(crate) fn run_soon() {
    // It fails when the interpreter has too many calls to make already: then it is done at our next event.
    pending_call::send(Box::new(|_| ()));
}

/// Whether a handler of the program raised this, in code of a client's or ours. Then the program gets it.
pub(crate) fn give_back(py: Python<'_>, error: &PyErr) -> bool {
    give_back_since(&Installed::default(), py, error)
}

/// The same; one of those handlers may have set another in its place meanwhile.
pub(crate) fn give_back_since(before: &Installed<'_>, py: Python<'_>, error: &PyErr) -> bool {
    let find = || kept_out(py, || untraced(py, || origin(py, error, before).ok()));
    let Some(origin) = is_first_thread().then(find).flatten() else {
        return false;
    };
    let traceback = match origin {
        Origin::Handler(traceback) => Some(traceback),
        Origin::Interpreter => None,
        Origin::Code => return false,
    };
    // The program finds its own frames in it, and none of ours.
    error.set_traceback(py, traceback);
    raised_ones().push(error.clone_ref(py));
    MAY_WAIT.store(true, Ordering::Relaxed);
    run_soon();
    true
}

/// Whether the program is still to get what one of its handlers raised.
pub(crate) fn have_raised() -> bool {
    !raised_ones().is_empty()
}

/// In a forked child.
pub(crate) fn after_fork() {
    // The lock is held only by who has the GIL, as the thread that forked had.
    raised_ones().clear();
}

fn raised_ones() -> std::sync::MutexGuard<'static, Vec<PyErr>> {
    RAISED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where an exception was raised.
enum Origin<'py> {
    /// In a handler of the program: its traceback from there on.
    Handler(Bound<'py, PyTraceback>),
    /// In Python's own handler of Ctrl-C.
    Interpreter,
    /// In the code that it came out of, or by an interrupt of ours.
    Code,
}

/// The handlers that the program has set for its signals.
#[derive(Default)]
pub(crate) struct Installed<'py>(Vec<Bound<'py, PyAny>>);

impl<'py> Installed<'py> {
    /// As they are now; none for a thread that runs no handlers.
    pub(crate) fn now(py: Python<'py>) -> Self {
        let Some(signals) = SIGNALS.get(py).filter(|_| is_first_thread()) else {
            return Self::default();
        };
        let of_signal = |number| call(signals.get.bind(py), (number,)).ok();
        // A number is no handler, but tells that the signal has its usual effect, or none.
        let is_handler = |it: &Bound<'_, PyAny>| !it.is_none() && !it.is_instance_of::<PyInt>();
        let all = (1..=SIGNAL_COUNT).filter_map(of_signal);
        Self(all.filter(is_handler).collect())
    }

    fn has(&self, handler: &Bound<'py, PyAny>) -> bool {
        self.0.iter().any(|it| it.is(handler))
    }
}

impl Drop for Installed<'_> {
    /// With them may go the last reference to one.
    fn drop(&mut self) {
        self.0.drain(..).for_each(release);
    }
}

/// A handler is one that the program has set, and was called with the frame that it interrupts. What Python's own handler of
/// Ctrl-C raises comes from no frame of its own, and from no `raise` either. Whatever else there is was raised by the code.
fn origin<'py>(py: Python<'py>, error: &PyErr, before: &Installed<'py>) -> PyResult<Origin<'py>> {
    if interrupt_class::is_ours(py, error) {
        return Ok(Origin::Code);
    }
    let now = Installed::now(py);
    let traceback = error.traceback(py);
    let default = SIGNALS.get(py).map(|signals| signals.interrupt.bind(py));
    let is_set = |it: &&Bound<'_, PyAny>| default.is_none_or(|default| !it.is(default));
    let set: Vec<_> = now.0.iter().chain(&before.0).filter(is_set).collect();
    // Most programs set none, and are spared what is in `handlers.py`.
    if !set.is_empty() {
        let found = call(&handler_in(py)?, (&traceback, frame::current(py), set))?;
        if !found.is_none() {
            return Ok(Origin::Handler(found.cast_into()?));
        }
    }
    let may_interrupt = default.is_some_and(|it| now.has(it) || before.has(it));
    if may_interrupt && error.is_instance_of::<PyKeyboardInterrupt>(py) && !is_raised(traceback) {
        return Ok(Origin::Interpreter);
    }
    Ok(Origin::Code)
}

/// Of `handlers.py`.
fn handler_in(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static HANDLER_IN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let function = HANDLER_IN.get_or_try_init(py, || {
        let namespace = embedded!(py, "signal_handlers.py")?;
        namespace.as_any().get_item("handler_in").map(Bound::unbind)
    })?;
    Ok(function.bind(py).clone())
}

/// Whether an exception came from a `raise`, as far as can be told.
fn is_raised(traceback: Option<Bound<'_, PyTraceback>>) -> bool {
    let mut last = None;
    let mut next = traceback.map(Bound::into_any);
    while let Some(traceback) = next.filter(|it| !it.is_none()) {
        next = traceback.getattr("tb_next").ok();
        last = Some(traceback);
    }
    last.is_some_and(|it| raises(&it).unwrap_or(true))
}

/// Whether the innermost frame of an exception was at a `raise`.
fn raises(traceback: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = traceback.py();
    let code = traceback.getattr("tb_frame")?.getattr("f_code")?;
    let at = traceback.getattr("tb_lasti")?;
    let opcode = code.getattr("co_code")?.get_item(at)?;
    // `opcode.opmap["RAISE_VARARGS"]` of a program that was perhaps packed without `opcode`; from 3.11 on RESUME comes first.
    let raise = compile::compile(py, "raise", "<probing>", Mode::Exec, 0)?.getattr("co_code")?;
    let first = if py.version_info() >= (3, 11) { 2 } else { 0 };
    opcode.eq(raise.get_item(first)?)
}

fn known_word() -> Option<&'static AtomicU64> {
    // SAFETY: null, or a word of the interpreter's state, which is static.
    unsafe { MAIN_THREAD.load(Ordering::Relaxed).as_ref() }
}

#[inline]
fn main_thread_word(py: Python<'_>) -> Option<&'static AtomicU64> {
    known_word().or_else(|| find(py))
}

/// Looked for by the main thread itself, once.
#[cold]
fn find(py: Python<'_>) -> Option<&'static AtomicU64> {
    if IS_UNKNOWN.load(Ordering::Relaxed) || !is_first_thread() || SIGNALS.get(py).is_none() {
        return None;
    }
    let own = own_thread();
    // SAFETY: the name ends with NUL.
    let runtime = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_PyRuntime".as_ptr()) };
    let words = if py.version_info() >= (3, 13) {
        WORDS_SINCE_3_13
    } else {
        WORDS
    };
    let found = (0..words)
        .filter_map(|index| {
            // SAFETY: null, or the interpreter's state, which is larger than that, static and aligned; its other parts are
            // read only, as others do.
            unsafe {
                runtime
                    .cast::<AtomicU64>()
                    .as_ref()
                    .map(|first| &*ptr::from_ref(first).add(index))
            }
        })
        .find(|word| word.load(Ordering::Relaxed) == own && decides(py, word, own));
    match found {
        Some(word) => MAIN_THREAD.store(ptr::from_ref(word).cast_mut(), Ordering::Relaxed),
        None => IS_UNKNOWN.store(true, Ordering::Relaxed),
    }
    found
}

/// Whether it depends on this word that this thread is taken for the main one: seen by trying.
fn decides(py: Python<'_>, word: &AtomicU64, own: u64) -> bool {
    let before = is_taken_for_main(py);
    word.store(NOBODY, Ordering::Relaxed);
    let without = is_taken_for_main(py);
    word.store(own, Ordering::Relaxed);
    (before, without) == (Some(true), Some(false))
}

/// What `signal.signal` complains of first: the thread, then a number that no signal has.
fn is_taken_for_main(py: Python<'_>) -> Option<bool> {
    let set = SIGNALS.get(py)?.set.bind(py);
    let error = call(set, (0, 0)).err()?;
    let text = error.value(py).str().ok()?;
    Some(!text.to_str().ok()?.contains("main thread"))
}

/// Whether this is the thread that the process began with, to which Python brings signals.
fn is_first_thread() -> bool {
    let generation = fork_child::generation();
    match IS_FIRST.get() {
        Some((known, is_first)) if known == generation => is_first,
        _ => {
            let is_first = rustix::thread::gettid() == rustix::process::getpid();
            IS_FIRST.set(Some((generation, is_first)));
            is_first
        }
    }
}

/// While it lives, no thread is the main one.
struct MainThreadGuard {
    word: &'static AtomicU64,
    own: u64,
}

impl MainThreadGuard {
    #[inline]
    fn new(word: &'static AtomicU64, own: u64) -> Self {
        KEEPS_OUT.set(true);
        word.store(NOBODY, Ordering::Relaxed);
        Self { word, own }
    }
}

impl Drop for MainThreadGuard {
    #[inline]
    fn drop(&mut self) {
        self.word.store(self.own, Ordering::Relaxed);
        KEEPS_OUT.set(false);
        MAY_WAIT.store(true, Ordering::Relaxed);
    }
}

/// While it lives, this thread is the main one though it keeps handlers out.
struct Admitted {
    word: &'static AtomicU64,
}

impl Admitted {
    fn new(word: &'static AtomicU64) -> Self {
        KEEPS_OUT.set(false);
        word.store(own_thread(), Ordering::Relaxed);
        Self { word }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        KEEPS_OUT.set(true);
        self.word.store(NOBODY, Ordering::Relaxed);
    }
}
