//! A process of our own that has to survive a burst of writes to watched bytes, before any other is watched.
//!
//! It has the handler of `probing_trap`, two threads that write without a pause, and sends itself what the kernel makes of a
//! debug exception whose cause was lost. (The instruction `int1` would be one, but some hypervisors never get past it.)
//! Meanwhile its watchpoint is removed and set again, and its samples are passed over.
#![expect(
    unsafe_code,
    reason = "a process and a thread without a C library's help"
)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use probing_proto::process::Pid;

use crate::bytes::Bytes;
use crate::error::WatchpointError;
use crate::{StrayTraps, Watchpoint};

/// Each of two threads writes so often; together the burst is 20,000 writes.
const WRITES: u64 = 10_000;
/// Every so many of them a trap without a cause.
const STRAY_EVERY: u64 = 1_000;
/// Between two writes, so that the burst is not over while there is no watchpoint.
const SPINS: usize = 20;
const PROOF_TIMEOUT: Duration = Duration::from_secs(30);
const ROUND: Duration = Duration::from_millis(5);
/// In every so many rounds it is once removed and set again, else its samples are passed over.
const REMOVE_EVERY: usize = 5;
const STACK: usize = 64 << 10;
const NOT_GUARDED: c_int = 2;

/// A burst that was survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// Writes that the kernel told.
    pub seen: usize,
    /// Traps without a cause that the process dropped, beyond those that it made itself.
    pub strays: u64,
}

/// What the process and we have in common.
#[repr(C)]
struct Shared {
    watched: AtomicU64,
    go: AtomicU32,
    /// How many threads have written all that they had to.
    finished: AtomicU32,
    dropped: AtomicU64,
    stack: [u8; STACK],
}

/// Whether the process gets the handler; without it, it cannot survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handler {
    Installed,
    #[cfg(test)]
    Missing,
}

/// Lets a process of our own go through a burst. Errors about permissions name the process that is to be watched.
pub fn prove(target: Pid) -> Result<Proof, WatchpointError> {
    rehearse(Handler::Installed).map_err(|error| match error {
        WatchpointError::NotPermitted { source, .. } => WatchpointError::NotPermitted {
            pid: target,
            source,
        },
        WatchpointError::NoneLeft { .. } => WatchpointError::NoneLeft { pid: target },
        WatchpointError::TooFewFiles { .. } => WatchpointError::TooFewFiles { pid: target },
        other => other,
    })
}

fn rehearse(handler: Handler) -> Result<Proof, WatchpointError> {
    let mut process = Process::start(handler).map_err(WatchpointError::Failed)?;
    let address = process.shared().watched.as_ptr() as u64;
    let bytes = Bytes::at(address, Some(8))
        .map_err(|error| WatchpointError::Failed(io::Error::other(error)))?;
    let until = Instant::now() + PROOF_TIMEOUT;
    let mut watchpoint = Some(process.watch(bytes)?);
    process.shared().go.store(1, Ordering::Release);
    let (mut seen, mut rounds) = (0, 0);
    let ended = loop {
        if let Some(ended) = process.ended().map_err(WatchpointError::Failed)? {
            break ended;
        }
        if Instant::now() >= until {
            let fate = format!("did not end within {PROOF_TIMEOUT:?}");
            return Err(WatchpointError::Unproven { fate });
        }
        let round = Instant::now() + ROUND;
        while let Some(watched) = watchpoint.as_mut().filter(|_| Instant::now() < round) {
            seen += watched.wait(Some(round))?.len();
        }
        rounds += 1;
        if rounds % REMOVE_EVERY == 0 {
            drop(watchpoint.take());
            match process.watch(bytes) {
                Err(WatchpointError::Ended { .. }) => thread::sleep(ROUND),
                set => watchpoint = Some(set?),
            }
        } else if let Some(watched) = &mut watchpoint {
            watched.skip();
        }
    };
    fate(ended)?;
    let dropped = process.shared().dropped.load(Ordering::Acquire);
    let made = 2 * WRITES.div_ceil(STRAY_EVERY);
    let strays = dropped.saturating_sub(made);
    Ok(Proof { seen, strays })
}

/// An error, unless it ended as it should.
fn fate(status: c_int) -> Result<(), WatchpointError> {
    let fate = if libc::WIFSIGNALED(status) {
        match libc::WTERMSIG(status) {
            libc::SIGTRAP => "was ended by SIGTRAP".to_owned(),
            signal => format!("was ended by signal {signal}"),
        }
    } else {
        match libc::WEXITSTATUS(status) {
            0 => return Ok(()),
            NOT_GUARDED => "could not get a SIGTRAP handler".to_owned(),
            code => format!("ended with status {code}"),
        }
    };
    Err(WatchpointError::Unproven { fate })
}

/// The process. It ends with this.
struct Process {
    pid: libc::pid_t,
    shared: NonNull<Shared>,
    has_ended: bool,
}

impl Process {
    fn start(handler: Handler) -> io::Result<Self> {
        // SAFETY: a mapping at a place that the kernel chooses touches nothing that is there.
        let mapped = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size_of::<Shared>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let shared = NonNull::new(mapped.cast::<Shared>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut process = Self {
            pid: 0,
            shared,
            has_ended: true,
        };
        // SAFETY: takes no arguments.
        let own = unsafe { libc::getpid() };
        // SAFETY: the child calls the kernel only, and never returns from `child`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            child(shared, handler, own);
        }
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        process.pid = pid;
        process.has_ended = false;
        Ok(process)
    }

