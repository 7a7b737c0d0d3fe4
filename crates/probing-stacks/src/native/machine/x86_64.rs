//! `x86_64`: a call leaves the return address on the stack.

use libc::user_regs_struct;

use crate::native::registers::Registers;
use crate::stop::ends_by_a_stop;

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
