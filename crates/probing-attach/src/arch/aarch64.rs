//! `aarch64`: registers, system calls, and how an interrupted call is taken up again.
//!
//! *Never run*: its instructions and its decisions are tested as data, on other machines, and [`check`] says so.
//!
//! What differs from `x86_64`. When a thread stops, the kernel has forgotten the number of its system call, and has
//! already gone back to the instruction that makes the call, with its first argument in x0 (the way in which it would
//! restart it): put back as they are, such registers make the call again. One that answered EINTR has the answer in
//! the place of the first argument, which only `/proc` tells, and only before the stop. So what was seen before the stop
//! decides whether the thread is in a call at all, and one that was not seen in it is not borrowed.
//!
//! What cannot be taken up again: a wait whose end only the kernel knows (see [`ends_in_kernel`]). Those threads
//! are stopped at most, which the kernel makes good by itself. And no thread that runs can be borrowed (see
//! [`HAS_PENDING`]): a process of which no thread waits is not entered.

mod assembler;
mod frame;
mod numbers;
mod stub;

use std::time::Duration;

use probing_process::procfs::threads::SyscallState;

use self::numbers::{CLOCK_NANOSLEEP, EPOLL_PWAIT, EPOLL_PWAIT2, FUTEX, NANOSLEEP, RESTART};
use crate::arch::{Gadgets, rest_of_wait};
use crate::error::Unsupported;

pub(crate) use self::frame::frame;
pub(crate) use self::stub::assemble;

/// The kernel's `user_pt_regs`, then what we know besides. The kernel reads and writes only its own part.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Regs {
    x: [u64; 31],
    sp: u64,
    pc: u64,
    pstate: u64,
    /// Bits, because all zero must be a value: [`REWOUND`] or [`ANSWERED`].
    called: u64,
    first_argument: u64,
}

type Home = crate::arch::Home<Regs>;

/// It is about to make its system call again.
const REWOUND: u64 = 1;
/// Its system call has answered EINTR.
const ANSWERED: u64 = 2;

pub(crate) const MMAP: u64 = numbers::MMAP as u64;
pub(crate) const MUNMAP: u64 = numbers::MUNMAP as u64;
/// The largest page that Linux has here: what is a multiple of it fits them all.
pub(crate) const PAGE: u64 = 0x10000;
/// This machine in the question that a filter of system calls is asked.
pub(crate) const AUDIT: u32 = 0xc000_00b7;
/// System calls that libc makes here for what other machines have older ones for.
pub(crate) const MACHINE_CALLS: &[i64] = &[
    libc::SYS_mkdirat,
    libc::SYS_fchmodat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_readlinkat,
];
/// The 128-bit registers and their control words.
pub(crate) const VECTOR_SET: usize = 2;
/// Guarded control stack.
pub(crate) const SHADOW_STACK_SET: usize = 0x410;
/// The stub sets it without being told.
pub(crate) const FLOAT_CONTROL: u64 = 0;
/// Not here: the system calls of a thread borrowed amid its work would cost it its wide vectors (SVE), and up to
/// 3.12 the helper would have to pass for main, which glibc tells by the thread pointer itself.
pub(crate) const HAS_PENDING: bool = false;

/// `svc #0; ret`: returns by x30.
pub(crate) const CALL_PATTERNS: &[&[u8]] = &[&[0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6]];
/// `mov x8, #139; svc #0`: `rt_sigreturn`. musl has it; with glibc it is the vDSO that does.
pub(crate) const RESTORER_PATTERNS: &[&[u8]] = &[&[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4]];

const EINTR: u64 = -4i64 as u64;
/// Bytes of `svc #0`.
const CALL_LEN: u64 = 4;

pub(crate) fn check() -> Result<(), Unsupported> {
    Err(Unsupported::Untried { name: "aarch64" })
}

/// A thread in one of these waits: it holds no lock of libc and is not inside malloc.
const SAFE_CALLS: &[i64] = &[
    numbers::READ,
    numbers::WRITE,
    numbers::PPOLL,
    numbers::PSELECT6,
    numbers::ACCEPT,
    numbers::ACCEPT4,
    numbers::SENDTO,
    numbers::RECVFROM,
    numbers::SENDMSG,
    numbers::RECVMSG,
    numbers::WAIT4,
    numbers::WAITID,
    FUTEX,
    numbers::FUTEX_WAITV,
    CLOCK_NANOSLEEP,
    EPOLL_PWAIT,
    EPOLL_PWAIT2,
    numbers::CONNECT,
    numbers::FCNTL,
    numbers::FLOCK,
    numbers::SIGTIMEDWAIT,
];

pub(crate) fn is_safe_call(number: i64) -> bool {
    SAFE_CALLS.contains(&number)
}

