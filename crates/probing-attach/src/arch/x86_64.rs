//! `x86_64`: registers, system calls, and how an interrupted call is taken up again.

mod frame;
mod stub;

use std::time::Duration;

use probing_process::procfs::threads::SyscallState;

use crate::arch::{Gadgets, Home, rest_of_wait};
use crate::error::Unsupported;
use crate::injection::remote_block::VECTOR_ROOM;

pub(crate) use self::frame::frame;
pub(crate) use self::stub::assemble;

pub(crate) type Regs = libc::user_regs_struct;

pub(crate) const MMAP: u64 = libc::SYS_mmap as u64;
pub(crate) const MUNMAP: u64 = libc::SYS_munmap as u64;
pub(crate) const PAGE: u64 = 4096;
/// The register set (ELF note type) with everything that is not a general register.
pub(crate) const VECTOR_SET: usize = 0x202;
/// The register set that only a thread with a shadow stack has.
pub(crate) const SHADOW_STACK_SET: usize = 0x204;

/// This machine in the question that a filter of system calls is asked.
pub(crate) const AUDIT: u32 = 0xc000_003e;
/// System calls that libc makes here for what other machines have newer ones for.
pub(crate) const MACHINE_CALLS: &[i64] = &[
    libc::SYS_mkdir,
    libc::SYS_chmod,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_readlink,
];

/// Whether main can be borrowed amid its work, to clone a helper that queues a call for it.
pub(crate) const HAS_PENDING: bool = true;

/// `syscall; ret`.
pub(crate) const CALL_PATTERNS: &[&[u8]] = &[&[0x0f, 0x05, 0xc3]];
/// `mov rax, 15; syscall` in glibc's and musl's spellings: `rt_sigreturn`.
pub(crate) const RESTORER_PATTERNS: &[&[u8]] = &[
    &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 15, 0, 0, 0, 0x0f, 0x05],
];

const FUTEX: i64 = libc::SYS_futex;
const POLL: i64 = libc::SYS_poll;
const EPOLL_WAIT: i64 = libc::SYS_epoll_wait;
const EPOLL_PWAIT: i64 = libc::SYS_epoll_pwait;
const EPOLL_PWAIT2: i64 = libc::SYS_epoll_pwait2;
const RESTART: i64 = libc::SYS_restart_syscall;

/// What the kernel leaves in the result register of an interrupted call, for itself to see.
mod interrupted {
    pub(super) const EINTR: i64 = -4;
    /// Call again with the same arguments; -513 and -514 differ only if a handler runs.
    pub(super) const AGAIN: std::ops::RangeInclusive<i64> = -514..=-512;
    pub(super) const AGAIN_WITHOUT_HANDLER: i64 = -514;
    pub(super) const AGAIN_AFTER_HANDLER: std::ops::RangeInclusive<i64> = -513..=-512;
    /// Go on by `restart_syscall`; the kernel keeps the time at which it ends.
    pub(super) const RESTART_BLOCK: i64 = -516;
}

/// Whether this machine can be entered by ptrace.
pub(crate) fn check() -> Result<(), Unsupported> {
    let size = std::arch::x86_64::__cpuid_count(0xd, 0).ebx as usize;
    if size > VECTOR_ROOM {
        return Err(Unsupported::VectorState { size });
    }
    Ok(())
}

/// A thread in one of these waits: it holds no lock of libc and is not inside malloc.
const SAFE_CALLS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    POLL,
    libc::SYS_select,
    libc::SYS_pause,
    libc::SYS_nanosleep,
    libc::SYS_accept,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_wait4,
    FUTEX,
    RESTART,
    libc::SYS_clock_nanosleep,
    EPOLL_WAIT,
    libc::SYS_waitid,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    EPOLL_PWAIT,
    libc::SYS_accept4,
    EPOLL_PWAIT2,
    libc::SYS_futex_waitv,
    libc::SYS_connect,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_rt_sigtimedwait,
];

pub(crate) fn is_safe_call(number: i64) -> bool {
    SAFE_CALLS.contains(&number)
}

/// Whether every stop makes this call answer EINTR.
pub(crate) fn is_epoll(number: i64) -> bool {
    matches!(number, EPOLL_WAIT | EPOLL_PWAIT | EPOLL_PWAIT2)
}

