//! How to step out of a function: the tables `.eh_frame_hdr` and `.eh_frame` that compilers leave for exceptions.
//!
//! They come from a file that someone else wrote: whatever they say, looking something up ends, and finds it or not.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, Encoding, EndianSlice, Evaluation, EvaluationResult,
    Expression, Format, FrameDescriptionEntry, LittleEndian, Location, RegisterRule, UnwindContext,
    UnwindExpression, UnwindSection as _, Value,
};
use probing_process::memory::u32_at;

use crate::native::register_snapshot::StackCopy;
use crate::native::registers::Registers;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Version, how the table is found, how its length and its rows are written: what every linker writes.
const KNOWN_HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const HEADER: usize = 12;
const ROW: usize = 8;
/// Steps of one expression. Compilers write a dozen.
const MAX_STEPS: u32 = 1000;
const ENCODING: Encoding = Encoding {
    format: Format::Dwarf32,
    version: 4,
    address_size: 8,
};

/// The tables of one file. Addresses are the file's own.
pub(crate) struct UnwindTable {
    header: Vec<u8>,
    header_at: u64,
    frames: Vec<u8>,
    frames_at: u64,
}

/// What is true at one instruction of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Where the function begins.
    pub(crate) function: u64,
    /// The kernel called it to handle a signal: its caller was interrupted, not calling.
    pub(crate) is_signal: bool,
    pub(crate) return_register: usize,
    frame: FrameRule,
    registers: Vec<(usize, Rule)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameRule {
    Offset(usize, i64),
    Expression(UnwindExpression<usize>),
}

/// What a register was in the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The same.
    Same,
    /// Nobody knows. For the return address: there is no caller.
    Undefined,
    SavedAt(i64),
    Offset(i64),
    Register(usize),
    SavedAtExpression(UnwindExpression<usize>),
    Expression(UnwindExpression<usize>),
}

impl UnwindTable {
    /// Where `.eh_frame` begins, given the header and its address.
    pub(crate) fn frames_address(header: &[u8], at: u64) -> Option<u64> {
        let offset = u32_at(header, 4)?.cast_signed();
        let known = header.starts_with(&KNOWN_HEADER);
        known.then(|| at.wrapping_add(4).wrapping_add_signed(offset.into()))
    }

    pub(crate) fn new(header: Vec<u8>, header_at: u64, frames: Vec<u8>, frames_at: u64) -> Self {
        Self {
            header,
            header_at,
            frames,
            frames_at,
        }
    }

    /// What is true at an address; `None` where the tables say nothing.
    pub(crate) fn row(&self, address: u64) -> Option<Row> {
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(self.header_at)
            .set_eh_frame(self.frames_at);
        let fde = self.function(address, &bases)?;
        let mut context = UnwindContext::new();
        let section = self.section();
        let row = fde
            .unwind_info_for_address(&section, &bases, &mut context, address)
            .ok()?;
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                FrameRule::Offset(register.0.into(), *offset)
            }
            CfaRule::Expression(expression) => FrameRule::Expression(*expression),
        };
        let registers = row
            .registers()
            .map(|(register, rule)| (usize::from(register.0), Rule::of(rule)));
        Some(Row {
            function: fde.initial_address(),
            is_signal: fde.is_signal_trampoline(),
            return_register: fde.cie().return_address_register().0.into(),
            frame,
            registers: registers.collect(),
        })
    }

    fn section(&self) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::new(&self.frames, LittleEndian);
        section.set_address_size(8);
        section
    }

    /// The entry of the function at an address, found by halving.
    fn function<'a>(
        &'a self,
        address: u64,
        bases: &BaseAddresses,
    ) -> Option<FrameDescriptionEntry<Slice<'a>>> {
        let rows = self.header.get(HEADER..)?;
        let count = (u32_at(&self.header, 8)? as usize).min(rows.len() / ROW);
        let field = |index: usize, at: usize| {
            let offset = u32_at(rows, index * ROW + at)?.cast_signed();
            Some(self.header_at.wrapping_add_signed(offset.into()))
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if field(middle, 0)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let entry = field(low.checked_sub(1)?, 4)?;
        let offset = usize::try_from(entry.checked_sub(self.frames_at)?).ok()?;
        let section = self.section();
        let fde = section
            .fde_from_offset(bases, offset.into(), EhFrame::cie_from_offset)
            .ok()?;
        fde.contains(address).then_some(fde)
    }

    /// Where the frame of this function ends: the caller's stack pointer.
    pub(crate) fn frame_end(
        &self,
        row: &Row,
        registers: &Registers,
        stack: &StackCopy,
    ) -> Option<u64> {
        match row.frame {
            FrameRule::Offset(register, offset) => {
                Some(registers.value(register)?.wrapping_add_signed(offset))
            }
            FrameRule::Expression(expression) => self.evaluate(expression, None, registers, stack),
        }
    }

    /// What a register was in the caller, given the end of this function's frame.
    pub(crate) fn value(
        &self,
        rule: (usize, Rule),
        end: u64,
        registers: &Registers,
        stack: &StackCopy,
    ) -> Option<u64> {
        match rule.1 {
            Rule::Same => registers.value(rule.0),
            Rule::Undefined => None,
            Rule::SavedAt(offset) => stack.u64_at(end.wrapping_add_signed(offset)),
            Rule::Offset(offset) => Some(end.wrapping_add_signed(offset)),
            Rule::Register(other) => registers.value(other),
            Rule::SavedAtExpression(expression) => {
                stack.u64_at(self.evaluate(expression, Some(end), registers, stack)?)
            }
            Rule::Expression(expression) => self.evaluate(expression, Some(end), registers, stack),
        }
    }

    fn evaluate(
        &self,
        expression: UnwindExpression<usize>,
        initial: Option<u64>,
        registers: &Registers,
        stack: &StackCopy,
    ) -> Option<u64> {
        let expression: Expression<Slice<'_>> = expression.get(&self.section()).ok()?;
        let mut evaluation: Evaluation<Slice<'_>> = expression.evaluation(ENCODING);
        evaluation.set_max_iterations(MAX_STEPS);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut result = evaluation.evaluate().ok()?;
        // Each round is at least one step of the evaluation, of which there is a limited number.
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = registers.value(register.0.into())?;
                    evaluation
                        .resume_with_register(Value::Generic(value))
                        .ok()?
                }
                EvaluationResult::RequiresMemory {
                    address, size: 8, ..
                } => {
                    let value = stack.u64_at(address)?;
                    evaluation.resume_with_memory(Value::Generic(value)).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Some(address),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Row {
    /// The rules that differ from the usual.
    pub(crate) fn registers(&self) -> impl Iterator<Item = (usize, Rule)> {
        self.registers.iter().copied()
    }

    pub(crate) fn rule(&self, number: usize) -> Option<Rule> {
        let mut rules = self.registers();
        rules.find_map(|(register, rule)| (register == number).then_some(rule))
    }
}

impl Rule {
    fn of(rule: &RegisterRule<usize>) -> Self {
        match rule {
            RegisterRule::SameValue => Self::Same,
            RegisterRule::Offset(offset) => Self::SavedAt(*offset),
            RegisterRule::ValOffset(offset) => Self::Offset(*offset),
            RegisterRule::Register(register) => Self::Register(register.0.into()),
            RegisterRule::Expression(expression) => Self::SavedAtExpression(*expression),
            RegisterRule::ValExpression(expression) => Self::Expression(*expression),
            _ => Self::Undefined,
        }
    }
}