pub(crate) fn is_epoll(number: i64) -> bool {
    matches!(number, EPOLL_PWAIT | EPOLL_PWAIT2)
}

pub(crate) fn restart_cost(number: i64, fourth_argument: u64) -> u8 {
    match number {
        CLOCK_NANOSLEEP => 1,
        FUTEX if fourth_argument != 0 => 1,
        number if is_epoll(number) => 2,
        _ => 0,
    }
}

/// Whether the kernel restarts it by a clock of its own, which returning from a signal makes it forget: made again, a
/// wait for a length of time would begin anew. Waits until a point in time, or without end, are not of these.
fn ends_in_kernel(regs: &Regs) -> bool {
    const UNTIL: u64 = libc::TIMER_ABSTIME as u64;
    match regs.x[8] as i64 {
        NANOSLEEP | RESTART => true,
        CLOCK_NANOSLEEP => regs.x[1] & UNTIL == 0,
        FUTEX => regs.x[1] & 0x7f == libc::FUTEX_WAIT as u64 && regs.x[3] != 0,
        _ => false,
    }
}

/// What the registers do not tell: whether this is the call that the thread was seen in before it was stopped.
pub(crate) fn complete(regs: &mut Regs, seen: SyscallState) {
    let SyscallState::Call {
        number,
        arguments,
        stack,
        pc,
    } = seen
    else {
        return;
    };
    if stack != regs.sp || number != regs.x[8] as i64 || arguments[1..] != regs.x[1..6] {
        return;
    }
    if regs.pc == pc.wrapping_sub(CALL_LEN) && regs.x[0] == arguments[0] {
        regs.called = REWOUND;
    } else if regs.pc == pc && regs.x[0] == EINTR {
        regs.called = ANSWERED;
        regs.first_argument = arguments[0];
    }
}

/// The system call that the thread was stopped in, if it can be made again.
pub(crate) fn call_of(regs: &Regs) -> Option<i64> {
    (regs.called != 0 && !ends_in_kernel(regs)).then_some(regs.x[8] as i64)
}

pub(crate) fn stack_of(regs: &Regs) -> u64 {
    regs.sp
}

pub(crate) fn pc_of(regs: &Regs) -> u64 {
    regs.pc
}

/// No helper is made here that would need it: see [`HAS_PENDING`].
pub(crate) fn thread_pointer_of(_regs: &Regs) -> u64 {
    0
}

/// What the thread shall find when it comes back. A restartable sequence is not aborted: no system call is made
/// inside one, and who is in none is not borrowed.
pub(crate) fn home(
    stopped: &Regs,
    waited: Option<Duration>,
    _abort: Option<u64>,
    read_time: impl Fn(u64) -> Option<Duration>,
) -> Home {
    let mut home = Home {
        regs: *stopped,
        resumed: None,
        interrupted: (stopped.x[0], stopped.pc),
        fallback_result: stopped.x[8],
    };
    match stopped.called {
        REWOUND if ends_with_handler(stopped.x[8] as i64) => {
            home.interrupted = (EINTR, stopped.pc + CALL_LEN);
        }
        ANSWERED => {
            if let Some((number, fourth_argument)) = call_again(stopped, waited, read_time) {
                home.regs.x[0] = stopped.first_argument;
                home.regs.x[3] = fourth_argument;
                home.regs.x[8] = number as u64;
                home.regs.pc = stopped.pc - CALL_LEN;
                home.fallback_result = number as u64;
                // If we die now, or let go, the kernel knows of no restart: a handler that runs does not interrupt it.
                home.resumed = Some(home.regs);
            }
        }
        _ => {}
    }
    home
}

/// Whether a handler makes the call answer EINTR even if it was installed with `SA_RESTART`, which cannot be seen
/// from outside: all others are called again.
fn ends_with_handler(number: i64) -> bool {
    matches!(
        number,
        FUTEX | CLOCK_NANOSLEEP | numbers::PPOLL | numbers::PSELECT6 | numbers::SIGTIMEDWAIT
    )
}

/// Number and fourth argument with which to make a call again that answers EINTR to a stop.
fn call_again(
    stopped: &Regs,
    waited: Option<Duration>,
    read_time: impl Fn(u64) -> Option<Duration>,
) -> Option<(i64, u64)> {
    let (number, fourth) = (stopped.x[8] as i64, stopped.x[3]);
    match number {
        EPOLL_PWAIT2 if fourth == 0 => Some((number, fourth)),
        // The same with milliseconds in the place of an address, so that we write nothing into its memory.
        EPOLL_PWAIT2 => Some((EPOLL_PWAIT, rest_of_wait(read_time(fourth)?, waited)?)),
        EPOLL_PWAIT => match u64::try_from(fourth as i32) {
            Ok(milliseconds) => {
                let timeout = Duration::from_millis(milliseconds);
                Some((number, rest_of_wait(timeout, waited)?))
            }
            Err(_endless) => Some((number, fourth)),
        },
        numbers::SIGTIMEDWAIT if stopped.x[2] == 0 => Some((number, fourth)),
        number if ON_SOCKETS.contains(&number) => Some((number, fourth)),
        _ => None,
    }
}

