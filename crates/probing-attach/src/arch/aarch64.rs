//! `aarch64`: what is known of it, and no more.
//!
//! Entering by ptrace is *not written* here: nobody of us could run it, and code of this kind that never ran is
//! worse than none. [`check`] refuses; Python 3.14's own door needs nothing of this and works. The facts below are
//! those that the flow asks for, in the names that it asks them by.

use std::time::Duration;

use super::{Code, Frame, Home, Plan};
use crate::error::Unsupported;

pub(crate) type Regs = libc::user_regs_struct;

pub(crate) const MMAP: u64 = libc::SYS_mmap as u64;
pub(crate) const MUNMAP: u64 = libc::SYS_munmap as u64;
/// Floating point registers; what SVE has beyond them does not survive a system call.
pub(crate) const VECTOR_SET: usize = 2;
/// Guarded control stack.
pub(crate) const SHADOW_STACK_SET: usize = 0x410;
pub(crate) const FLOAT_CONTROL: u64 = 0;

/// `svc #0; ret`: returns by x30.
pub(crate) const CALL_PATTERNS: &[&[u8]] = &[&[0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6]];
/// `mov x8, #139; svc #0`: `rt_sigreturn`. The vDSO has it as well.
pub(crate) const RESTORER_PATTERNS: &[&[u8]] = &[&[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4]];

pub(crate) fn check() -> Result<(), Unsupported> {
    Err(Unsupported::Architecture { name: "aarch64" })
}

const SAFE_CALLS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
];

pub(crate) fn is_safe_call(number: i64) -> bool {
    SAFE_CALLS.contains(&number)
}

pub(crate) fn is_epoll(number: i64) -> bool {
    matches!(number, libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2)
}

pub(crate) fn restart_cost(number: i64, _fourth_argument: u64) -> u8 {
    if is_epoll(number) { 2 } else { 0 }
}

pub(crate) fn call_of(_regs: &Regs) -> Option<i64> {
    None // the number is in a register set of its own
}

pub(crate) fn stack_of(regs: &Regs) -> u64 {
    regs.sp
}

pub(crate) fn pc_of(regs: &Regs) -> u64 {
    regs.pc
}

pub(crate) fn thread_pointer_of(_regs: &Regs) -> u64 {
    0 // also in a register set of its own
}

pub(crate) fn home(
    stopped: &Regs,
    _waited: Option<Duration>,
    _abort: Option<u64>,
    _read_time: impl Fn(u64) -> Option<Duration>,
) -> Home {
    Home {
        regs: *stopped,
        resumed: None,
        interrupted: (stopped.regs[0], stopped.pc),
        fallback_result: stopped.regs[0],
    }
}

pub(crate) fn below_red_zone(regs: &Regs) -> u64 {
    regs.sp // there is none
}

pub(crate) fn call_result(_regs: &Regs) -> Result<u64, i32> {
    Err(libc::ENOSYS)
}

pub(crate) fn regs_for_call(
    home: &Home,
    _gadget: u64,
    _frame: u64,
    _number: u64,
    _a: [u64; 6],
) -> Regs {
    home.regs
}

pub(crate) fn regs_for_stub(home: &Home, _stub: u64, _stack: u64, _context: u64) -> Regs {
    home.regs
}

pub(crate) fn regs_bytes(_regs: &Regs) -> Vec<u8> {
    Vec::new()
}

/// `None`: no signal frame, so no thread is ever borrowed, whatever the rest says.
pub(crate) fn frame(_home: &Home, _mask: u64, _vectors: &[u8], _restorer: u64) -> Option<Frame> {
    None
}

pub(crate) fn assemble(plan: &Plan<'_>) -> Code {
    Code {
        bytes: Vec::new(),
        stub: plan.start,
    }
}