/// 0: simply called again; 1: its end time may be lost if we die at the wrong moment; 2: needs care.
pub(crate) fn restart_cost(number: i64, fourth_argument: u64) -> u8 {
    match number {
        POLL | libc::SYS_nanosleep | RESTART => 1,
        // With a time: often one who waits for the GIL and will run soon.
        FUTEX if fourth_argument != 0 => 1,
        number if is_epoll(number) => 2,
        _ => 0,
    }
}

/// Nothing is missing: the registers tell in which system call the thread is.
pub(crate) fn complete(_regs: &mut Regs, _seen: SyscallState) {}

/// The system call that the thread was stopped in.
pub(crate) fn call_of(regs: &Regs) -> Option<i64> {
    Some(regs.orig_rax as i64).filter(|number| *number >= 0)
}

pub(crate) fn stack_of(regs: &Regs) -> u64 {
    regs.rsp
}

pub(crate) fn pc_of(regs: &Regs) -> u64 {
    regs.rip
}

pub(crate) fn thread_pointer_of(regs: &Regs) -> u64 {
    regs.fs_base
}

/// What the thread shall find when it comes back.
///
/// The restart of its system call is taken into our hands: the kernel does it only on its way out of this very
/// stop, and only if the registers are left alone. `waited`: how long at least it has been in an epoll call, if known.
/// `abort`: where to go if it was inside a restartable sequence. `read_time`: a `timespec` at an address of the target.
pub(crate) fn home(
    stopped: &Regs,
    waited: Option<Duration>,
    abort: Option<u64>,
    read_time: impl Fn(u64) -> Option<Duration>,
) -> Home {
    let mut regs = *stopped;
    regs.orig_rax = u64::MAX; // or the kernel would apply its own restart to whatever registers we set
    let mut home = Home {
        regs,
        resumed: None,
        interrupted: (regs.rax, regs.rip),
        fallback_result: regs.rax,
    };
    match call_of(stopped).and_then(|number| call_again(stopped, number, waited, read_time)) {
        Some(again) => {
            let number = stopped.orig_rax as i64;
            let result = stopped.rax as i64;
            home.regs.rax = again.number;
            home.regs.r10 = again.fourth_argument;
            home.regs.rip = stopped.rip - 2; // the `syscall` instruction itself
            home.fallback_result = again.fallback;
            home.resumed = (result == interrupted::EINTR).then_some(Regs {
                orig_rax: again.number,
                rax: interrupted::AGAIN_WITHOUT_HANDLER as u64,
                r10: again.fourth_argument,
                ..*stopped
            });
            // A handler that runs meanwhile interrupts the call, as it always would. Whether it was installed
            // with SA_RESTART cannot be seen from outside: read and its like are called again.
            let calls_again = interrupted::AGAIN_AFTER_HANDLER.contains(&result) && number != FUTEX;
            home.interrupted = if calls_again {
                (home.regs.rax, home.regs.rip)
            } else {
                (interrupted::EINTR as u64, stopped.rip)
            };
        }
        None => {
            if let Some(abort) = abort {
                home.regs.rip = abort;
                home.interrupted.1 = abort;
            }
        }
    }
    home
}

struct RestartCall {
    number: u64,
    fourth_argument: u64,
    /// The call to make if the kernel's restart block is lost.
    fallback: u64,
}

impl RestartCall {
    fn call(number: i64, fourth_argument: u64) -> Self {
        Self {
            number: number as u64,
            fourth_argument,
            fallback: number as u64,
        }
    }
}

fn call_again(
    stopped: &Regs,
    number: i64,
    waited: Option<Duration>,
    read_time: impl Fn(u64) -> Option<Duration>,
) -> Option<RestartCall> {
    let result = stopped.rax as i64;
    match result {
        interrupted::RESTART_BLOCK => {
            // Where the arguments are absolute or endless the call can be made again as it was: a futex wait
            // until a point in time, poll without a timeout. Else EINTR is the honest answer.
            let until = number == FUTEX && stopped.rsi & 0x7f == libc::FUTEX_WAIT_BITSET as u64;
            let endless = number == POLL && (stopped.rdx as u32).cast_signed() < 0;
            Some(RestartCall {
                fallback: if until || endless { number } else { RESTART } as u64,
                ..RestartCall::call(RESTART, stopped.r10)
            })
        }
        result if interrupted::AGAIN.contains(&result) => {
            Some(RestartCall::call(number, stopped.r10))
        }
        interrupted::EINTR if is_epoll(number) => epoll_again(stopped, number, waited, read_time),
        interrupted::EINTR if answers_a_stop(stopped, number) => {
            Some(RestartCall::call(number, stopped.r10))
        }
        _ => None,
    }
}

