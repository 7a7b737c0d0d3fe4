//! Filters of system calls (seccomp): a target whose filter would kill it is left alone.
//!
//! The kernel shows filters to root only. They are small programs, so they are asked, here and not there, what they
//! would answer. To others it tells how many there are: those that we run under ourselves, as in a container, were made
//! for whole programs and answer an error; of more than those nothing is known.

use std::io;

use probing_process::procfs::status::Status;
use probing_process::procfs::threads::Tid;
use probing_proto::process::Pid;

use crate::arch::{AUDIT, MACHINE_CALLS};
use crate::error::{AttachError, Unsupported};
use crate::injection::inject::{self, Target};
use crate::injection::ptrace::{self, Instruction};
use crate::injection::tracee::{HOLDS, Tracee};

/// What the kernel does for an answer, in its upper half.
mod answer {
    pub(super) const KILL_PROCESS: u32 = 0x8000;
    pub(super) const KILL_THREAD: u32 = 0;
    /// A signal that kills who does not expect it.
    pub(super) const TRAP: u32 = 3;
}

/// What code in a new thread, the start of a probe and its end come to, beside [`MACHINE_CALLS`], with arguments that
/// filters ask for.
const CALLS: &[(i64, [u64; 3])] = &[
    (libc::SYS_mmap, [0, 0x1000, READ_RUN]),
    (libc::SYS_mprotect, [0, 0x1000, READ_WRITE]),
    (libc::SYS_munmap, [0; 3]),
    (libc::SYS_clone, [THREAD, 0, 0]),
    (libc::SYS_clone3, [0; 3]),
    (libc::SYS_set_robust_list, [0; 3]),
    (libc::SYS_rseq, [0; 3]),
    (libc::SYS_futex, [0; 3]),
    (libc::SYS_exit, [0; 3]),
    (libc::SYS_gettid, [0; 3]),
    (libc::SYS_getpid, [0; 3]),
    (libc::SYS_geteuid, [0; 3]),
    (libc::SYS_rt_sigprocmask, [2, 0, 0]),
    (libc::SYS_rt_sigpending, [0; 3]),
    (libc::SYS_nanosleep, [0; 3]),
    (libc::SYS_clock_nanosleep, [0; 3]),
    (libc::SYS_clock_gettime, [1, 0, 0]),
    (libc::SYS_madvise, [0; 3]),
    (libc::SYS_openat, [0; 3]),
    (libc::SYS_newfstatat, [0; 3]),
    (libc::SYS_statx, [0; 3]),
    (libc::SYS_getdents64, [0; 3]),
    (libc::SYS_read, [0; 3]),
    (libc::SYS_write, [0; 3]),
    (libc::SYS_close, [0; 3]),
    (libc::SYS_ioctl, [0; 3]),
    (libc::SYS_prctl, [libc::PR_SET_NAME as u64, 0, 0]),
    (libc::SYS_eventfd2, [0; 3]),
    (
        libc::SYS_socket,
        [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0],
    ),
    (libc::SYS_bind, [0; 3]),
    (libc::SYS_listen, [0; 3]),
    (libc::SYS_accept4, [0; 3]),
    (libc::SYS_ppoll, [0; 3]),
    (libc::SYS_recvfrom, [0; 3]),
    (libc::SYS_sendto, [0; 3]),
];
const READ_RUN: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const THREAD: u64 =
    (libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;

/// Refuses a target that entering would kill, or might.
pub(crate) fn check(target: &Target<'_>, status: Status) -> Result<(), AttachError> {
    if status.filters == 0 {
        return Ok(());
    }
    let pid = target.pid;
    let what = match read(target)? {
        Ok(filters) => match killing_call(&filters) {
            None => return Ok(()),
            Some(number) => Unsupported::Filter { number },
        },
        Err(_not_shown) if status.filters <= our_filters() => return Ok(()),
        Err(_not_shown) => Unsupported::UnknownFilter,
    };
    Err(AttachError::NotSupported { pid, what })
}

fn our_filters() -> u32 {
    Status::of(Pid(std::process::id())).map_or(0, |status| status.filters)
}

type Filters = Vec<Vec<Instruction>>;

/// The filters of main. The kernel shows them to root alone.
fn read(target: &Target<'_>) -> Result<io::Result<Filters>, AttachError> {
    let pid = target.pid;
    for _ in 0..HOLDS {
        let main = Tracee::stop(target, Tid::main_of(pid))?;
        target.steps.pass();
        if let Some(filters) = all_of(&main).transpose() {
            return Ok(filters);
        }
    }
    let seen = inject::held_too_long(Tid::main_of(pid));
    Err(AttachError::NoThread { pid, seen })
}

/// `None`: it was held for too long.
fn all_of(stopped: &Tracee<'_>) -> io::Result<Option<Filters>> {
    let mut filters = Vec::new();
    while !stopped.is_late() {
        match ptrace::filter(stopped.tid, filters.len())? {
            Some(filter) => filters.push(filter),
            None => return Ok(Some(filters)),
        }
    }
    Ok(None)
}

/// The first of our calls that one of the filters kills for.
fn killing_call(filters: &[Vec<Instruction>]) -> Option<i64> {
    let machines = MACHINE_CALLS.iter().map(|number| (*number, [0; 3]));
    let mut calls = CALLS.iter().copied().chain(machines);
    let kills = |number: i64, arguments: [u64; 3]| {
        let question = question(number, arguments);
        let answers = filters.iter().map(|filter| ask(filter, &question));
        answers.into_iter().any(is_deadly)
    };
    calls.find_map(|(number, arguments)| kills(number, arguments).then_some(number))
}

fn is_deadly(answer: Option<u32>) -> bool {
    // One that cannot be followed is taken for the worst.
    answer.is_none_or(|answer| {
        matches!(
            answer >> 16,
            answer::KILL_PROCESS | answer::KILL_THREAD | answer::TRAP
        )
    })
}

/// What a filter is shown: number, machine, where it is called from, six arguments.
fn question(number: i64, arguments: [u64; 3]) -> [u32; 16] {
    let mut words = [0; 16];
    words[0] = number as u32;
    words[1] = AUDIT;
    for (index, argument) in arguments.into_iter().enumerate() {
        words[4 + 2 * index] = argument as u32;
        words[5 + 2 * index] = (argument >> 32) as u32;
    }
    words
}

/// Runs a filter: the kernel's old machine for packet filters, which has two registers, 16 words and no way back.
fn ask(filter: &[Instruction], question: &[u32; 16]) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; 16]);
    let mut at = 0;
    loop {
        let Instruction { code, yes, no, k } = *filter.get(at)?;
        at += 1;
        let operand = if code & 8 == 0 { k } else { x };
        let mut jump = |condition: bool| at += usize::from(if condition { yes } else { no });
        match code {
            0x20 => a = *question.get(k as usize / 4)?,
            0x00 => a = k,
            0x01 => x = k,
            0x80 => a = 64, // the length of the question
            0x81 => x = 64,
            0x60 => a = *memory.get(k as usize)?,
            0x61 => x = *memory.get(k as usize)?,
            0x02 => *memory.get_mut(k as usize)? = a,
            0x03 => *memory.get_mut(k as usize)? = x,
            0x07 => x = a,
            0x87 => a = x,
            0x04 | 0x0c => a = a.wrapping_add(operand),
            0x14 | 0x1c => a = a.wrapping_sub(operand),
            0x24 | 0x2c => a = a.wrapping_mul(operand),
            0x34 | 0x3c => a = a.checked_div(operand)?,
            0x44 | 0x4c => a |= operand,
            0x54 | 0x5c => a &= operand,
            0x64 | 0x6c => a = a.checked_shl(operand).unwrap_or(0),
            0x74 | 0x7c => a = a.checked_shr(operand).unwrap_or(0),
            0x84 => a = a.wrapping_neg(),
            0xa4 | 0xac => a ^= operand,
            0x05 => at += k as usize,
            0x15 | 0x1d => jump(a == operand),
            0x25 | 0x2d => jump(a > operand),
            0x35 | 0x3d => jump(a >= operand),
            0x45 | 0x4d => jump(a & operand != 0),
            0x06 => return Some(k),
            0x16 => return Some(a),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOAD: u16 = 0x20;
    const IS: u16 = 0x15;
    const HAS: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const ERROR: u32 = 0x0005_0001;
    const KILL: u32 = 0x8000_0000;

    fn filter(instructions: &[(u16, u8, u8, u32)]) -> Vec<Instruction> {
        let made = |&(code, yes, no, k)| Instruction { code, yes, no, k };
        instructions.iter().map(made).collect()
    }

    fn answering(number: i64, answer: u32) -> Vec<Instruction> {
        filter(&[
            (LOAD, 0, 0, 0),
            (IS, 0, 1, number as u32),
            (RETURN, 0, 0, answer),
            (RETURN, 0, 0, ALLOW),
        ])
    }

    #[test]
    fn a_filter_that_kills_for_one_of_our_calls_is_found_among_others() {
        let harmless = answering(libc::SYS_ptrace, KILL);
        let answers = answering(libc::SYS_socket, ERROR);
        assert_eq!(killing_call(&[harmless.clone(), answers]), None);
        for deadly in [KILL, 0, 0x0003_0000] {
            let kills = answering(libc::SYS_rt_sigpending, deadly);
            let found = killing_call(&[harmless.clone(), kills]);
            assert_eq!(found, Some(libc::SYS_rt_sigpending), "{deadly:x}");
        }
    }

    /// As those of containers do: nobody calls as another machine would.
    #[test]
    fn only_answers_for_this_machine_and_these_arguments_count() {
        let other_machine = filter(&[
            (LOAD, 0, 0, 4),
            (IS, 1, 0, AUDIT),
            (RETURN, 0, 0, KILL),
            (RETURN, 0, 0, ALLOW),
        ]);
        assert_eq!(killing_call(&[other_machine]), None);
        let both_rights = filter(&[
            (LOAD, 0, 0, 0),
            (IS, 0, 4, libc::SYS_mmap as u32),
            (LOAD, 0, 0, 32),
            (HAS, 0, 2, libc::PROT_WRITE as u32),
            (RETURN, 0, 0, KILL),
            (RETURN, 0, 0, ALLOW),
            (RETURN, 0, 0, ALLOW),
        ]);
        assert_eq!(killing_call(&[both_rights]), None);
        let no_code = filter(&[
            (LOAD, 0, 0, 0),
            (IS, 0, 3, libc::SYS_mmap as u32),
            (LOAD, 0, 0, 32),
            (HAS, 0, 1, libc::PROT_EXEC as u32),
            (RETURN, 0, 0, KILL),
            (RETURN, 0, 0, ALLOW),
        ]);
        assert_eq!(killing_call(&[no_code]), Some(libc::SYS_mmap));
    }

    proptest! {
        #[test]
        fn any_filter_comes_to_an_end(words in proptest::collection::vec((0u16..0xb0, 0u8..4, 0u8..4, 0u32..80), 0..64)) {
            killing_call(&[filter(&words)]);
        }
    }
}
