//! `x86_64`: a call leaves the return address on the stack.

use libc::user_regs_struct;

use crate::native::registers::Registers;
use crate::thread_hold::ends_by_a_stop;

pub(crate) const STACK_POINTER: usize = 7;
pub(crate) const FRAME_POINTER: usize = 6;
/// In expressions.
pub(crate) const PROGRAM_COUNTER: Option<usize> = Some(16);
/// Registers that count: the general ones.
pub(crate) const COUNT: usize = 16;
/// What a function gives back as it found it: rbx, rbp, r12 to r15.
pub(crate) const KEPT: &[usize] = &[3, 6, 12, 13, 14, 15];
/// Bytes of the instruction that enters the kernel.
const SYSCALL: u64 = 2;
const EINTR: u64 = (-4_i64).cast_unsigned();

/// A return address as it was before it was signed.
pub(crate) fn unsigned(address: u64) -> u64 {
    address
}

pub(crate) fn registers(regs: &user_regs_struct) -> Registers {
    let in_order = [
        regs.rax, regs.rdx, regs.rcx, regs.rbx, regs.rsi, regs.rdi, regs.rbp, regs.rsp, regs.r8,
        regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
    ];
    let mut registers = Registers::new(regs.rip, regs.rsp);
    for (number, value) in in_order.into_iter().enumerate() {
        registers.set(number, Some(value));
    }
    registers
}

/// The registers that make its system call again, if the stop has just ended that with EINTR.
pub(crate) fn called_again(regs: &user_regs_struct) -> Option<user_regs_struct> {
    let call = regs.orig_rax.cast_signed();
    // To connect again is something else.
    let can_be = ends_by_a_stop(call) && call != libc::SYS_connect;
    (regs.rax == EINTR && can_be).then(|| user_regs_struct {
        rax: regs.orig_rax,
        rip: regs.rip.wrapping_sub(SYSCALL),
        ..*regs
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_the_stop_ended_is_made_again() {
        // SAFETY: the structure consists of numbers, for which 0 is a value.
        #[expect(unsafe_code, reason = "a C structure has no default")]
        let nothing: user_regs_struct = unsafe { std::mem::zeroed() };
        let stopped = |call: i64, result: u64| user_regs_struct {
            orig_rax: call.cast_unsigned(),
            rax: result,
            rip: 0x1002,
            ..nothing
        };
        let again = called_again(&stopped(libc::SYS_epoll_wait, EINTR)).unwrap();
        let call = libc::SYS_epoll_wait.cast_unsigned();
        assert_eq!((again.rax, again.rip), (call, 0x1000));
        for (call, result) in [
            (libc::SYS_epoll_wait, 1),
            (libc::SYS_read, EINTR),
            (libc::SYS_connect, EINTR),
            (-1, EINTR),
        ] {
            assert!(called_again(&stopped(call, result)).is_none(), "{call}");
        }
    }
}