/// epoll has no restart block: it waits for the rest of its time.
fn epoll_again(
    stopped: &Regs,
    number: i64,
    waited: Option<Duration>,
    read_time: impl Fn(u64) -> Option<Duration>,
) -> Option<RestartCall> {
    let (number, timeout) = match number {
        EPOLL_PWAIT2 if stopped.r10 == 0 => return Some(RestartCall::call(number, 0)),
        // The same with milliseconds in the place of an address, so that we write nothing into its memory.
        EPOLL_PWAIT2 => (EPOLL_PWAIT, read_time(stopped.r10)?),
        _ => match u64::try_from(stopped.r10 as i32) {
            Ok(milliseconds) => (number, Duration::from_millis(milliseconds)),
            Err(_endless) => return Some(RestartCall::call(number, stopped.r10)),
        },
    };
    Some(RestartCall::call(number, rest_of_wait(timeout, waited)?))
}

/// Whether this call, though it has done nothing yet and waits without end, answers EINTR to a stop; on a socket that
/// has a time limit of its own (`SO_RCVTIMEO`) that begins anew.
fn answers_a_stop(stopped: &Regs, number: i64) -> bool {
    match number {
        libc::SYS_rt_sigtimedwait => stopped.rdx == 0,
        libc::SYS_semtimedop => stopped.r10 == 0,
        libc::SYS_semop => true,
        number => ON_SOCKETS.contains(&number),
    }
}

const ON_SOCKETS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
];

/// State B: one system call from existing code, with the signal frame as the way home.
pub(crate) fn regs_for_call(
    home: &Home,
    gadgets: Gadgets,
    frame: u64,
    number: u64,
    a: [u64; 6],
) -> Regs {
    Regs {
        rip: gadgets.call,
        rsp: frame,
        rax: number,
        rdi: a[0],
        rsi: a[1],
        rdx: a[2],
        r10: a[3],
        r8: a[4],
        r9: a[5],
        eflags: PLAIN_FLAGS,
        ..home.regs
    }
}

/// State C: the stub, on its own stack.
pub(crate) fn regs_for_stub(home: &Home, stub: u64, stack: u64, context: u64) -> Regs {
    Regs {
        rip: stub,
        rsp: stack,
        rbx: context,
        eflags: PLAIN_FLAGS,
        ..home.regs
    }
}

/// Interrupts on, nothing else: no direction, no trap.
const PLAIN_FLAGS: u64 = 0x202;

/// The result of a system call, or its errno.
pub(crate) fn call_result(regs: &Regs) -> Result<u64, i32> {
    match regs.rax as i64 {
        errno @ -4095..=-1 => Err(-errno as i32),
        result => Ok(result as u64),
    }
}

