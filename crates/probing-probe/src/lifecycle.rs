//! Starting and stopping, and what fork and exit mean for it.
//!
//! Called with the GIL held, which orders the calls among themselves.

use std::io;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Duration;

use probing_proto::env;
use probing_proto::message::{Hello, PROTOCOL};
use probing_proto::process::{Pid, ProcessKey, Stat};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::directory::{Directory, DirectoryError};
use crate::evals::Evals;
use crate::server::Server;
use crate::{eval, forked, output};

/// How long the end of the process may wait for evaluated code that still runs.
const EXIT_PATIENCE: Duration = Duration::from_millis(200);

/// The server of this process, or null. An atomic and not a lock: a fork may come at any moment.
static RUNNING: AtomicPtr<Server> = AtomicPtr::new(ptr::null_mut());

/// Why the probe did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("cannot read /proc/self/stat")]
    NoStat,
    #[error("cannot start the probe's thread: {source}")]
    NoThread {
        #[source]
        source: io::Error,
    },
    #[error("cannot ask the interpreter: {source}")]
    Python {
        #[from]
        source: PyErr,
    },
}

impl StartError {
    /// The message, and what to do about it on a line of its own.
    pub(crate) fn with_hint(&self) -> String {
        match self {
            Self::Directory(error) => format!("{self}\nhint: {}", error.hint()),
            _ => self.to_string(),
        }
    }
}

/// Starts the probe; false when it runs already.
pub(crate) fn start(py: Python<'_>) -> Result<bool, StartError> {
    // A panic is answered to the client that caused it; the default hook would write to the target's stderr.
    std::panic::set_hook(Box::new(|_| {}));
    import_threading(py)?;
    eval::prepare(py)?;
    hook_into_fork_and_exit(py)?;
    reap_ended(py);
    // From this look on the GIL is not let go: of two threads that start the probe at the same time one does.
    if running().is_some() {
        return Ok(false);
    }
    let key = own_key()?;
    let directory = Directory::open(key)?;
    let server = Server::start(directory, hello(py, key), Evals::of_this_process())
        .map_err(|source| StartError::NoThread { source })?;
    RUNNING.store(Box::into_raw(Box::new(server)), Ordering::Release);
    Ok(true)
}

/// Ends the probe; false when none runs.
pub(crate) fn stop(py: Python<'_>) -> bool {
    let ran = running().is_some();
    reap(py);
    ran
}

/// In the child of a fork: the parent's probe is not ours. The child of a probed process gets its own.
#[pyfunction]
fn after_fork(py: Python<'_>) {
    output::after_fork(py);
    Evals::after_fork();
    let asked_for = running().is_some();
    // Leaked on purpose: the thread behind it exists in the parent only, and dropping would close numbers that
    // `forked` has closed already.
    RUNNING.store(ptr::null_mut(), Ordering::Release);
    if asked_for {
        // A child that cannot have a probe goes on without one.
        drop(start(py));
    }
}

/// Before the interpreter goes: evaluated code is asked to end, then the probe leaves.
#[pyfunction]
fn at_exit(py: Python<'_>) {
    let evals = Evals::of_this_process();
    py.detach(|| evals.interrupt(EXIT_PATIENCE));
    reap(py);
}

/// The server, unless it has ended (a client may have asked it to). Not to be kept while the GIL is let go.
#[expect(
    unsafe_code,
    reason = "the server is reached through an atomic pointer"
)]
fn running<'gil>() -> Option<&'gil Server> {
    // SAFETY: the pointer is null or from `Box::into_raw`, and freed only by `reap`, which needs the GIL; our callers
    // hold it for as long as they use the reference.
    let server = unsafe { RUNNING.load(Ordering::Acquire).as_ref() };
    server.filter(|server| !server.has_ended())
}

/// Frees a server that a client has sent away.
fn reap_ended(py: Python<'_>) {
    if running().is_none() {
        reap(py);
    }
}

/// Ends the server, if there is one, and frees it.
#[expect(
    unsafe_code,
    reason = "the server is reached through an atomic pointer"
)]
fn reap(py: Python<'_>) {
    let server = RUNNING.swap(ptr::null_mut(), Ordering::AcqRel);
    if server.is_null() {
        return;
    }
    // SAFETY: non-null values come from `Box::into_raw` and the swap made us the only owner.
    let server = unsafe { Box::from_raw(server) };
    py.detach(|| server.stop());
}

/// Before 3.13 `threading` takes the thread that imports it first for the main thread, and the end of the program waits
/// for that thread. So the first must not be an eval.
fn import_threading(py: Python<'_>) -> PyResult<()> {
    let is_main = rustix::thread::gettid() == rustix::process::getpid();
    if is_main && py.version_info() < (3, 13) {
        py.import("threading")?;
    }
    Ok(())
}

/// Python gives no way to take such hooks back: they are set once and look whether there is something to do.
fn hook_into_fork_and_exit(py: Python<'_>) -> PyResult<()> {
    static NATIVE: Once = Once::new();
    static PYTHON: AtomicBool = AtomicBool::new(false);
    NATIVE.call_once(forked::close_inherited_after_fork);
    if !PYTHON.swap(true, Ordering::AcqRel) {
        let kwargs = PyDict::new(py);
        kwargs.set_item("after_in_child", wrap_pyfunction!(after_fork, py)?)?;
        py.import("os")?
            .call_method("register_at_fork", (), Some(&kwargs))?;
        py.import("atexit")?
            .call_method1("register", (wrap_pyfunction!(at_exit, py)?,))?;
    }
    Ok(())
}

fn own_key() -> Result<ProcessKey, StartError> {
    let start_ticks = std::fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|line| Stat::parse(&line))
        .ok_or(StartError::NoStat)?
        .start_ticks;
    Ok(ProcessKey {
        pid: Pid(std::process::id()),
        start_ticks,
    })
}

fn hello(py: Python<'_>, key: ProcessKey) -> Hello {
    let version = py.version_info();
    Hello {
        protocol: PROTOCOL,
        probe: env!("CARGO_PKG_VERSION").to_owned(),
        python: format!("{}.{}.{}", version.major, version.minor, version.patch),
        pid: key.pid,
        start_ticks: key.start_ticks,
        rank: env::rank(env::Variable::value),
    }
}
