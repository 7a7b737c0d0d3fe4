//! Holds one thread of the target still for a moment, for a stack that never stands still by itself.
//!
//! The kernel lets a traced thread go when its tracer ends, so the tracer is a thread of ours that does nothing else:
//! however it ends (even by SIGKILL of us all), the target goes on. A signal that arrives meanwhile is passed on.
#![expect(unsafe_code, reason = "ptrace is a C interface")]

use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, c_void};

/// A thread that does not stop within this (it sleeps uninterruptibly in the kernel) is left alone.
const PATIENCE: Duration = Duration::from_millis(50);

/// Does something while thread `tid` of the target stands still, and says for how long it did. `None`: it did not.
pub(crate) fn while_stopped<T: Send>(
    tid: u32,
    action: impl FnOnce() -> T + Send,
) -> Option<(T, Duration)> {
    let tid = i32::try_from(tid).ok()?;
    thread::scope(|scope| {
        let tracer = scope.spawn(|| {
            let held = Held::stop(tid)?;
            let result = action();
            Some((result, held.let_go()))
        });
        tracer.join().ok().flatten()
    })
}

struct Held {
    tid: i32,
    since: Instant,
    /// To be delivered when it goes on; 0 for none.
    signal: c_int,
}

impl Held {
    fn stop(tid: i32) -> Option<Self> {
        request(libc::PTRACE_SEIZE, tid, 0)?;
        let since = Instant::now();
        request(libc::PTRACE_INTERRUPT, tid, 0)?;
        loop {
            let mut status = 0;
            // SAFETY: `status` lives until the call returns; the thread is our tracee, so this takes nobody's news.
            let waited =
                unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
            if waited == tid && libc::WIFSTOPPED(status) {
                let is_signal = status >> 16 == 0;
                let signal = if is_signal { libc::WSTOPSIG(status) } else { 0 };
                return Some(Self { tid, since, signal });
            }
            // Ended, or it never stops: the end of this thread frees it.
            if waited != 0 || since.elapsed() > PATIENCE {
                return None;
            }
            thread::yield_now();
        }
    }

    fn let_go(self) -> Duration {
        // If this fails the thread is gone, or goes when ours ends.
        request(libc::PTRACE_DETACH, self.tid, self.signal);
        self.since.elapsed()
    }
}

fn request(request: libc::c_uint, tid: i32, data: c_int) -> Option<()> {
    let none: *mut c_void = std::ptr::null_mut();
    // SAFETY: these requests take numbers, not pointers: they touch no memory of ours.
    let done: c_long = unsafe { libc::ptrace(request, tid, none, c_long::from(data)) };
    (done == 0).then_some(())
}
