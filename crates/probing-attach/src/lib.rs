//! Runs a piece of Python in a process without preparation and without harm.
//!
//! The story, in the order of the files: the target's memory map leads to its Python
//! (`python`). If it runs under filters of system calls, they are asked whether they let us (`filters`).
//! From 3.14 on a running Python has a door for us (`remote_exec`, `question`). Otherwise one thread that waits in a system
//! call (`threads`) is stopped (`ptrace`, `tracee`, `waits`) and borrowed for a fraction of a millisecond (`inject`): it maps
//! some memory (`block`), goes through a few instructions of ours there (`arch`), which start a Python thread, and
//! returns to its system call as if nothing had happened, while we wait for the result (`borrowed`). If no thread
//! waits, main is borrowed to clone a helper (`dtv`), which queues a pending call that starts the thread; if main does
//! not come by in time the call is taken out of the queue again (`queue`).
//! The source runs inside a fixed text that lets nothing out (`wrapper`).
//!
//! *Invariant:* whatever happens to us, at any instruction, the target goes on. See `tracee`.
//!
//! *Invariant:* a thread that we have held for too long, because we lost the CPU, is let go and held again.
//!
//! *Invariant:* source that did not begin by the deadline never begins.
//!
//! *Invariant:* the source never runs in a thread of the target (but for a hijack), which may hold locks it wants.
//!
//! What remains in the target after a run: nothing. The new thread's last act is to unmap the block, once we have
//! seen the borrowed thread at home; a queued call that main has not made goes with its block while main stands still.
//! Exceptions, each 170 to 700 KB of address space with a few pages touched, until the next attach takes it back
//! (`leftovers`): we are killed; the borrowed thread cannot be seen at home within a second; the same of a busy main
//! without the GIL (free-threaded Python); a main that is on a stack of its own making (unmapped when it comes by); a
//! hijack of a stopped process. The new thread ends when it sees no sign of us for 50 ms. A killed remote exec may leave
//! a folder `/tmp/probing-attach-<pid>-*`, which main or the next attach removes.
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "pending calls are only written for x86_64")
)]

mod arch;
mod error;
mod injection;
mod kill_points;
mod python;
mod remote_exec;
mod wrapper;

use std::thread;
use std::time::{Duration, Instant};

use probing_process::access::permission;
use probing_process::cpus;
use probing_process::procfs::maps;
use probing_process::procfs::status::Status;
use probing_process::procfs::threads::Tid;
use probing_proto::process::{Pid, Stat};

pub use crate::error::{AttachError, Unsupported};
pub use crate::remote_exec::exchange_dir::sweep_dead;

use crate::injection::inject::{Attempt, Target};
use crate::injection::memory::Memory;
use crate::injection::presence::Presence;
use crate::injection::remote_block::StubKind;
use crate::kill_points::Steps;
use crate::python::Python;

/// How to enter.
#[derive(Debug, Clone)]
pub struct Options {
    /// After this the source is taken back.
    pub deadline: Duration,
    /// Run the source inside a blocked thread if nothing else works, and enter on a machine on which that was never
    /// run: this may hang or crash the target.
    pub force: bool,
    /// For tests: SIGKILL this process at the n-th step.
    #[doc(hidden)]
    pub die_at_step: Option<u32>,
    /// For tests: be without a CPU at the n-th step, or at each (0), for longer than a thread is held.
    #[doc(hidden)]
    pub sleep_at_step: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(2),
            force: false,
            die_at_step: None,
            sleep_at_step: None,
        }
    }
}

/// The source ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub strategy: Strategy,
    /// Major and minor version.
    pub python: (u8, u8),
    /// The longest that a thread of the target was kept from its work.
    pub paused: Duration,
    pub took: Duration,
}

/// The way in that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Python's own door (3.14): nothing was stopped.
    RemoteExec,
    /// A thread that waited in a system call started ours.
    NewThread,
    /// Main started ours between two bytecodes.
    PendingCall,
    /// A blocked thread ran the source itself.
    Hijack,
}

impl std::fmt::Display for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::RemoteExec => "remote exec",
            Self::NewThread => "new thread",
            Self::PendingCall => "pending call",
            Self::Hijack => "hijacked thread",
        })
    }
}

