//! CPython 3.12.
//!
//! Printed by a C program of `offsetof`s compiled with `-DPy_BUILD_CORE` against the headers of 3.12.1
//! (`internal/pycore_runtime.h`, `internal/pycore_interp.h`, `internal/pycore_frame.h`).

use crate::python::layout::{
    Builtins, Code, CurrentFrame, Frame, Gil, GilOffset, Instruction, Interpreter, Layout, Thread,
    Variables, coroutine, object,
};

pub(super) const LAYOUT: Layout = Layout {
    version: (3, 12),
    free_threaded: false,
    interpreters: 40,
    interpreter: Interpreter {
        id: 8,
        next: 0,
        threads: 72,
        modules: 944,
    },
    gil: Gil {
        place: GilOffset::Pointer(384),
        holder: 8,
        locked: 16,
    },
    thread: Thread {
        next: 8,
        interpreter: 16,
        ident: 136,
        native_id: Some(144),
        frame: CurrentFrame::Through {
            pointer: 56,
            inside: 0,
        },
        chunk: Some(232),
        runs: None,
    },
    frame: Frame {
        previous: 8,
        code: 0,
        locals: 72,
        globals: 24,
        mapping: 40,
        instruction: Instruction::Pointer(56),
        owner: Some(70),
        first_shim_owner: 3,
        is_entry: None,
    },
    coroutine: coroutine(72),
    code: Code {
        file: 112,
        name: 128,
        lines: 136,
        first_line: 68,
        instructions: Some(192),
        flags: 48,
        variables: Variables::One {
            names: 96,
            kinds: 104,
        },
    },
    object: object(12),
    builtins: Builtins::of(12),
};
