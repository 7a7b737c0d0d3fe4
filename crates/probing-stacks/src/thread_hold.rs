//! Holds one thread of the target for a moment, when its stack keeps changing.
//!
//! The kernel lets a traced thread go when its tracer ends, so the tracer is a thread of ours that does nothing else:
//! however it ends (even by SIGKILL of us all), the target goes on. A signal that arrives meanwhile is passed on.
//!
//! It is [`Urgent`] meanwhile: while it waits for a CPU, the held thread stands still.
//!
//! Linux lets a stopped thread go on with almost every system call it was in. A few end with EINTR instead: who sleeps in
//! one of these is not to be held ([`ends_by_a_stop`]), and if it enters one in the very moment, it is called again.
#![expect(unsafe_code, reason = "ptrace is a C interface")]

use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, c_void, user_regs_struct};
use probing_process::access::priority::PriorityBoost;
use probing_process::cpus;
use probing_process::procfs::threads::Tid;
use probing_proto::process::Pid;

use crate::native::machine;
use crate::native::registers::Registers;

/// So long we look for the stop as often as we can; then we leave the CPU to the thread, which may need ours.
const EAGER: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(50);
/// The same if we are given a CPU before the thread is: then we must not keep it.
const SHORT_PAUSE: Duration = Duration::from_micros(10);
/// How long a thread may stand still until what is read of it has been read. Whoever needs longer has lost its CPU.
const HOLD_TIMEOUT: Duration = Duration::from_millis(5);

/// Does something while thread `id` of the target stands still, and says for how long it did at most. `None`: it did
/// not. A thread that does not stop within `patience` (it waits for a CPU, or sleeps uninterruptibly) is left alone.
pub(crate) fn while_stopped<T: Send>(
    id: u32,
    patience: Duration,
    action: impl FnOnce(&StoppedThread) -> T + Send,
) -> Option<(T, Duration)> {
    let tid = i32::try_from(id).ok()?;
    thread::scope(|scope| {
        let tracer = scope.spawn(|| {
            let urgent = PriorityBoost::begin();
            if urgent.is_first() {
                // It has a CPU at once wherever it is. Others wait for one: the held thread's is the first that is free.
                cpus::leave_to(Pid(id), Tid(id));
            }
            let held = StoppedThread::stop(tid, patience, &urgent)?;
            let result = action(&held);
            Some((result, held.let_go()))
        });
        tracer.join().ok().flatten()
    })
}

/// Whether a stop makes this system call fail.
pub(crate) fn ends_by_a_stop(call: i64) -> bool {
    const CALLS: &[i64] = &[
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_io_getevents,
        libc::SYS_io_uring_enter,
        // With a timeout set on the socket.
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_connect,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
    ];
    CALLS.contains(&call)
}

#[derive(Debug)]
pub(crate) struct StoppedThread {
    tid: i32,
    since: Instant,
    /// When it was seen to stand still.
    stopped_at: Instant,
    /// To be delivered when it goes on; 0 for none.
    signal: c_int,
}

impl StoppedThread {
    fn stop(tid: i32, patience: Duration, urgent: &PriorityBoost) -> Option<Self> {
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
                let stopped_at = Instant::now();
                return Some(Self {
                    tid,
                    since,
                    stopped_at,
                    signal,
                });
            }
            // Ended, or it never stops: the end of this thread frees it.
            if waited != 0 || since.elapsed() > patience {
                return None;
            }
            if urgent.is_first() {
                thread::sleep(SHORT_PAUSE);
            } else if since.elapsed() < EAGER {
                thread::yield_now();
            } else {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Whether it has stood still for too long: it is to be let go, and held again.
    pub(crate) fn is_late(&self) -> bool {
        self.stopped_at.elapsed() > HOLD_TIMEOUT
    }

    /// Its registers; `None` if it is gone.
    pub(crate) fn registers(&self) -> Option<Registers> {
        registers_of(self.tid).map(|regs| machine::registers(&regs))
    }

    fn let_go(self) -> Duration {
        let again = registers_of(self.tid)
            .and_then(|regs| machine::called_again(&regs))
            .filter(|_| self.signal == 0 && !has_signal(self.tid));
        if let Some(mut again) = again {
            register_set(libc::PTRACE_SETREGSET, self.tid, &mut again);
        }
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

/// Whether a signal waits for this thread: then EINTR is what the program is to see.
fn has_signal(tid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let masks = (mask("SigPnd:"), mask("ShdPnd:"), mask("SigBlk:"));
    match masks {
        (Some(own), Some(shared), Some(blocked)) => (own | shared) & !blocked != 0,
        _ => true,
    }
}

fn registers_of(tid: i32) -> Option<user_regs_struct> {
    // SAFETY: the structure consists of numbers, for which 0 is a value.
    let mut regs: user_regs_struct = unsafe { std::mem::zeroed() };
    register_set(libc::PTRACE_GETREGSET, tid, &mut regs)?;
    Some(regs)
}

/// Reads or writes the general registers.
fn register_set(request: libc::c_uint, tid: i32, regs: &mut user_regs_struct) -> Option<()> {
    let mut vector = libc::iovec {
        iov_base: std::ptr::from_mut(regs).cast(),
        iov_len: size_of::<user_regs_struct>(),
    };
    // SAFETY: the vector is a structure of ours with its true length; it and what it points to live until the call
    // returns, and the kernel touches nothing else.
    let done = unsafe {
        libc::ptrace(
            request,
            tid,
            std::ptr::without_provenance_mut::<c_void>(libc::NT_PRSTATUS as usize),
            &raw mut vector,
        )
    };
    (done == 0).then_some(())
}
