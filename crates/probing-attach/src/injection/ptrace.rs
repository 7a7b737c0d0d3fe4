//! The `ptrace` system call, one safe function for each use.
//!
//! Each takes a thread that this very thread has seized; for any other the kernel answers ESRCH.
#![expect(
    unsafe_code,
    reason = "ptrace passes pointers whose meaning depends on the request"
)]

use std::ffi::c_void;
use std::io;
use std::ptr;
use std::time::Duration;

use probing_process::procfs::threads::Tid;

use crate::arch::Regs;

const GET_SIGMASK: libc::c_uint = 0x420a;
const SET_SIGMASK: libc::c_uint = 0x420b;
const GET_FILTER: libc::c_uint = 0x420c;
const GET_RSEQ: libc::c_uint = 0x420f;
/// The kernel takes no longer one.
const LONGEST_FILTER: usize = 4096;
/// The general registers as a register set.
const GENERAL_SET: usize = 1;

fn request(request: libc::c_uint, tid: Tid, address: usize, data: *mut c_void) -> io::Result<()> {
    ask(request, tid, address, data).map(|_zero| ())
}

fn ask(request: libc::c_uint, tid: Tid, address: usize, data: *mut c_void) -> io::Result<usize> {
    // SAFETY: the callers below pass, for requests that read or write our memory, a pointer to a live value of
    // the size that the request is defined with; all other requests take a plain number.
    let result = unsafe { libc::ptrace(request, tid.0 as i32, address, data) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(result as usize)
}

/// Becomes the tracer without stopping the thread.
///
/// `TRACESYSGOOD` is a matter of life: if we die between a stop at a system call and our wait, the kernel sends
/// the stop's code as a signal. With it that is 0x85, which is no signal and is dropped; without, SIGTRAP, which
/// kills. For the same reason there is no single step and no breakpoint anywhere in this crate.
pub(crate) fn seize(tid: Tid) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD as usize;
    request(libc::PTRACE_SEIZE, tid, 0, options as *mut c_void)
}

pub(crate) fn interrupt(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, ptr::null_mut())
}

/// Goes on; 0 is no signal.
pub(crate) fn resume(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize as *mut c_void)
}

/// Goes on until a system call begins or ends.
pub(crate) fn resume_to_call(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize as *mut c_void)
}

pub(crate) fn detach(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, ptr::null_mut())
}

pub(crate) fn regs(tid: Tid) -> io::Result<Regs> {
    // SAFETY: registers are plain numbers, for which all bits zero is a value.
    let mut regs: Regs = unsafe { std::mem::zeroed() };
    let mut part = libc::iovec {
        iov_base: (&raw mut regs).cast(),
        iov_len: size_of::<Regs>(),
    };
    request(
        libc::PTRACE_GETREGSET,
        tid,
        GENERAL_SET,
        (&raw mut part).cast(),
    )?;
    Ok(regs)
}

/// Sets all at once: a process that is killed inside a system call first finishes it.
pub(crate) fn set_regs(tid: Tid, regs: &Regs) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: ptr::from_ref(regs).cast_mut().cast(), // only read
        iov_len: size_of::<Regs>(),
    };
    request(
        libc::PTRACE_SETREGSET,
        tid,
        GENERAL_SET,
        (&raw mut part).cast(),
    )
}

/// Another register set, as long as it is.
pub(crate) fn register_set(tid: Tid, set: usize, room: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; room];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    request(libc::PTRACE_GETREGSET, tid, set, (&raw mut part).cast())?;
    bytes.truncate(part.iov_len);
    Ok(bytes)
}

/// The mask that a signal handler would restore: inside `ppoll` and the like, the outer one.
pub(crate) fn signal_mask(tid: Tid) -> io::Result<u64> {
    let mut mask = 0u64;
    request(GET_SIGMASK, tid, size_of::<u64>(), (&raw mut mask).cast())?;
    Ok(mask)
}

pub(crate) fn set_signal_mask(tid: Tid, mut mask: u64) -> io::Result<()> {
    request(SET_SIGMASK, tid, size_of::<u64>(), (&raw mut mask).cast())
}

/// Address of the thread's restartable sequence area (Linux 5.13).
pub(crate) fn rseq_area(tid: Tid) -> Option<u64> {
    let mut answer = [0u64; 3];
    request(
        GET_RSEQ,
        tid,
        size_of_val(&answer),
        answer.as_mut_ptr().cast(),
    )
    .ok()?;
    Some(answer[0]).filter(|address| *address != 0)
}

/// One instruction of a filter of system calls: the kernel's `sock_filter`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    /// How far to jump if a comparison holds, and if not.
    pub(crate) yes: u8,
    pub(crate) no: u8,
    pub(crate) k: u32,
}

/// A filter of system calls of a stopped thread, the newest first; `None` after the last. For root only.
pub(crate) fn filter(tid: Tid, index: usize) -> io::Result<Option<Vec<Instruction>>> {
    let mut instructions = vec![Instruction::default(); LONGEST_FILTER];
    match ask(GET_FILTER, tid, index, instructions.as_mut_ptr().cast()) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        len => {
            instructions.truncate(len?);
            Ok(Some(instructions))
        }
    }
}

/// What happened to a traced thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Nothing yet.
    None,
    /// It begins or ends a system call.
    Call,
    /// It stopped because we asked.
    Interrupted,
    /// It stopped with its whole process (SIGSTOP).
    GroupStop,
    /// A signal is about to be delivered.
    Signal(i32),
    Ended,
}

/// Does not wait.
pub(crate) fn poll(tid: Tid) -> io::Result<Event> {
    let mut status = 0;
    // SAFETY: the kernel writes one int.
    let found =
        unsafe { libc::waitpid(tid.0 as i32, &raw mut status, libc::__WALL | libc::WNOHANG) };
    Ok(match found {
        -1 => return Err(io::Error::last_os_error()),
        0 => Event::None,
        _ if !libc::WIFSTOPPED(status) => Event::Ended,
        _ if libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 => Event::Call,
        _ if status >> 16 == libc::PTRACE_EVENT_STOP => match libc::WSTOPSIG(status) {
            libc::SIGTRAP => Event::Interrupted,
            _ => Event::GroupStop,
        },
        _ => Event::Signal(libc::WSTOPSIG(status)),
    })
}

/// The clock that the target can read too, if it is not in another time namespace.
pub(crate) fn monotonic_now() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Lets this thread's short sleeps be short: by default the kernel adds 50 µs to each.
pub(crate) fn sleep_precisely() {
    // SAFETY: a number for the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}