    fn shared(&self) -> &Shared {
        // SAFETY: mapped as long as this lives; all that is used of it is atomic, of which zero is a valid value.
        unsafe { self.shared.as_ref() }
    }

    fn watch(&self, bytes: Bytes) -> Result<Watchpoint, WatchpointError> {
        Watchpoint::set(Pid(self.pid as u32), bytes, StrayTraps::Dropped)
    }

    /// How it ended, once it has.
    fn ended(&mut self) -> io::Result<Option<c_int>> {
        let mut status = 0;
        // SAFETY: our own child, which nobody else waits for; the status lives until the call returns.
        match unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) } {
            0 => Ok(None),
            pid if pid == self.pid => {
                self.has_ended = true;
                Ok(Some(status))
            }
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended {
            // SAFETY: our own child, which has not been waited for: the number is still its own.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            // SAFETY: the same; nobody asks for its status.
            unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) };
        }
        // SAFETY: mapped by us in this length, and used by nobody any more: the process has a mapping of its own.
        unsafe { libc::munmap(self.shared.as_ptr().cast(), size_of::<Shared>()) };
    }
}

/// What the process does. It is the child of a process with threads: it only calls the kernel, and allocates nothing.
fn child(shared: NonNull<Shared>, handler: Handler, parent: libc::pid_t) -> ! {
    // SAFETY: takes numbers. It must not outlive us.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: takes no arguments.
    if unsafe { libc::getppid() } != parent {
        leave(1); // it had ended before that
    }
    // SAFETY: a set of signals is plain data, of which all bits zero is the empty one.
    let none: libc::sigset_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the set lives until the call returns; the former one is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()) };
    // SAFETY: SIG_DFL is a valid action. The user may have had it ignored.
    unsafe { libc::signal(libc::SIGTRAP, libc::SIG_DFL) };
    if handler == Handler::Installed && probing_trap::guard().is_err() {
        leave(NOT_GUARDED);
    }
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_SYSVSEM
        | libc::CLONE_THREAD;
    // SAFETY: within the mapping, which this process never removes.
    let stack = unsafe { (&raw mut (*shared.as_ptr()).stack).add(1) };
    // SAFETY: `stack` is the end of a stack that nobody else uses; `burst` takes the pointer that it is given here.
    let started = unsafe { libc::clone(burst, stack.cast(), flags, shared.as_ptr().cast()) };
    if started < 0 {
        leave(1);
    }
    burst(shared.as_ptr().cast());
    // SAFETY: mapped as long as this process lives, and atomic throughout.
    let shared = unsafe { shared.as_ref() };
    while shared.finished.load(Ordering::Acquire) < 2 {
        std::hint::spin_loop();
    }
    leave(0)
}

fn leave(status: c_int) -> ! {
    // SAFETY: ends this process without running anything of the program's.
    unsafe { libc::_exit(status) }
}

/// Writes, in each of the threads.
extern "C" fn burst(shared: *mut c_void) -> c_int {
    // SAFETY: `child` gives the mapping, which lives as long as its process; all that is used of it is atomic.
    let shared = unsafe { &*shared.cast::<Shared>() };
    while shared.go.load(Ordering::Acquire) == 0 {
        std::hint::spin_loop();
    }
    for number in 0..WRITES {
        shared.watched.store(number, Ordering::Release);
        if number % STRAY_EVERY == 0 {
            probing_trap::rehearse_stray();
        }
        for _ in 0..SPINS {
            std::hint::spin_loop();
        }
    }
    if let Ok(dropped) = probing_trap::guard() {
        let dropped = dropped.load(Ordering::Acquire);
        shared.dropped.fetch_max(dropped, Ordering::AcqRel);
    }
    shared.finished.fetch_add(1, Ordering::AcqRel);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_the_handler_survives_a_burst_and_is_seen() {
        let proof = prove(Pid(1)).unwrap();
        assert!(proof.seen > 0, "{proof:?}");
    }

    /// The other thread begins while the watchpoint is set: none of its writes is counted twice.
    #[test]
    fn writes_that_are_passed_over_are_counted_once() {
        for _ in 0..10 {
            pass_over();
        }
    }

    fn pass_over() {
        let mut process = Process::start(Handler::Installed).unwrap();
        let address = process.shared().watched.as_ptr() as u64;
        let bytes = Bytes::at(address, Some(8)).unwrap();
        let mut watchpoint = process.watch(bytes).unwrap();
        process.shared().go.store(1, Ordering::Release);
        let until = Instant::now() + PROOF_TIMEOUT;
        // Nobody reads the samples: of 20,000 there is room for some hundred.
        let ended = loop {
            match process.ended().unwrap() {
                Some(ended) => break ended,
                None => thread::sleep(ROUND),
            }
            assert!(Instant::now() < until);
        };
        fate(ended).unwrap();
        watchpoint.skip();
        let lost = watchpoint.lost();
        assert!((1_000..=2 * WRITES).contains(&lost), "{lost}");
        assert_eq!(watchpoint.wait(Some(Instant::now())).unwrap(), []);
        watchpoint.skip();
        assert_eq!(watchpoint.lost(), lost);
    }

    #[test]
    fn a_process_without_the_handler_is_no_proof() {
        let error = rehearse(Handler::Missing).unwrap_err();
        assert_eq!(
            error.to_string(),
            "debug registers are not safe on this machine: a test process was ended by SIGTRAP"
        );
        let hint = error.hint().unwrap();
        assert!(hint.contains("--unsafe-debug-registers"), "{hint}");
    }
}
