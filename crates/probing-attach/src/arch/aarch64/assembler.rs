//! The few instructions that the stub is made of: numbers in, bytes out, on whatever machine we are built.
//!
//! Jumps to code that is not ours are `ret` through a register: `br` into the middle of a function is a fault where
//! the page asks for landing pads (BTI).

/// Registers by their number in instructions. x19 to x22 survive calls, x9 to x11 and x16 do not.
pub(super) type Register = u32;
/// The context, throughout.
pub(super) const CONTEXT: Register = 19;
/// The number of a system call.
const NUMBER: Register = 8;
const SCRATCH: Register = 9;
const TARGET: Register = 16;
const FRAME_POINTER: Register = 29;
const LINK: Register = 30;
/// In the place of the base of a load or an addition; elsewhere 31 is the register that is always zero.
const STACK: Register = 31;
const ZERO: Register = 31;
/// Bytes that [`Assembler::begin`] takes from the stack.
const SAVED: i32 = 48;

/// A forward jump whose distance is not known yet: where it is.
#[must_use]
pub(super) struct Jump(usize, If);

/// When to jump. An `int` of C is half a register; the other half may be anything.
#[derive(Clone, Copy)]
pub(super) enum If {
    Always,
    Zero(Register),
    NotZero(Register),
    IntNotZero(Register),
}

impl If {
    fn instruction(self, distance: i64) -> u32 {
        let words = (distance / 4) as u32;
        let near = (words & 0x7_ffff) << 5;
        match self {
            Self::Always => 0x1400_0000 | words & 0x3ff_ffff,
            Self::Zero(register) => 0xb400_0000 | near | register,
            Self::NotZero(register) => 0xb500_0000 | near | register,
            Self::IntNotZero(register) => 0x3500_0000 | near | register,
        }
    }
}

pub(super) struct Assembler {
    base: u64,
    pub(super) bytes: Vec<u8>,
}

impl Assembler {
    pub(super) fn new(base: u64) -> Self {
        Self {
            base,
            bytes: Vec::new(),
        }
    }

