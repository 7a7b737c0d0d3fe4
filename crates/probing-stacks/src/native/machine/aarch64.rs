//! aarch64: a call leaves the return address in register 30.

use libc::user_regs_struct;

use crate::native::registers::Registers;

pub(crate) const STACK_POINTER: usize = 31;
pub(crate) const FRAME_POINTER: usize = 29;
/// In expressions.
pub(crate) const PROGRAM_COUNTER: Option<usize> = None;
/// Registers that count: x0 to x30, the stack pointer.
pub(crate) const COUNT: usize = 32;
/// What a function gives back as it found it, x19 to x29, and the link register, which most save.
pub(crate) const KEPT: &[usize] = &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30];
const ADDRESS: u64 = (1 << 48) - 1;

/// A return address as it was before it was signed.
pub(crate) fn unsigned(address: u64) -> u64 {
    address & ADDRESS
}

pub(crate) fn registers(regs: &user_regs_struct) -> Registers {
    let mut registers = Registers::new(regs.pc, regs.sp);
    for (number, value) in regs.regs.into_iter().enumerate() {
        registers.set(number, Some(value));
    }
    registers
}

/// The first argument, overwritten by EINTR, cannot be had back here: nothing is called again.
pub(crate) fn called_again(_regs: &user_regs_struct) -> Option<user_regs_struct> {
    None
}
