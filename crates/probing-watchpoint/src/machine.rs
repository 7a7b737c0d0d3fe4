//! Registers that the kernel is asked for, and their numbers in DWARF.
//!
//! The kernel gives them in the order of its bits.

#[cfg(target_arch = "x86_64")]
mod this {
    /// ax, bx, cx, dx, si, di, bp, sp, ip, and r8 to r15.
    pub(crate) const WANTED: u64 = 0x00ff_01ff;
    /// Where each of them belongs; the instruction pointer comes behind the others.
    pub(crate) const NUMBERS: &[usize] =
        &[0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15];
    pub(crate) const PROGRAM_COUNTER: usize = 16;
}

#[cfg(target_arch = "aarch64")]
mod this {
    /// x0 to x30, sp, pc.
    pub(crate) const WANTED: u64 = 0x1_ffff_ffff;
    pub(crate) const NUMBERS: &[usize] = &[
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
        25, 26, 27, 28, 29, 30, 31, 32,
    ];
    pub(crate) const PROGRAM_COUNTER: usize = 32;
}

pub(crate) use this::{NUMBERS, PROGRAM_COUNTER, WANTED};
