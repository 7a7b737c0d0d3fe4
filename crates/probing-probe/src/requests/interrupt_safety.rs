//! Whether an exception may come to a thread where it is now.
//!
//! An interrupt can come between any two bytecodes. Much of the standard library is Python, too, and takes locks in two
//! steps: an exception between them leaves a lock taken for good, and the program hangs long after the eval that was
//! cancelled. So the interrupt waits until the thread is in code of the program's, or of the eval's.
//!
//! From 3.13 on a thread that was found between two bytecodes gets the exception not there but where it could be found
//! next, perhaps at the begin of the function that gives a lock back. One that waits in a call of C gets it right after.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFrozenSet, PyString};

use crate::process::fork_guard;
use crate::python::call::call;

/// All of it runs under locks, and whoever waits there would have one when the exception comes.
const IMPORT: [&str; 2] = ["_frozen_importlib", "importlib._bootstrap"];
/// Functions of the standard library that take and give back locks, with the same danger.
const LOCKING: [&str; 8] = [
    "acquire",
    "release",
    "__enter__",
    "__exit__",
    "_acquireLock",
    "_releaseLock",
    "_acquire_restore",
    "_release_save",
];
/// Functions that wait for something else than a lock, and are written for an exception that comes then.
const WAITING: [&str; 3] = ["wait", "join", "_wait_for_tstate_lock"];
/// Parts of the standard library that work with locks.
const GUARDED: [&str; 11] = [
    "_weakrefset",
    "asyncio",
    "concurrent",
    "contextlib",
    "logging",
    "multiprocessing",
    "queue",
    "subprocess",
    "tempfile",
    "threading",
    "weakref",
];

/// How often turns are taken in a shuffle, in seconds; how long we leave them to others, and how many are ours.
const SWITCH_INTERVAL: f64 = 0.000_01;
const A_WHILE: Duration = Duration::from_micros(100);
const TURNS: usize = 30;

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterruptSafety {
    /// In code that is not Python's own: an exception may come.
    Free,
    /// In the standard library, where one would rather not come.
    Inside,
    /// Where it waits for something that is no lock: one may come if it stands there.
    Waiting(Position),
    /// In a part of the library that works with locks: one must not come. From 3.14 on not even `with` is safe.
    Locking,
}

/// The same at two moments: the thread stands there, in a call of C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    frame: usize,
    instruction: i64,
}

/// As they were when the probe started: the program may replace them.
struct Sys {
    current_frames: Py<PyAny>,
    switch_interval: Py<PyAny>,
    set_switch_interval: Py<PyAny>,
    library: Py<PyFrozenSet>,
}

static SYS: PyOnceLock<Sys> = PyOnceLock::new();

/// Takes hold of what will be needed.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    SYS.get_or_try_init(py, || {
        let sys = py.import("sys")?;
        let library = sys.getattr("stdlib_module_names")?;
        Ok::<_, PyErr>(Sys {
            current_frames: sys.getattr("_current_frames")?.unbind(),
            switch_interval: sys.getattr("getswitchinterval")?.unbind(),
            set_switch_interval: sys.getattr("setswitchinterval")?.unbind(),
            library: library.cast_into::<PyFrozenSet>()?.unbind(),
        })
    })?;
    Ok(())
}

/// Lets threads run and takes turns with them so often that they are found anywhere, until `is_done`.
///
/// Threads that wait for each other's locks give up the GIL only there, and would never be found elsewhere. The interval
/// is the program's again after a few milliseconds, unless it was set meanwhile.
pub(crate) fn shuffle(py: Python<'_>, mut is_done: impl FnMut() -> bool) -> PyResult<()> {
    static SHUFFLES: AtomicBool = AtomicBool::new(false);
    let Some(sys) = SYS.get(py) else {
        return Ok(());
    };
    // Of two, one would take the other's interval for the program's.
    if SHUFFLES.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let interval = || call(sys.switch_interval.bind(py), ())?.extract::<f64>();
    let set = |seconds: f64| call(sys.set_switch_interval.bind(py), (seconds,));
    let shuffled = fork_guard::kept_out(py, || {
        let usual = interval()?;
        set(SWITCH_INTERVAL)?;
        for _ in 0..TURNS {
            py.detach(|| thread::sleep(A_WHILE));
            if is_done() {
                break;
            }
        }
        let is_ours = (interval()? - SWITCH_INTERVAL).abs() < SWITCH_INTERVAL / 10.0;
        if is_ours {
            set(usual)?;
        }
        Ok(())
    });
    SHUFFLES.store(false, Ordering::Release);
    shuffled
}

impl InterruptSafety {
    /// Of a thread, by the number that Python knows it by.
    pub(crate) fn of(py: Python<'_>, thread: u64) -> Self {
        // Without a frame it runs no Python; whatever cannot be told is no code of Python's.
        Self::look(py, thread).unwrap_or(None).unwrap_or(Self::Free)
    }

    fn look(py: Python<'_>, thread: u64) -> PyResult<Option<Self>> {
        let Some(sys) = SYS.get(py) else {
            return Ok(None);
        };
        let frames = call(sys.current_frames.bind(py), ())?;
        let Some(frame) = frames.cast::<PyDict>()?.get_item(thread)? else {
            return Ok(None);
        };
        let globals = frame.getattr("f_globals")?;
        let Some(module) = globals.cast::<PyDict>()?.get_item("__name__")? else {
            return Ok(None);
        };
        let module = module.cast::<PyString>()?.to_cow()?;
        let package = module.split('.').next().unwrap_or_default();
        if !sys.library.bind(py).contains(package)? {
            return Ok(None);
        }
        let function = frame.getattr("f_code")?.getattr("co_name")?;
        let function = function.cast::<PyString>()?.to_cow()?;
        let is_guarded = GUARDED.contains(&package);
        Ok(Some(if is_guarded && WAITING.contains(&&*function) {
            Self::Waiting(Position {
                frame: frame.as_ptr() as usize,
                instruction: frame.getattr("f_lasti")?.extract()?,
            })
        } else if is_guarded || LOCKING.contains(&&*function) || IMPORT.contains(&&*module) {
            Self::Locking
        } else {
            Self::Inside
        }))
    }
}
