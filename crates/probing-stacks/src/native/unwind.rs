//! Follows a thread's calls outwards over a copy of its stack.
//!
//! Each step is what the compiler wrote down for it (`table`). Code without such notes (a JIT's) is stepped over by its
//! frame pointer, if that leads to something that can be a caller.

use probing_process::memory::Memory;

use crate::native::machine::{self, FRAME_POINTER, KEPT, STACK_POINTER};
use crate::native::modules::Modules;
use crate::native::register_snapshot::Pose;
use crate::native::registers::Registers;
use crate::native::table::Rule;

/// More calls than a copy of a stack can hold of functions that do something.
const MAX_FRAMES: usize = 65_536;

/// A function that has been called and has not returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// Inside the instruction being executed: the call, or where it was interrupted.
    pub(crate) address: u64,
    /// Its part of the stack.
    pub(crate) start: u64,
    /// Where the part of its caller begins.
    pub(crate) end: u64,
}

/// The calls of a thread, innermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) calls: Vec<Call>,
    pub(crate) end: CallsEnd,
}

/// Why there is no further call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallsEnd {
    /// It is the first function of the thread.
    Outermost,
    /// A register is needed that only a thread that is held tells.
    UnknownRegister,
    /// Nobody wrote down how to go on, or it leads nowhere.
    Lost,
    /// The copy of the stack is at its end.
    Beyond,
}

/// The caller, as far as it is known.
struct Caller {
    registers: Registers,
    /// It was interrupted by a signal, not calling.
    interrupted: bool,
}

pub(crate) fn follow<M: Memory + ?Sized>(modules: &mut Modules<'_, M>, pose: &Pose) -> Calls {
    let (mut registers, mut calls) = (pose.registers, Vec::new());
    let mut interrupted = true;
    while calls.len() < MAX_FRAMES {
        // A return address may be the first of the next function.
        let address = registers.pc.wrapping_sub(u64::from(!interrupted));
        let start = registers.stack();
        let caller = step(modules, pose, &registers, address);
        let end = match &caller {
            Ok(caller) => caller.registers.stack(),
            Err(_) => u64::MAX,
        };
        calls.push(Call {
            address,
            start,
            end,
        });
        match caller {
            // Stacks grow downwards; only a function that has not saved anything yet may have no part of it.
            Ok(_) if end < start || (end == start && calls.len() > 1) => {
                return ended(calls, CallsEnd::Lost);
            }
            Ok(caller) => (registers, interrupted) = (caller.registers, caller.interrupted),
            Err(end) => return ended(calls, end),
        }
    }
    ended(calls, CallsEnd::Lost)
}

fn ended(mut calls: Vec<Call>, end: CallsEnd) -> Calls {
    // How far the last one reaches is not known.
    if let Some(last) = calls.last_mut()
        && end != CallsEnd::Outermost
    {
        last.end = last.start;
    }
    Calls { calls, end }
}

fn step<M: Memory + ?Sized>(
    modules: &mut Modules<'_, M>,
    pose: &Pose,
    registers: &Registers,
    address: u64,
) -> Result<Caller, CallsEnd> {
    let Some((module, row)) = modules.row(address) else {
        return by_frame_pointer(modules, pose, registers);
    };
    let Some(table) = module.table() else {
        return Err(CallsEnd::Lost);
    };
    let Some(end) = table.frame_end(&row, registers, &pose.stack) else {
        return Err(CallsEnd::UnknownRegister);
    };
    let returns = row.rule(row.return_register);
    if returns == Some(Rule::Undefined) {
        return Err(CallsEnd::Outermost);
    }
    let returns = (row.return_register, returns.unwrap_or(Rule::Same));
    let Some(pc) = table.value(returns, end, registers, &pose.stack) else {
        let unknown = matches!(returns.1, Rule::Same | Rule::Register(_));
        return Err(if unknown {
            CallsEnd::UnknownRegister
        } else {
            CallsEnd::Beyond
        });
    };
    let pc = machine::unsigned(pc);
    // Functions that start a thread may have 0 for a caller.
    if pc == 0 {
        return Err(CallsEnd::Outermost);
    }
    let mut caller = Registers::new(pc, end);
    for number in KEPT {
        caller.set(*number, registers.value(*number));
    }
    for (number, rule) in row.registers() {
        if number != row.return_register || KEPT.contains(&number) {
            caller.set(
                number,
                table.value((number, rule), end, registers, &pose.stack),
            );
        }
    }
    if caller.value(STACK_POINTER).is_none() {
        return Err(CallsEnd::Lost);
    }
    Ok(Caller {
        registers: caller,
        interrupted: row.is_signal,
    })
}

/// Code that nobody wrote tables for: most such code keeps a pointer to where its caller's was saved.
fn by_frame_pointer<M: Memory + ?Sized>(
    modules: &Modules<'_, M>,
    pose: &Pose,
    registers: &Registers,
) -> Result<Caller, CallsEnd> {
    let Some(pointer) = registers.value(FRAME_POINTER) else {
        return Err(CallsEnd::UnknownRegister);
    };
    let saved = pose.stack.u64_at(pointer);
    let returns = pose.stack.u64_at(pointer.wrapping_add(8));
    let (Some(saved), Some(returns)) = (saved, returns) else {
        return Err(CallsEnd::Lost);
    };
    let pc = machine::unsigned(returns);
    if pointer < registers.stack() || !modules.is_code(pc) {
        return Err(CallsEnd::Lost);
    }
    let end = pointer.wrapping_add(16);
    let mut caller = Registers::new(pc, end);
    caller.set(FRAME_POINTER, Some(saved));
    Ok(Caller {
        registers: caller,
        interrupted: false,
    })
}
