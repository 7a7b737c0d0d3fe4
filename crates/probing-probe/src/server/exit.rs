//! What runs when the interpreter exits: the probe leaves, after the program's exit functions while breakpoints are set.
//!
//! Functions that `atexit` has run in the reverse order of their registration, so that ours, registered by an attach, is run
//! before the program's. While breakpoints are set it has those run first. Nobody can ask `atexit` what it still has to run:
//!
//! * Up to 3.13.0 it walks an array from its end. Ours empties the array of what was run, has the rest run by
//!   `atexit._run_exitfuncs()`, which leaves an empty array, and `atexit` finds nothing more to run.
//! * Later it walks a copy of a list, which the garbage collector knows. Ours is added to its end, and is run once more.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::breakpoints;
use crate::eval::active::Evals;
use crate::python::call::call;
use crate::server::lifecycle;
use crate::server::subsystems::SUBSYSTEMS;

/// How long the end of the process may wait for evaluated code that still runs.
const EVAL_EXIT_TIMEOUT: Duration = Duration::from_millis(200);

/// [`at_exit`], as it is registered.
static REGISTERED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Whether the program's exit functions have their turn, and [`at_exit`] had it.
static RUNS_LAST: AtomicBool = AtomicBool::new(false);

/// From now on [`at_exit`] is called before the interpreter goes.
pub(crate) fn follow(py: Python<'_>) -> PyResult<()> {
    REGISTERED.get_or_try_init(py, || {
        let function = wrap_pyfunction!(at_exit, py)?.into_any();
        py.import("atexit")?
            .call_method1("register", (&function,))?;
        Ok::<_, PyErr>(function.unbind())
    })?;
    Ok(())
}

/// In a child of a fork: its exit is another one than its parent's.
pub(crate) fn after_fork() {
    RUNS_LAST.store(false, Ordering::Release);
}

#[pyfunction]
fn at_exit(py: Python<'_>) {
    if breakpoints::are_set() && !RUNS_LAST.swap(true, Ordering::AcqRel) {
        if run_again_at_the_end(py).unwrap_or(false) {
            return;
        }
        // Where that fails, the program's functions run after the probe has left.
        run_the_programs(py).ok();
    }
    RUNS_LAST.store(false, Ordering::Release);
    leave(py);
}

/// Evaluated code is asked to end, then the probe leaves.
fn leave(py: Python<'_>) {
    SUBSYSTEMS.iter().for_each(|it| it.leave(py));
    SUBSYSTEMS.iter().for_each(|it| it.at_exit(py));
    let evals = Evals::of_this_process();
    py.detach(|| evals.interrupt(EVAL_EXIT_TIMEOUT));
    lifecycle::reap(py);
}

/// Adds [`at_exit`] to the end of the list that `atexit` walks; false where it walks none.
fn run_again_at_the_end(py: Python<'_>) -> PyResult<bool> {
    let Some(registered) = REGISTERED.get(py) else {
        return Ok(false);
    };
    if py.version_info() < (3, 13) {
        return Ok(false);
    }
    let mut is_added = false;
    // A function, its arguments and its keywords.
    for entry in referrers(registered.bind(py))? {
        for list in referrers(&entry)? {
            if let Ok(list) = list.cast_exact::<PyList>() {
                list.append(&entry)?;
                is_added = true;
            }
        }
    }
    Ok(is_added)
}

fn referrers<'py>(of: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let gc = of.py().import("gc")?;
    gc.call_method1("get_referrers", (of,))?.extract()
}

/// Has `atexit` run what it still has to, where it walks an array.
fn run_the_programs(py: Python<'_>) -> PyResult<()> {
    let atexit = py.import("atexit")?;
    let was_run = WasRun(Cell::new(false));
    atexit.call_method1("unregister", (was_run,))?;
    call(&atexit.getattr("_run_exitfuncs")?, ())?;
    Ok(())
}

/// Is equal to [`at_exit`] and to every function that `atexit` compares it with later: to those that were registered after it,
/// and so were run before it.
#[pyclass(unsendable, module = "probing._probe")]
struct WasRun(Cell<bool>);

#[pymethods]
impl WasRun {
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let registered = REGISTERED.get(other.py());
        let is_ours = registered.is_some_and(|ours| ours.is(other));
        self.0.set(self.0.get() || is_ours);
        self.0.get()
    }
}
