//! Starting and stopping, and what fork means for it.
//!
//! Called with the GIL held, which orders the calls among themselves.

use std::ffi::{c_int, c_void};
use std::fs;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use probing_proto::message::{Hello, PROTOCOL};
use probing_proto::process::ProcessKey;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::eval::stdout_capture;
use crate::process::own_key::{own_key, own_stat};
use crate::process::per_process::PerProcess;
use crate::process::{fork_child, fork_guard};
use crate::python::embedded;
use crate::python::signal_handlers;
use crate::recording::rank;
use crate::requests::active::Evals;
use crate::requests::interrupt_safety;
use crate::requests::probe_control::{self, ProbeControl};
use crate::server::agent_launcher::AgentLaunch;
use crate::server::exit;
use crate::server::runtime_dir::{Directory, DirectoryError};
use crate::server::subsystems::SUBSYSTEMS;
use crate::server::thread::Server;

/// How long a fork may wait for our threads to be put away.
const FORK_PAUSE_TIMEOUT: Duration = Duration::from_millis(2);

/// The server of this process.
static SERVER: PerProcess<Mutex<Option<Arc<Server>>>> = PerProcess::new();

/// Whether a thread is about to fill [`SERVER`].
static STARTING: AtomicBool = AtomicBool::new(false);

/// Whether somebody has sent the probe away.
static SENT_AWAY: AtomicBool = AtomicBool::new(false);

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

/// Lower rooms start and stop the probe by this.
pub(crate) fn register() {
    probe_control::register(ProbeControl {
        prepare,
        start: |py| start(py).map_err(|error| error.with_hint()),
        stop,
        may_be_started,
        follow_exit: exit::follow,
    });
}

/// What is needed by all that works without a server, too.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    // A panic is answered to the client that caused it; the default hook would write to the target's stderr.
    std::panic::set_hook(Box::new(|_| {}));
    embedded::prepare(py)?;
    interrupt_safety::prepare(py)?;
    signal_handlers::prepare(py)?;
    hook_into_fork_and_exit(py)
}

/// Starts the probe; false when it runs already.
pub(crate) fn start(py: Python<'_>) -> Result<bool, StartError> {
    prepare(py)?;
    reap_ended(py);
    // Of two threads that start the probe at the same time one does. The GIL, which orders their looks, is let go for the
    // rest: the program need not wait for it.
    while STARTING.load(Ordering::Acquire) {
        py.detach(thread::yield_now);
    }
    if running().is_some() {
        return Ok(false);
    }
    SENT_AWAY.store(false, Ordering::Release);
    let key = own_key().ok_or(StartError::NoStat)?;
    rank::look_for_rank(py);
    let hello = hello(py, key);
    let prefix = py
        .import("sys")
        .and_then(|sys| sys.getattr("prefix")?.extract());
    let wanted = AgentLaunch::here(prefix.ok());
    let starting = Starting::begin();
    for subsystem in SUBSYSTEMS {
        subsystem.prepare(py);
    }
    let started = fork_guard::kept_out(py, || {
        py.detach(|| {
            let directory = Directory::open(key)?;
            let server = Server::start(directory, hello, Evals::of_this_process(), wanted)
                .map_err(|source| StartError::NoThread { source })?;
            server_slot().replace(Arc::new(server));
            Ok(true)
        })
    });
    drop(starting);
    for subsystem in SUBSYSTEMS {
        subsystem.start(py);
    }
    started
}

/// While this lives the probe is being started.
struct Starting;

impl Starting {
    fn begin() -> Self {
        STARTING.store(true, Ordering::Release);
        Self
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        STARTING.store(false, Ordering::Release);
    }
}

/// Ends the probe; false when none runs.
pub(crate) fn stop(py: Python<'_>) -> bool {
    let ran = running().is_some();
    SENT_AWAY.store(true, Ordering::Release);
    reap(py);
    ran
}

/// Whether the probe does not run, and nobody minds if it does.
pub(crate) fn may_be_started() -> bool {
    // One that a client has sent away is still there.
    server_there().is_none()
        && !STARTING.load(Ordering::Acquire)
        && !SENT_AWAY.load(Ordering::Acquire)
}

/// Python warns, from 3.12 on, when a process with more than one thread forks, and may be told to make that an error. Ours
/// must not be those threads: where there are no others beside the main thread, the one that waits goes away for the moment,
/// and those that do something short are waited for.
fn before_fork(py: Python<'_>) {
    fork_guard::before(py);
    if py.version_info() < (3, 12) || !is_main_thread() || !has_only_our_threads() {
        return;
    }
    if let Some(server) = running() {
        server.pause();
        // A thread that has been joined is counted until the kernel has put it away.
        let until = Instant::now() + FORK_PAUSE_TIMEOUT;
        while has_several_threads() && Instant::now() < until {
            py.detach(thread::yield_now);
        }
    }
}