/// Runs Python `source` in process `pid` and waits for its end. The only way in.
///
/// The source runs in a thread of its own with a fresh namespace, in which it finds `blocked_signals`: a set of
/// the signals that main blocks. Its own thread has *all* signals blocked, so that none meant for the program
/// goes astray; threads and children that it starts inherit that. One that shall get signals calls
/// `signal.pthread_sigmask(signal.SIG_SETMASK, blocked_signals)` first. (A forced run is in a thread of the
/// target, with that thread's mask replaced in the same way.)
pub fn run(pid: Pid, source: &str, options: &Options) -> Result<Report, AttachError> {
    if source.len() > wrapper::SOURCE_LIMIT {
        let (len, limit) = (source.len(), wrapper::SOURCE_LIMIT);
        return Err(AttachError::SourceTooLong { len, limit });
    }
    // In a thread of its own: when it ends the kernel lets go of whatever it still traces, and the target goes
    // home by itself. A panic ends it too.
    let worker = || run_here(pid, source, options);
    thread::scope(|scope| match scope.spawn(worker).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn run_here(pid: Pid, source: &str, options: &Options) -> Result<Report, AttachError> {
    injection::ptrace::sleep_precisely();
    let cpus = cpus::leave_to(pid, Tid::main_of(pid));
    let steps = Steps::new(options);
    let started = Instant::now();
    let status = permission::check(pid)?;
    let mut target = look(pid, &steps, started, options.deadline)?;
    target.cpus = cpus;
    let (strategy, paused) = enter(&mut target, status, source, options)?;
    Ok(Report {
        strategy,
        python: target.python.version,
        paused,
        took: started.elapsed(),
    })
}

/// Reads all that is needed before anything is touched.
fn look(
    pid: Pid,
    steps: &Steps,
    started: Instant,
    deadline: Duration,
) -> Result<Target<'_>, AttachError> {
    let main_ran_before = injection::thread_choice::cpu_time(pid, Tid::main_of(pid));
    let maps = maps::read_maps(pid)
        .map_err(|source| error::explained(pid, "read the memory map", source))?;
    if maps.is_empty() {
        return Err(permission::without_memory(pid).into());
    }
    let memory =
        Memory::open(pid).map_err(|source| error::explained(pid, "open the memory", source))?;
    let python = Python::find(pid, &maps, &memory)?;
    let gadgets = injection::gadgets::find(pid, &maps, &memory)?;
    Ok(Target {
        pid,
        memory,
        maps,
        python,
        gadgets,
        steps,
        started,
        main_ran_before,
        deadline: started + deadline,
        cpus: None,
        presence: Presence::show(pid),
    })
}

/// Tries the ways in their order, again until the deadline while the only trouble is that threads move.
fn enter(
    target: &mut Target<'_>,
    status: Status,
    source: &str,
    options: &Options,
) -> Result<(Strategy, Duration), AttachError> {
    let pid = target.pid;
    let stopped = probing_process::procfs::threads::stat(pid, Tid::main_of(pid))
        .is_some_and(Stat::is_stopped);
    if stopped && !options.force {
        return Err(AttachError::Stopped { pid });
    }
    if !options.force {
        injection::seccomp::check(target, status)?;
    }
    if !stopped && let Some(presence) = target.presence.take() {
        target.presence = presence.alone(|| injection::leftovers::take_back(target));
    }
    if !stopped && remote_exec::run(target, source)?.is_some() {
        return Ok((Strategy::RemoteExec, Duration::ZERO));
    }
    match arch::check() {
        Ok(()) => {}
        Err(Unsupported::Untried { .. }) if options.force => {}
        Err(what) => return Err(AttachError::NotSupported { pid, what }),
    }
    let text = wrapper::in_thread(source, status.blocked);
    // The helper's storage is laid out for glibc.
    let has_pending = arch::HAS_PENDING && !is_musl(target);
    let ways: &[StubKind] = match (stopped, has_pending) {
        (true, _) => &[],
        (false, true) => &[StubKind::Thread, StubKind::Pending],
        (false, false) => &[StubKind::Thread],
    };
    if options.force {
        target.deadline = target.started + options.deadline / 2; // the other half is for the last resort
    }
    match try_ways(target, ways, &text) {
        Err(AttachError::Busy { .. } | AttachError::NoThread { .. }) if options.force => {
            target.deadline = target.started + options.deadline;
            try_ways(target, &[StubKind::Hijack], &text)
        }
        outcome => outcome,
    }
}

fn try_ways(
    target: &Target<'_>,
    ways: &[StubKind],
    text: &str,
) -> Result<(Strategy, Duration), AttachError> {
    const NAP: Duration = Duration::from_micros(500);
    /// How long we look for a thread that waits before main is bothered, unless it has run a while: if it goes to wait
    /// before it comes by, all was in vain.
    const WAITS_SOON: Duration = Duration::from_millis(100);
    const IS_BUSY: Duration = Duration::from_millis(1);
    /// A debugger keeps its threads for longer; other attaches, several at once on a machine that is overloaded, do not.
    const TRACED_FOR: Duration = Duration::from_millis(300);
    let pid = target.pid;
    let mut seen = String::from("its process is stopped");
    let mut traced_since = None;
    loop {
        for &way in ways {
            if way == StubKind::Pending
                && target.main_ran() < IS_BUSY
                && target.started.elapsed() < WAITS_SOON
            {
                continue;
            }
            match injection::inject::run(target, way, text) {
                Ok(Attempt::Ran { paused }) => return Ok((strategy_of(way), paused)),
                Ok(Attempt::NoThread { seen: why }) => {
                    seen = why;
                    traced_since = None;
                }
                Err(error @ AttachError::AlreadyTraced { .. }) => {
                    let since: &mut Instant = traced_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= TRACED_FOR {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if ways.is_empty() || Instant::now() + NAP > target.deadline {
            break;
        }
        thread::sleep(NAP);
    }
    Err(AttachError::NoThread { pid, seen })
}

fn strategy_of(way: StubKind) -> Strategy {
    match way {
        StubKind::Thread => Strategy::NewThread,
        StubKind::Pending => Strategy::PendingCall,
        StubKind::Hijack => Strategy::Hijack,
    }
}

fn is_musl(target: &Target<'_>) -> bool {
    target
        .maps
        .iter()
        .any(|mapping| mapping.name().starts_with("ld-musl"))
}
