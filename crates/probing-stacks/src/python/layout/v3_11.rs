//! CPython 3.11.
//!
//! Printed by a C program of `offsetof`s compiled with `-DPy_BUILD_CORE` against the headers of 3.11.7
//! (`internal/pycore_runtime.h`, `internal/pycore_interp.h`, `internal/pycore_frame.h`).

use crate::python::layout::{
    Builtins, Code, CurrentFrame, Frame, Gil, GilOffset, Instruction, Interpreter, Layout, Runs,
    Thread, Variables, coroutine, object,
};

pub(super) const LAYOUT: Layout = Layout {
    version: (3, 11),
    free_threaded: false,
    interpreters: 40,
    interpreter: Interpreter {
        id: 48,
        next: 0,
        threads: 16,
        modules: 888,
    },
    gil: Gil {
        place: GilOffset::Runtime(360),
        holder: 8,
        locked: 16,
    },
    thread: Thread {
        next: 8,
        interpreter: 16,
        ident: 152,
        native_id: Some(160),
        frame: CurrentFrame::Through {
            pointer: 56,
            inside: 8,
        },
        chunk: Some(296),
        runs: Some(Runs {
            newest: 56,
            previous: 16,
        }),
    },
    frame: Frame {
        previous: 48,
        code: 32,
        locals: 72,
        globals: 8,
        mapping: 24,
        instruction: Instruction::Pointer(56),
        owner: Some(69),
        first_shim_owner: u8::MAX,
        is_entry: Some(68),
    },
    coroutine: coroutine(80),
    code: Code {
        file: 112,
        name: 128,
        lines: 136,
        first_line: 72,
        instructions: Some(184),
        flags: 48,
        variables: Variables::One {
            names: 96,
            kinds: 104,
        },
    },
    object: object(11),
    builtins: Builtins::of(11),
};