fn has_several_threads() -> bool {
    own_stat().is_some_and(|stat| stat.threads > 1)
}

/// Whether there are threads beside the main thread, and all of them are ours: by what they are called.
fn has_only_our_threads() -> bool {
    let is_ours = |task: fs::DirEntry| {
        // One that is gone by now is nobody's.
        let name = fs::read_to_string(task.path().join("comm"));
        name.map_or(true, |name| name.starts_with("probing"))
    };
    let Ok(main) = fs::read_link("/proc/self") else {
        return false;
    };
    let tasks = || fs::read_dir("/proc/self/task").into_iter().flatten();
    has_several_threads()
        && tasks()
            .flatten()
            .filter(|task| task.file_name() != *main)
            .all(is_ours)
}

/// In the parent of a fork. Up to 3.13 Python counts its threads after this, so the thread comes back a little later.
#[expect(unsafe_code, reason = "Py_AddPendingCall has no safe face")]
fn after_fork_in_parent(py: Python<'_>) {
    extern "C" fn resume(_: *mut c_void) -> c_int {
        if let Some(server) = running() {
            server.resume();
        }
        0
    }
    fork_guard::after_in_parent();
    if !running().is_some_and(|server| server.is_paused()) {
        return;
    }
    // SAFETY: the function lives as long as this library, which Python never unloads, and needs no argument.
    let later = py.version_info() < (3, 14)
        && unsafe { ffi::Py_AddPendingCall(Some(resume), ptr::null_mut()) } == 0;
    if !later {
        resume(ptr::null_mut());
    }
}

/// In the child of a fork: the parent's probe is not ours. The child of a probed process gets its own.
fn after_fork(py: Python<'_>) {
    stdout_capture::after_fork(py);
    fork_guard::after_in_child();
    exit::after_fork();
    signal_handlers::after_fork();
    for subsystem in SUBSYSTEMS {
        subsystem.after_fork(py);
    }
    STARTING.store(false, Ordering::Release);
    if parent_had_server() {
        // A child that cannot have a probe goes on without one.
        drop(start(py));
    }
}

/// The server, unless it has ended (a client may have asked it to).
fn running() -> Option<Arc<Server>> {
    server_there().filter(|server| !server.has_ended())
}

/// The server, also one that a client has sent away. Makes nothing: a child of a fork still has to see its parent's.
fn server_there() -> Option<Arc<Server>> {
    let slot = SERVER.get()?.lock();
    slot.unwrap_or_else(PoisonError::into_inner).clone()
}

/// Where the server of this process goes.
fn server_slot() -> MutexGuard<'static, Option<Arc<Server>>> {
    let slot = SERVER.get_or_init(Mutex::default);
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In the child of a fork that has no server of its own yet: whether its parent had one. That one is left as it is: its thread
/// exists in the parent only, and to drop it would close numbers that `fork_child.rs` has closed already.
fn parent_had_server() -> bool {
    // A thread that is not here may hold the lock: to begin or end a server takes it for a moment.
    SERVER.of_any_process().is_some_and(|slot| {
        slot.try_lock().map_or(true, |server| {
            server.as_ref().is_some_and(|server| !server.has_ended())
        })
    })
}

/// Frees a server that a client has sent away.
fn reap_ended(py: Python<'_>) {
    if running().is_none() {
        reap(py);
    }
}

/// Ends the server, if there is one.
pub(crate) fn reap(py: Python<'_>) {
    let there = server_there().and_then(|_| server_slot().take());
    let Some(server) = there else {
        return;
    };
    for subsystem in SUBSYSTEMS {
        subsystem.leave(py);
    }
    py.detach(|| server.stop());
}

fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Python gives no way to take such hooks back: they are set once and look whether there is something to do.
fn hook_into_fork_and_exit(py: Python<'_>) -> PyResult<()> {
    static PYTHON: AtomicBool = AtomicBool::new(false);
    fork_child::follow_forks();
    if !PYTHON.swap(true, Ordering::AcqRel) {
        fork_guard::register(py, [before_fork, after_fork_in_parent, after_fork])?;
    }
    exit::follow(py)
}

fn hello(py: Python<'_>, key: ProcessKey) -> Hello {
    let version = py.version_info();
    Hello {
        protocol: PROTOCOL,
        probe: env!("CARGO_PKG_VERSION").to_owned(),
        python: format!("{}.{}.{}", version.major, version.minor, version.patch),
        pid: key.pid,
        start_ticks: key.start_ticks,
        thread: None,
        rank: rank::rank(),
        stops: 0,
    }
}