/// On a socket that has a time limit of its own (`SO_RCVTIMEO`) these answer EINTR to a stop.
const ON_SOCKETS: &[i64] = &[
    numbers::READ,
    numbers::WRITE,
    numbers::ACCEPT,
    numbers::ACCEPT4,
    numbers::CONNECT,
    numbers::RECVFROM,
    numbers::RECVMSG,
    numbers::SENDTO,
    numbers::SENDMSG,
];

/// State B: one system call from existing code, with the signal frame as the way home.
///
/// x7 stays as it was: at a stop in a system call the kernel keeps it for itself.
pub(crate) fn regs_for_call(
    home: &Home,
    gadgets: Gadgets,
    frame: u64,
    number: u64,
    a: [u64; 6],
) -> Regs {
    let mut regs = home.regs;
    regs.x[..6].copy_from_slice(&a);
    regs.x[8] = number;
    regs.x[30] = gadgets.restorer;
    regs.sp = frame;
    regs.pc = gadgets.call;
    regs.pstate = plain(regs.pstate);
    regs
}

/// State C: the stub, on its own stack. x0 must not look like an interrupted call: the kernel still knows of ours.
pub(crate) fn regs_for_stub(home: &Home, stub: u64, stack: u64, context: u64) -> Regs {
    let mut regs = home.regs;
    regs.x[0] = 0;
    regs.x[assembler::CONTEXT as usize] = context;
    regs.sp = stack;
    regs.pc = stub;
    regs.pstate = plain(regs.pstate);
    regs
}

/// Without the mark of an indirect jump, which only a landing pad may follow.
fn plain(pstate: u64) -> u64 {
    const BRANCH_TYPE: u64 = 3 << 10;
    pstate & !BRANCH_TYPE
}

/// The result of a system call, or its errno.
pub(crate) fn call_result(regs: &Regs) -> Result<u64, i32> {
    match regs.x[0] as i64 {
        errno @ -4095..=-1 => Err(-errno as i32),
        result => Ok(result as u64),
    }
}

/// The stub needs none: the signal frame has them.
pub(crate) fn regs_bytes(_regs: &Regs) -> Vec<u8> {
    Vec::new()
}

/// Where the signal frame is: the stub leaves by it.
pub(crate) fn below_red_zone(regs: &Regs) -> u64 {
    frame::address(regs)
}

#[cfg(test)]
mod tests {
    use probing_proto::process::Pid;

    use super::*;
    use crate::error::AttachError;

    const AFTER_CALL: u64 = 0x1004;

    fn seen_in(number: i64) -> SyscallState {
        SyscallState::Call {
            number,
            arguments: [7, 1, 2, 3, 4, 5],
            stack: 0x8000,
            pc: AFTER_CALL,
        }
    }

    /// As the kernel shows a thread that stopped in the call in which [`seen_in`] saw it.
    fn stopped(number: i64) -> Regs {
        let mut x = [0; 31];
        x[..6].copy_from_slice(&[7, 1, 2, 3, 4, 5]);
        x[8] = number as u64;
        Regs {
            x,
            sp: 0x8000,
            pc: AFTER_CALL - CALL_LEN,
            pstate: 0x6000_0000,
            called: 0,
            first_argument: 0,
        }
    }

    pub(super) fn stopped_in(number: i64) -> Regs {
        let mut regs = stopped(number);
        complete(&mut regs, seen_in(number));
        regs
    }

    fn answered(number: i64) -> Regs {
        let mut regs = stopped(number);
        (regs.x[0], regs.pc) = (EINTR, AFTER_CALL);
        complete(&mut regs, seen_in(number));
        regs
    }

    fn no_time(_address: u64) -> Option<Duration> {
        None
    }

    #[test]
    fn nobody_is_entered_here_who_did_not_ask_for_it() {
        let (pid, what) = (Pid(1), check().unwrap_err());
        let refused = AttachError::NotSupported { pid, what };
        assert!(
            refused
                .to_string()
                .ends_with("never tested on this architecture: aarch64")
        );
        assert!(refused.hint().unwrap().contains("--force"));
    }

