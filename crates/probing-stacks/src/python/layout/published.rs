//! CPython 3.13 and later: the table of offsets at the start of `_PyRuntime`.
//!
//! The table (`_Py_DebugOffsets`, `internal/pycore_debug_offsets.h`) is a list of 8-byte numbers that differs between
//! minor versions only. What it says is checked against bounds, like everything that is read.

use crate::memory::{Memory, u64_at};
use crate::python::layout::{
    Builtins, Class, Code, Coroutine, CurrentFrame, Frame, FrameOffset, Gil, GilOffset,
    Instruction, Interpreter, Layout, Object, StackTop, Thread, Variables, coroutine,
};

const COOKIE: &[u8] = b"xdebugpy";
const TABLE: usize = 100 * 8;
/// An interpreter's state has a few hundred kilobytes.
const LARGEST: u64 = 16 << 20;
const LARGEST_OBJECT: u64 = 64 << 10;
/// Not published, but as in 3.12: both follow the frame's code, its caller and its function.
const GLOBALS: usize = 24;
const MAPPING: usize = 40;
/// The flags of code follow its header, its size, and three pointers.
const AFTER_CODE_SIZE: usize = 32;

/// Where groups of fields start, counted in numbers.
struct GroupOffsets {
    modules: usize,
    gil: usize,
    thread: usize,
    frame: usize,
    code: usize,
    object: usize,
    dict: usize,
    bytes: usize,
    text: usize,
    /// 3.13 does not say it.
    coroutine: Option<usize>,
}

const PLACES_3_13: GroupOffsets = GroupOffsets {
    modules: 11,
    gil: 14,
    thread: 19,
    frame: 28,
    code: 34,
    object: 44,
    dict: 56,
    bytes: 64,
    text: 67,
    coroutine: None,
};

const PLACES_3_14: GroupOffsets = GroupOffsets {
    modules: 12,
    gil: 15,
    thread: 22,
    frame: 31,
    code: 39,
    object: 50,
    dict: 66,
    bytes: 74,
    text: 77,
    coroutine: Some(83),
};

pub(super) fn read(
    version: (u8, u8),
    memory: &(impl Memory + ?Sized),
    runtime: u64,
) -> Option<Layout> {
    let table = memory.read(runtime, TABLE)?;
    let hex = u64_at(&table, 8)?;
    let says = ((hex >> 24) as u8, (hex >> 16) as u8);
    if !table.starts_with(COOKIE) || says != version {
        return None;
    }
    parse(version, &table)
}

fn parse(version: (u8, u8), table: &[u8]) -> Option<Layout> {
    let at = match version {
        (3, 13) => PLACES_3_13,
        _ => PLACES_3_14,
    };
    let large = |index: usize| u64_at(table, index * 8).filter(|offset| *offset < LARGEST);
    let small = |index: usize| {
        let offset = large(index).filter(|offset| *offset < LARGEST_OBJECT);
        offset.map(|offset| offset as usize)
    };
    let free_threaded = u64_at(table, 16)? != 0;
    let gil = large(at.gil + 1)?;
    let in_gil = |index: usize| {
        let offset = large(index)?.checked_sub(gil).filter(|inside| *inside < 64);
        offset.map(|offset| offset as usize)
    };
    Some(Layout {
        version,
        free_threaded,
        interpreters: large(5)?,
        interpreter: Interpreter {
            id: large(7)?,
            next: large(8)?,
            threads: large(9)?,
            modules: large(at.modules)?,
        },
        gil: Gil {
            place: GilOffset::Pointer(large(at.gil)?),
            locked: in_gil(at.gil + 3)?,
            holder: in_gil(at.gil + 4)?,
        },
        thread: Thread {
            next: small(at.thread + 2)?,
            interpreter: small(at.thread + 3)?,
            frame: CurrentFrame::Direct(small(at.thread + 4)?),
            ident: small(at.thread + 5)?,
            native_id: Some(small(at.thread + 6)?),
            chunk: Some(small(at.thread + 7)?),
            runs: None,
        },
        frame: Frame {
            previous: small(at.frame + 1)?,
            code: small(at.frame + 2)?,
            locals: small(at.frame + 4)?,
            globals: GLOBALS,
            mapping: MAPPING,
            instruction: Instruction::Pointer(small(at.frame + 3)?),
            owner: Some(small(at.frame + 5)?),
            first_shim_owner: 3,
            is_entry: None,
        },
        coroutine: match at.coroutine {
            Some(group) => Coroutine {
                frame: FrameOffset::Inside(small(group + 2)?),
                state: small(group + 3)?,
                stack: StackTop::Pointer(small(at.frame + 6)?),
                // Its short name comes first.
                name: small(group + 1)? + 8,
            },
            None => coroutine(72),
        },
        code: Code {
            file: small(at.code + 1)?,
            name: small(at.code + 3)?,
            lines: small(at.code + 4)?,
            first_line: small(at.code + 5)?,
            instructions: Some(small(at.code + 9)?),
            flags: small(at.object)? + AFTER_CODE_SIZE,
            variables: Variables::One {
                names: small(at.code + 7)?,
                kinds: small(at.code + 8)?,
            },
        },
        object: Object {
            kind: small(at.object + 1)?,
            size: small(at.bytes + 1)?,
            bytes: small(at.bytes + 2)?,
            text_state: small(at.text + 1)?,
            text_state_shift: if free_threaded { 8 } else { 2 },
            ascii_text: small(at.text + 3)?,
            // After the fields of ASCII text: the length in UTF-8 and a pointer to it.
            other_text: small(at.text + 3)? + 16,
            wide: None,
        },
        builtins: Builtins {
            header: small(at.object)?,
            class: Class {
                size: small(at.object + 2)?,
                name: small(at.object + 3)?,
                flags: small(at.object + 5)?,
            },
            tuple_items: small(at.object + 7)?,
            list_items: small(at.object + 10)?,
            dict_keys: small(at.dict + 1)?,
            dict_values: small(at.dict + 2)?,
            float_value: small(at.dict + 4)?,
            int_size: small(at.dict + 6)?,
            int_digits: small(at.dict + 7)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_table_is_survived(table in prop::collection::vec(prop_oneof![0u64..200_000, any::<u64>()], 0..100)) {
            let bytes: Vec<u8> = table.iter().flat_map(|number| number.to_le_bytes()).collect();
            for version in [(3, 13), (3, 14)] {
                if let Some(layout) = parse(version, &bytes) {
                    prop_assert!(layout.thread.size() <= LARGEST_OBJECT as usize + 8);
                    prop_assert!(layout.frame.size() <= LARGEST_OBJECT as usize + 8);
                }
            }
        }
    }
}