    pub(super) fn here(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    fn word(&mut self, instruction: u32) {
        self.bytes.extend(instruction.to_le_bytes());
    }

    /// `movz register, …` and a `movk` for every other part that is not zero
    pub(super) fn set(&mut self, register: Register, value: u64) {
        self.word(0xd280_0000 | (value as u32 & 0xffff) << 5 | register);
        for part in 1..4 {
            let bits = (value >> (16 * part)) as u32 & 0xffff;
            if bits != 0 {
                self.word(0xf280_0000 | part << 21 | bits << 5 | register);
            }
        }
    }

    /// `mov to, from`
    pub(super) fn copy(&mut self, to: Register, from: Register) {
        self.word(0xaa00_0000 | from << 16 | ZERO << 5 | to);
    }

    /// `ldr register, [context, at]`
    pub(super) fn load(&mut self, register: Register, at: u32) {
        self.word(0xf940_0000 | (at / 8) << 10 | CONTEXT << 5 | register);
    }

    /// `str register, [context, at]`
    pub(super) fn store(&mut self, register: Register, at: u32) {
        self.store_through(register, CONTEXT, at);
    }

    /// `str register, [base, at]`
    pub(super) fn store_through(&mut self, register: Register, base: Register, at: u32) {
        self.word(0xf900_0000 | (at / 8) << 10 | base << 5 | register);
    }

    pub(super) fn store_value(&mut self, value: u32, at: u32) {
        self.set(SCRATCH, u64::from(value));
        self.store(SCRATCH, at);
    }

    /// `register = context + at`
    pub(super) fn address(&mut self, register: Register, at: u32) {
        self.word(0x9100_0000 | (at & 0xfff) << 10 | CONTEXT << 5 | register);
        if at >> 12 != 0 {
            self.word(0x9140_0000 | (at >> 12) << 10 | register << 5 | register);
        }
    }

    /// `sub register, register, #1`
    pub(super) fn decrement(&mut self, register: Register) {
        self.word(0xd100_0400 | register << 5 | register);
    }

    /// `bic register, register, mask`: the bits that are not in `mask`
    pub(super) fn without(&mut self, register: Register, mask: Register) {
        self.word(0x8a20_0000 | mask << 16 | register << 5 | register);
    }

    /// `register = min(register, limit)`, unsigned: `cmp`, `csel … ls`
    pub(super) fn at_most(&mut self, register: Register, limit: u32) {
        self.set(SCRATCH, u64::from(limit));
        self.word(0xeb00_0000 | SCRATCH << 16 | register << 5 | ZERO);
        self.word(0x9a80_9000 | SCRATCH << 16 | register << 5 | register);
    }

    /// `ldrb w9, [from], #1; strb w9, [to], #1`
    pub(super) fn copy_byte(&mut self, to: Register, from: Register) {
        self.word(0x3840_1400 | from << 5 | SCRATCH);
        self.word(0x3800_1400 | to << 5 | SCRATCH);
    }

    /// `mov sp, register`
    pub(super) fn set_stack(&mut self, register: Register) {
        self.word(0x9100_0000 | register << 5 | STACK);
    }

    /// `dmb ish`: what was stored is seen before what follows is read.
    pub(super) fn barrier(&mut self) {
        self.word(0xd503_3bbf);
    }

    /// `msr fpcr, xzr; msr fpsr, xzr`: as a fresh thread has them.
    pub(super) fn fresh_floats(&mut self) {
        self.word(0xd51b_4400 | ZERO);
        self.word(0xd51b_4420 | ZERO);
    }

    /// Start of a function: what it must keep goes to the stack, with the record that unwinders look for.
    pub(super) fn begin(&mut self) {
        const STORE: u32 = 0xa900_0000;
        const MOVE_AND_STORE: u32 = 0xa980_0000;
        self.pair(MOVE_AND_STORE, (FRAME_POINTER, LINK), -SAVED);
        self.word(0x9100_0000 | STACK << 5 | FRAME_POINTER); // mov x29, sp
        self.pair(STORE, (19, 20), 16);
        self.pair(STORE, (21, 22), 32);
    }

    /// Undoes [`begin`](Self::begin); what returns comes after it.
    pub(super) fn end(&mut self) {
        const LOAD: u32 = 0xa940_0000;
        const LOAD_AND_MOVE: u32 = 0xa8c0_0000;
        self.pair(LOAD, (21, 22), 32);
        self.pair(LOAD, (19, 20), 16);
        self.pair(LOAD_AND_MOVE, (FRAME_POINTER, LINK), SAVED);
    }

    /// Two registers to or from the stack.
    fn pair(&mut self, opcode: u32, registers: (Register, Register), distance: i32) {
        let seven_bits = (distance / 8).cast_unsigned() & 0x7f;
        self.word(opcode | seven_bits << 15 | registers.1 << 10 | STACK << 5 | registers.0);
    }

    /// `ret`
    pub(super) fn give_back(&mut self) {
        self.word(0xd65f_0000 | LINK << 5);
    }

    pub(super) fn call(&mut self, function: u64) {
        self.set(TARGET, function);
        self.word(0xd63f_0000 | TARGET << 5); // blr
    }

    pub(super) fn system_call(&mut self, number: u32) {
        self.set(NUMBER, u64::from(number));
        self.word(0xd400_0001);
    }

    /// The same through code elsewhere, which then returns to our caller.
    pub(super) fn system_call_and_return(&mut self, number: u32, gadget: u64) {
        self.set(NUMBER, u64::from(number));
        self.set(TARGET, gadget);
        self.word(0xd65f_0000 | TARGET << 5); // ret x16
    }

    pub(super) fn jump(&mut self, condition: If) -> Jump {
        let jump = Jump(self.bytes.len(), condition);
        self.word(0);
        jump
    }

    pub(super) fn land(&mut self, jump: Jump) {
        let Jump(at, condition) = jump;
        let distance = (self.bytes.len() - at) as i64;
        let instruction = condition.instruction(distance);
        self.bytes[at..at + 4].copy_from_slice(&instruction.to_le_bytes());
    }

    pub(super) fn jump_back(&mut self, condition: If, to: u64) {
        let distance = to.wrapping_sub(self.here()).cast_signed();
        self.word(condition.instruction(distance));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words as a disassembler reads them: see the text beside each.
    #[track_caller]
    fn check(write: impl FnOnce(&mut Assembler), words: &[u32]) {
        let mut code = Assembler::new(0x10_0000);
        write(&mut code);
        let written: Vec<u32> = code
            .bytes
            .chunks(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(written, words, "{written:x?} is not {words:x?}");
    }

    #[test]
    fn values_are_made_of_their_parts() {
        check(|code| code.set(0, 0), &[0xd280_0000]); // mov x0, #0
        check(|code| code.set(8, 222), &[0xd280_1bc8]); // mov x8, #222
        check(
            |code| code.set(16, 0xffff_8000_1234_0000), // mov, movk lsl 16, movk lsl 32, movk lsl 48
            &[0xd280_0010, 0xf2a2_4690, 0xf2d0_0010, 0xf2ff_fff0],
        );
        check(|code| code.set(1, 1 << 32), &[0xd280_0001, 0xf2c0_0021]);
        check(|code| code.copy(20, 0), &[0xaa00_03f4]); // mov x20, x0
        check(|code| code.decrement(20), &[0xd100_0694]); // sub x20, x20, #1
        check(|code| code.without(9, 10), &[0x8a2a_0129]); // bic x9, x9, x10
        check(
            |code| code.at_most(2, 0x1000), // mov x9, #4096; cmp x2, x9; csel x2, x2, x9, ls
            &[0xd282_0009, 0xeb09_005f, 0x9a89_9042],
        );
    }

    #[test]
    fn memory_is_reached_through_the_context() {
        check(|code| code.load(9, 0x140), &[0xf940_a269]); // ldr x9, [x19, #320]
        check(|code| code.store(0, 0x128), &[0xf900_9660]); // str x0, [x19, #296]
        check(|code| code.store_through(9, 10, 568), &[0xf901_1d49]); // str x9, [x10, #568]
        check(
            |code| code.store_value(3, 0x138), // mov x9, #3; str x9, [x19, #312]
            &[0xd280_0069, 0xf900_9e69],
        );
        check(|code| code.address(1, 0x198), &[0x9106_6261]); // add x1, x19, #408
        check(
            |code| code.address(0, 0x5008), // add x0, x19, #8; add x0, x0, #5, lsl #12
            &[0x9100_2260, 0x9140_1400],
        );
        check(
            |code| code.copy_byte(0, 1), // ldrb w9, [x1], #1; strb w9, [x0], #1
            &[0x3840_1429, 0x3800_1409],
        );
        check(Assembler::barrier, &[0xd503_3bbf]); // dmb ish
    }

    #[test]
    fn functions_keep_what_they_must() {
        check(
            // stp x29, x30, [sp, #-48]!; mov x29, sp; stp x19, x20, [sp, #16]; stp x21, x22, [sp, #32]
            Assembler::begin,
            &[0xa9bd_7bfd, 0x9100_03fd, 0xa901_53f3, 0xa902_5bf5],
        );
        check(
            // ldp x21, x22, [sp, #32]; ldp x19, x20, [sp, #16]; ldp x29, x30, [sp], #48
            Assembler::end,
            &[0xa942_5bf5, 0xa941_53f3, 0xa8c3_7bfd],
        );
        check(Assembler::give_back, &[0xd65f_03c0]); // ret
        check(|code| code.set_stack(9), &[0x9100_013f]); // mov sp, x9
        check(Assembler::fresh_floats, &[0xd51b_441f, 0xd51b_443f]); // msr fpcr, xzr; msr fpsr, xzr
    }

    #[test]
    fn calls_go_through_registers() {
        check(|code| code.call(0x4000), &[0xd288_0010, 0xd63f_0200]); // mov x16, …; blr x16
        check(|code| code.system_call(139), &[0xd280_1168, 0xd400_0001]); // mov x8, #139; svc #0
        check(
            |code| code.system_call_and_return(215, 0x4000), // mov x8, …; mov x16, …; ret x16
            &[0xd280_1ae8, 0xd288_0010, 0xd65f_0200],
        );
    }

    #[test]
    fn jumps_land_where_they_are_told() {
        for (condition, forward) in [
            (If::Always, 0x1400_0002),        // b
            (If::Zero(9), 0xb400_0049),       // cbz x9
            (If::NotZero(0), 0xb500_0040),    // cbnz x0
            (If::IntNotZero(0), 0x3500_0040), // cbnz w0
        ] {
            check(
                |code| {
                    let jump = code.jump(condition);
                    code.barrier();
                    code.land(jump);
                },
                &[forward, 0xd503_3bbf],
            );
        }
        for (condition, back) in [(If::Always, 0x17ff_ffff), (If::NotZero(20), 0xb5ff_fff4)] {
            check(
                |code| {
                    let start = code.here();
                    code.barrier();
                    code.jump_back(condition, start);
                },
                &[0xd503_3bbf, back],
            );
        }
    }
}