/// The registers as the stub finds them at the start of the context: in the kernel's order.
pub(crate) fn regs_bytes(regs: &Regs) -> Vec<u8> {
    let words = [
        regs.r15,
        regs.r14,
        regs.r13,
        regs.r12,
        regs.rbp,
        regs.rbx,
        regs.r11,
        regs.r10,
        regs.r9,
        regs.r8,
        regs.rax,
        regs.rcx,
        regs.rdx,
        regs.rsi,
        regs.rdi,
        regs.orig_rax,
        regs.rip,
        regs.cs,
        regs.eflags,
        regs.rsp,
        regs.ss,
    ];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Below what the thread may use without moving its stack pointer (the red zone), aligned for a call.
pub(crate) fn below_red_zone(regs: &Regs) -> u64 {
    regs.rsp.wrapping_sub(128) & !15
}

/// Control word of the floating point unit in a fresh thread.
pub(crate) const FLOAT_CONTROL: u64 = 0x1f80;

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(number: i64, result: i64) -> Regs {
        let zero = 0u64;
        Regs {
            r15: zero,
            r14: zero,
            r13: zero,
            r12: zero,
            rbp: zero,
            rbx: zero,
            r11: zero,
            r10: zero,
            r9: zero,
            r8: zero,
            rax: result as u64,
            rcx: zero,
            rdx: zero,
            rsi: zero,
            rdi: zero,
            orig_rax: number as u64,
            rip: 0x1002,
            cs: 0x33,
            eflags: 0x246,
            rsp: 0x8000,
            ss: 0x2b,
            fs_base: zero,
            gs_base: zero,
            ds: zero,
            es: zero,
            fs: zero,
            gs: zero,
        }
    }

    fn no_time(_address: u64) -> Option<Duration> {
        None
    }

    #[test]
    fn a_running_thread_goes_home_as_it_was() {
        let home = home(&stopped(-1, 7), None, None, no_time);
        assert_eq!((home.regs.rax, home.regs.rip), (7, 0x1002));
        assert_eq!(home.interrupted, (7, 0x1002));
    }

    #[test]
    fn an_interrupted_read_is_called_again() {
        let home = home(&stopped(libc::SYS_read, -512), None, None, no_time);
        assert_eq!(
            (home.regs.rax, home.regs.rip),
            (libc::SYS_read as u64, 0x1000)
        );
        assert_eq!(home.interrupted, (libc::SYS_read as u64, 0x1000));
    }

    #[test]
    fn a_timed_sleep_resumes_by_the_restart_block() {
        let home = home(&stopped(libc::SYS_nanosleep, -516), None, None, no_time);
        assert_eq!((home.regs.rax, home.regs.rip), (RESTART as u64, 0x1000));
        assert_eq!(home.interrupted, (-4i64 as u64, 0x1002));
    }

    #[test]
    fn epoll_waits_only_for_the_rest_of_its_time() {
        let mut regs = stopped(EPOLL_WAIT, -4);
        regs.r10 = 1000;
        let slept = Some(Duration::from_millis(400));
        assert_eq!(home(&regs, slept, None, no_time).regs.r10, 600);
        for unknown in [None, Some(Duration::from_secs(9))] {
            let regs = home(&regs, unknown, None, no_time).regs;
            assert_eq!((regs.rax as i64, regs.rip), (-4, 0x1002));
        }
        for (timeout, endless_or_short) in [(u64::from(u32::MAX), true), (100, true), (101, false)]
        {
            regs.r10 = timeout;
            let again = home(&regs, None, None, no_time).regs;
            assert_eq!(again.rip == 0x1000, endless_or_short, "{timeout}");
            assert_eq!(again.r10, timeout);
        }
    }

    #[test]
    fn epoll_with_fine_time_continues_with_milliseconds() {
        let mut regs = stopped(EPOLL_PWAIT2, -4);
        regs.r10 = 0x7000;
        let time = |address| (address == 0x7000).then_some(Duration::from_micros(2_500));
        let slept = Some(Duration::from_millis(1));
        let home = home(&regs, slept, None, time);
        assert_eq!((home.regs.rax, home.regs.r10), (EPOLL_PWAIT as u64, 2));
        regs.r10 = 0;
        let endless = super::home(&regs, None, None, time);
        assert_eq!(
            (endless.regs.rax, endless.regs.r10),
            (EPOLL_PWAIT2 as u64, 0)
        );
    }

    #[test]
    fn what_a_stop_interrupted_is_made_restartable_for_the_kernel() {
        let mut regs = stopped(EPOLL_WAIT, -4);
        regs.r10 = 1000;
        let slept = Some(Duration::from_millis(400));
        let resumed = home(&regs, slept, None, no_time).resumed.unwrap();
        assert_eq!(
            (resumed.orig_rax, resumed.rax as i64),
            (EPOLL_WAIT as u64, -514)
        );
        assert_eq!((resumed.r10, resumed.rip), (600, 0x1002));
        for untouched in [
            stopped(-1, -4),
            stopped(libc::SYS_read, -512),
            stopped(EPOLL_WAIT, 3),
        ] {
            assert!(home(&untouched, slept, None, no_time).resumed.is_none());
        }
    }

    #[test]
    fn a_wait_without_end_is_called_again_a_timed_one_of_unknown_length_is_not() {
        let mut wait = stopped(libc::SYS_rt_sigtimedwait, -4);
        assert_eq!(home(&wait, None, None, no_time).regs.rip, 0x1000);
        wait.rdx = 0x7000;
        assert_eq!(home(&wait, None, None, no_time).regs.rip, 0x1002);
        let close = stopped(libc::SYS_close, -4);
        assert_eq!(home(&close, None, None, no_time).regs.rip, 0x1002);
    }

    #[test]
    fn a_restartable_sequence_is_aborted() {
        assert_eq!(
            home(&stopped(-1, 0), None, Some(0x4444), no_time).regs.rip,
            0x4444
        );
    }
}
