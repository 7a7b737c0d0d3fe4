//! CPython 3.10.
//!
//! Printed by a C program of `offsetof`s compiled with `-DPy_BUILD_CORE` against the headers of 3.10.13
//! (`internal/pycore_runtime.h`, `internal/pycore_interp.h`, `cpython/frameobject.h`). Only fields that kept their
//! place in the releases looked at of 3.10 are used.

use crate::python::layout::{
    Builtins, Code, Coroutine, CurrentFrame, Frame, FrameOffset, Gil, GilOffset, Instruction,
    Interpreter, Layout, Runs, StackTop, Thread, Variables, object,
};

pub(super) const LAYOUT: Layout = Layout {
    version: (3, 10),
    free_threaded: false,
    interpreters: 32,
    interpreter: Interpreter {
        id: 24,
        next: 0,
        threads: 8,
        modules: 856,
    },
    gil: Gil {
        place: GilOffset::Runtime(352),
        holder: 8,
        locked: 16,
    },
    thread: Thread {
        next: 8,
        interpreter: 16,
        ident: 176,
        native_id: None,
        frame: CurrentFrame::Direct(24),
        chunk: None,
        runs: Some(Runs {
            newest: 48,
            previous: 8,
        }),
    },
    frame: Frame {
        previous: 24,
        code: 32,
        locals: 352,
        globals: 48,
        mapping: 56,
        instruction: Instruction::Index(96),
        owner: None,
        first_shim_owner: u8::MAX,
        is_entry: None,
    },
    coroutine: Coroutine {
        frame: FrameOffset::Pointer(16),
        state: 108,
        stack: StackTop::Depth {
            base: 64,
            count: 80,
        },
        name: 48,
    },
    code: Code {
        file: 104,
        name: 112,
        lines: 120,
        first_line: 40,
        instructions: None,
        flags: 36,
        variables: Variables::Three([72, 88, 80]),
    },
    object: object(10),
    builtins: Builtins::of(10),
};
