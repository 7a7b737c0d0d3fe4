//! The kernel's `struct rt_sigframe`, as it would write it itself before a signal handler.
//!
//! It lies on the thread's stack until the thread is home: there is no jump in user mode that leaves every register as
//! it was, so the stub goes home by `rt_sigreturn` as well, which puts back registers, floats and the signal mask.
//! Nobody writes there meanwhile: the stub has its own stack, and all signals are blocked.

use crate::arch::Frame;
use crate::arch::aarch64::{Home, Regs, call_of};

/// `siginfo`, then `ucontext` with its 4096 bytes of records.
const SIZE: u64 = 4688;
/// Words before the registers.
mod word {
    /// An invalid flag on purpose: then the kernel leaves the thread's alternate stack as it is.
    pub(super) const STACK_FLAGS: usize = 19;
    pub(super) const MASK: usize = 21;
    pub(super) const REGISTERS: usize = 39;
    pub(super) const SP: usize = REGISTERS + 31;
    pub(super) const PC: usize = SP + 1;
    pub(super) const PSTATE: usize = SP + 2;
    pub(super) const RECORDS: usize = 74;
}
const NO_ALTERNATE_STACK: u64 = 0x7fff;
/// The record of the 128-bit registers. What SVE has beyond them does not survive the system call that a thread must
/// be in to be borrowed; the end of the records is all zero.
const FLOATS: u32 = 0x4650_8001;
const FLOATS_SIZE: u32 = 528;
/// The registers in the kernel's set for a debugger, which has the two control words behind them.
const FLOAT_REGISTERS: usize = 512;

/// Where the frame has the result register and the program counter.
pub(super) const RESULT_AT: u32 = 8 * word::REGISTERS as u32;
pub(super) const PC_AT: u32 = 8 * word::PC as u32;

/// Where the frame of a thread with this stack pointer is. There is no red zone.
pub(super) fn address(regs: &Regs) -> u64 {
    regs.sp.wrapping_sub(SIZE) & !15
}

/// `None` if the thread is in no system call that can be made again: its vector registers would not survive ours.
/// The way to the kernel is in a register, not in the frame.
pub(crate) fn frame(home: &Home, mask: u64, vectors: &[u8], _restorer: u64) -> Option<Frame> {
    let regs = &home.regs;
    call_of(regs)?;
    let (registers, control) = vectors.split_at_checked(FLOAT_REGISTERS)?;
    let mut words = [0; word::RECORDS];
    words[word::STACK_FLAGS] = NO_ALTERNATE_STACK;
    words[word::MASK] = mask;
    words[word::REGISTERS..word::SP].copy_from_slice(&regs.x);
    words[word::REGISTERS + 8] = home.fallback_result;
    words[word::SP] = regs.sp;
    words[word::PC] = regs.pc;
    words[word::PSTATE] = regs.pstate;

    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(FLOATS.to_le_bytes());
    bytes.extend(FLOATS_SIZE.to_le_bytes());
    bytes.extend(control.get(..8)?);
    bytes.extend(registers);
    bytes.resize(SIZE as usize, 0);
    Some(Frame {
        address: address(regs),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::aarch64::tests::stopped_in;
    use crate::arch::aarch64::{home, numbers};

    fn word(frame: &Frame, at: usize) -> u64 {
        u64::from_le_bytes(frame.bytes[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn a_frame_has_everything_where_the_kernel_looks() {
        let mut regs = stopped_in(numbers::READ);
        regs.sp = 0x7fff_0018;
        regs.x[30] = 0x3030;
        let mut vectors: Vec<u8> = (0..=255).cycle().take(FLOAT_REGISTERS).collect();
        vectors.extend(0x1111_2222_3333_4444_u64.to_le_bytes());
        vectors.extend([0; 8]);
        let home = home(&regs, None, None, |_| None);
        let frame = frame(&home, 0x55, &vectors, 0x1000).unwrap();
        assert_eq!(frame.bytes.len(), 4688);
        assert!(frame.address.is_multiple_of(16) && frame.address + SIZE <= regs.sp);
        for (at, value) in [
            (168, 0x55), // uc_sigmask
            (312, regs.x[0]),
            (312 + 8 * 8, numbers::READ as u64),
            (312 + 30 * 8, 0x3030),
            (560, regs.sp),
            (568, regs.pc),
            (576, regs.pstate),
            (592, 0x0000_0210_4650_8001), // magic and length of the record
            (600, 0x1111_2222_3333_4444), // fpsr, fpcr
            (608, 0x0706_0504_0302_0100), // q0
            (592 + 528, 0),               // the end of the records
        ] {
            assert_eq!(word(&frame, at), value, "at {at}");
        }
        assert_eq!((RESULT_AT, PC_AT), (312, 568));
    }

    #[test]
    fn who_is_in_no_call_gets_no_frame() {
        let mut regs = stopped_in(numbers::READ);
        regs.called = 0;
        let home = home(&regs, None, None, |_| None);
        assert!(frame(&home, 0, &[0; 528], 0x1000).is_none());
    }
}