    #[test]
    fn a_thread_is_in_the_call_in_which_it_was_seen_or_in_none() {
        assert_eq!(call_of(&stopped_in(numbers::READ)), Some(numbers::READ));
        assert_eq!(call_of(&answered(EPOLL_PWAIT)), Some(EPOLL_PWAIT));
        let mut moved = [stopped(numbers::READ); 5];
        moved[0].pc += 8;
        moved[1].sp -= 16;
        moved[2].x[8] += 1;
        moved[3].x[2] += 1;
        moved[4].x[0] += 1;
        for mut regs in moved {
            complete(&mut regs, seen_in(numbers::READ));
            assert_eq!(call_of(&regs), None, "{regs:?}");
        }
        let mut running = stopped(numbers::READ);
        complete(&mut running, SyscallState::Running);
        assert_eq!(call_of(&running), None);
    }

    #[test]
    fn a_call_that_the_kernel_rewound_is_made_again_as_it_is() {
        let regs = stopped_in(numbers::READ);
        let home = home(&regs, None, None, no_time);
        assert_eq!(home.regs, regs);
        assert!(home.resumed.is_none());
        assert_eq!(home.interrupted, (7, AFTER_CALL - CALL_LEN));
        assert_eq!(home.fallback_result, numbers::READ as u64);
    }

    #[test]
    fn a_signal_that_waits_interrupts_a_wait() {
        for number in [FUTEX, numbers::PPOLL, numbers::PSELECT6] {
            let home = home(&stopped_in(number), None, None, no_time);
            assert_eq!(home.interrupted, (EINTR, AFTER_CALL), "{number}");
        }
    }

    #[test]
    fn a_wait_whose_end_only_the_kernel_knows_is_left_alone() {
        let with = |number: i64, second: u64, fourth: u64| {
            let mut regs = stopped_in(number);
            (regs.x[1], regs.x[3]) = (second, fourth);
            call_of(&regs).is_some()
        };
        assert!(!with(NANOSLEEP, 0, 0));
        assert!(!with(RESTART, 0, 0));
        assert!(!with(CLOCK_NANOSLEEP, 0, 0));
        assert!(with(CLOCK_NANOSLEEP, 1, 0)); // until a point in time
        assert!(!with(FUTEX, 0x80, 0x7000)); // FUTEX_WAIT for a length of time
        assert!(with(FUTEX, 0x80, 0)); // without end
        assert!(with(FUTEX, 0x189, 0x7000)); // FUTEX_WAIT_BITSET: until a point in time
    }

    #[test]
    fn epoll_gets_its_first_argument_back_and_the_rest_of_its_time() {
        let mut regs = answered(EPOLL_PWAIT);
        regs.x[3] = 1000;
        let slept = Some(Duration::from_millis(400));
        let again = home(&regs, slept, None, no_time);
        assert_eq!(again.resumed, Some(again.regs));
        assert_eq!((again.regs.x[0], again.regs.x[3]), (7, 600));
        assert_eq!(again.regs.pc, AFTER_CALL - CALL_LEN);
        assert_eq!(again.interrupted, (EINTR, AFTER_CALL));
        let unknown = home(&regs, None, None, no_time);
        assert_eq!((unknown.regs, unknown.resumed), (regs, None));
    }

    #[test]
    fn epoll_with_fine_time_continues_with_milliseconds() {
        let mut regs = answered(EPOLL_PWAIT2);
        regs.x[3] = 0x7000;
        let time = |address| (address == 0x7000).then_some(Duration::from_micros(2_500));
        let home = home(&regs, Some(Duration::from_millis(1)), None, time);
        assert_eq!((home.regs.x[8], home.regs.x[3]), (EPOLL_PWAIT as u64, 2));
        assert_eq!(home.fallback_result, EPOLL_PWAIT as u64);
    }

    #[test]
    fn a_borrowed_thread_keeps_all_but_what_our_call_needs() {
        let mut regs = stopped_in(numbers::READ);
        (regs.x[7], regs.x[17], regs.x[29]) = (70, 170, 290);
        regs.pstate |= 1 << 10; // as if it had come by an indirect jump
        let home = home(&regs, None, None, no_time);
        let gadgets = Gadgets {
            call: 0x4000,
            restorer: 0x5000,
        };
        let call = regs_for_call(&home, gadgets, 0x6000, MMAP, [1, 2, 3, 4, 5, 6]);
        assert_eq!((call.pc, call.sp, call.x[30]), (0x4000, 0x6000, 0x5000));
        assert_eq!((call.x[7], call.x[17], call.x[29]), (70, 170, 290));
        assert_eq!(call.pstate, 0x6000_0000);
        let stub = regs_for_stub(&home, 0x9000, 0xa000, 0xb000);
        assert_eq!((stub.pc, stub.sp, stub.x[19]), (0x9000, 0xa000, 0xb000));
        assert_eq!(stub.x[0], 0);
    }
}
