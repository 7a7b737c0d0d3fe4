//! The registers of a frame, as far as they are known.

use crate::native::machine::{COUNT, PROGRAM_COUNTER, STACK_POINTER};

/// By DWARF number. A thread that sleeps in the kernel shows only where its stack and its code are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) pc: u64,
    values: [Option<u64>; COUNT],
}

impl Registers {
    pub(crate) fn new(pc: u64, stack: u64) -> Self {
        let mut values = [None; COUNT];
        values[STACK_POINTER] = Some(stack);
        Self { pc, values }
    }

    pub(crate) fn value(&self, number: usize) -> Option<u64> {
        if Some(number) == PROGRAM_COUNTER {
            return Some(self.pc);
        }
        *self.values.get(number)?
    }

    pub(crate) fn set(&mut self, number: usize, value: Option<u64>) {
        if let Some(slot) = self.values.get_mut(number) {
            *slot = value;
        }
    }

    pub(crate) fn stack(&self) -> u64 {
        self.values[STACK_POINTER].unwrap_or(0)
    }
}
