//! The frames of the calling thread, walked from inside an allocator.
//!
//! An allocator may be called in the middle of anything: while a frame is being made, or by `tracemalloc` with its lock held.
//! Asking the interpreter for a frame makes an object of it from 3.11 on, so that is not done: what it keeps of frames is
//! read, by offsets. From 3.13 on the interpreter publishes them; before, they are those of its headers. They are tried on
//! a stack that is known before they are believed.
#![expect(unsafe_code, reason = "reads frames by offsets")]

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::ffi::{self, PyFrameObject, PyObject, PyThreadState, PyTypeObject};
use pyo3::prelude::*;

use crate::python::symbols::found;

/// Where things are. All offsets are in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// In a thread's state: its frame, or a pointer to what has its frame at the second offset.
    thread: (usize, Option<usize>),
    previous: usize,
    code: usize,
    instruction: usize,
    /// Who has the frame, and from which number on it is none of Python code.
    owner: usize,
    first_shim: u8,
    /// Its variables: arguments first.
    locals: usize,
    /// In a code object: its instructions.
    instructions: usize,
    /// What a code object is; filled in by [`Walk::here`].
    code_type: *mut PyTypeObject,
}

// SAFETY: the address of a type, which is there for ever, and which any thread may compare with.
unsafe impl Send for Layout {}
// SAFETY: nothing is written through the address: it is only compared, by any thread.
unsafe impl Sync for Layout {}

/// Printed by a C program of `offsetof`s, against the headers of 3.11.7.
const PYTHON_3_11: Layout = Layout {
    thread: (56, Some(8)),
    previous: 48,
    code: 32,
    instruction: 56,
    owner: 69,
    first_shim: u8::MAX,
    locals: 72,
    instructions: 184,
    code_type: ptr::null_mut(),
};

/// The same, of 3.12.1.
const PYTHON_3_12: Layout = Layout {
    thread: (56, Some(0)),
    previous: 8,
    code: 0,
    instruction: 56,
    owner: 70,
    first_shim: 3,
    locals: 72,
    instructions: 192,
    code_type: ptr::null_mut(),
};

/// A table that is published begins so.
const COOKIE: u64 = u64::from_ne_bytes(*b"xdebugpy");
/// Nothing that is looked at is larger.
const LARGEST: u64 = 64 << 10;
/// A reference in a frame may have marks in its lowest bits, from 3.14 on.
const MARKS: usize = 0b11;

/// How frames are walked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Walk {
    /// Up to 3.10 they are objects already.
    Objects(unsafe extern "C" fn(*mut PyFrameObject) -> *mut PyFrameObject),
    Layout(Layout, unsafe extern "C" fn(*mut PyObject, c_int) -> c_int),
}

impl Walk {
    /// How they are in this Python, if that is known.
    pub(crate) fn here(py: Python<'_>) -> Option<Self> {
        let version = py.version_info();
        // SAFETY: the types that CPython's headers give them, from 3.10 to 3.14.
        let (back, line) = unsafe { (found(c"PyFrame_GetBack")?, found(c"PyCode_Addr2Line")?) };
        let layout = match (version.major, version.minor) {
            (3, 10) => return Some(Self::Objects(back)),
            (3, 11) => PYTHON_3_11,
            (3, 12) => PYTHON_3_12,
            (3, minor) => Layout::published(minor)?,
            _ => return None,
        };
        // SAFETY: the name ends with NUL.
        let code_type = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyCode_Type".as_ptr()) };
        let code_type = code_type.cast();
        Some(Self::Layout(
            Layout {
                code_type,
                ..layout
            },
            line,
        ))
    }

    /// Calls `each` with each frame, innermost first, until it says that it is enough.
    ///
    /// # Safety
    ///
    /// The calling thread holds the GIL with this thread state.
    pub(crate) unsafe fn each(
        self,
        thread: *mut PyThreadState,
        mut each: impl FnMut(&Frame) -> bool,
    ) {
        let (layout, line) = match self {
            // SAFETY: the caller has the GIL, with this thread state.
            Self::Objects(back) => return unsafe { each_object(thread, back, each) },
            Self::Layout(layout, line) => (layout, line),
        };
        // SAFETY: the thread state is that of the caller, who runs in the innermost frame.
        let mut frame = unsafe { layout.innermost(thread) };
        while !frame.is_null() {
            // SAFETY: a frame of the calling thread, which does not go on meanwhile.
            if let Some(code) = unsafe { layout.code_of(frame) } {
                // SAFETY: the frame, and the code that it runs.
                let offset = unsafe { layout.offset_of(frame, code) };
                let place = FramePosition::Offset(offset, line);
                let address = frame as usize;
                if !each(&Frame {
                    code,
                    address,
                    place,
                }) {
                    break;
                }
            }
            // SAFETY: a frame of this layout, whose caller's address stands there; null after the outermost.
            frame = unsafe { word(frame, layout.previous) };
        }
    }
}

impl Walk {
    /// The line of a place in code, as frames tell both.
    ///
    /// # Safety
    ///
    /// The GIL is held, the code is alive, and the place is one in it.
    pub(crate) unsafe fn line(self, code: *mut PyObject, place: c_int) -> c_int {
        match self {
            Self::Objects(_) => place,
            // SAFETY: as the caller says.
            Self::Layout(_, line) => unsafe { line(code, place) },
        }
    }

    /// The address of the innermost frame, and what its first argument is: itself, or the cell that functions inside it
    /// share. `None` where frames are objects, and where the innermost is none of Python code.
    ///
    /// # Safety
    ///
    /// As that of [`Walk::each`].
    pub(crate) unsafe fn first_argument(
        self,
        thread: *mut PyThreadState,
    ) -> Option<(usize, *mut PyObject)> {
        let Self::Layout(layout, _) = self else {
            return None;
        };
        // SAFETY: as the caller says.
        unsafe {
            let frame = layout.innermost(thread);
            if frame.is_null() || layout.code_of(frame).is_none() {
                return None;
            }
            let first = word(frame, layout.locals).map_addr(|address| address & !MARKS);
            let first: *mut PyObject = first.cast_mut().cast();
            (!first.is_null()).then_some((frame as usize, first))
        }
    }
}

/// A frame that runs, for as long as it is looked at.
pub(crate) struct Frame {
    pub(crate) code: *mut PyObject,
    /// The same as long as it runs, and no other frame's meanwhile.
    pub(crate) address: usize,
    place: FramePosition,
}

enum FramePosition {
    Offset(c_int, unsafe extern "C" fn(*mut PyObject, c_int) -> c_int),
    Line(c_int),
}

impl Frame {
    /// The line that it is at. To find out takes longer than all the rest.
    pub(crate) fn line(&self) -> c_int {
        match self.place {
            // SAFETY: frames are made by a walk only, with the code that they run and a place in it; the GIL is held.
            FramePosition::Offset(offset, line) => unsafe { line(self.code, offset) },
            FramePosition::Line(line) => line,
        }
    }

    /// A number for where it is in its code.
    pub(crate) fn place(&self) -> c_int {
        match self.place {
            FramePosition::Offset(number, _) | FramePosition::Line(number) => number,
        }
    }
}

/// # Safety
///
/// As that of [`Walk::each`].
unsafe fn each_object(
    thread: *mut PyThreadState,
    back: unsafe extern "C" fn(*mut PyFrameObject) -> *mut PyFrameObject,
    mut each: impl FnMut(&Frame) -> bool,
) {
    // SAFETY: the GIL is held. Each is a reference of ours, and never the last one of a frame that runs.
    unsafe {
        let mut frame = ffi::PyThreadState_GetFrame(thread);
        while !frame.is_null() {
            let code = ffi::PyFrame_GetCode(frame).cast();
            let goes_on = each(&Frame {
                code,
                address: frame as usize,
                place: FramePosition::Line(ffi::PyFrame_GetLineNumber(frame)),
            });
            ffi::Py_DECREF(code);
            let outer = if goes_on {
                back(frame)
            } else {
                ptr::null_mut()
            };
            ffi::Py_DECREF(frame.cast());
            frame = outer;
        }
    }
}

impl Layout {
    /// What the interpreter says of itself.
    fn published(minor: u8) -> Option<Self> {
        // Where groups of numbers begin: of threads, of frames, of code.
        let (threads, frames, codes) = match minor {
            13 => (19, 28, 34),
            14 => (22, 31, 39),
            _ => return None,
        };
        // SAFETY: the name ends with NUL.
        let runtime = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_PyRuntime".as_ptr()) };
        if runtime.is_null() {
            return None;
        }
        // SAFETY: the table is at the beginning of the runtime's state, which is longer than it, and never changes.
        let number = |index: usize| unsafe { *runtime.cast::<u64>().add(index) };
        let version = number(1);
        if number(0) != COOKIE || version >> 16 & 0xff != u64::from(minor) {
            return None;
        }
        let offset = |index: usize| {
            Some(number(index))
                .filter(|at| *at < LARGEST)
                .map(|at| at as usize)
        };
        Some(Self {
            thread: (offset(threads + 4)?, None),
            previous: offset(frames + 1)?,
            code: offset(frames + 2)?,
            instruction: offset(frames + 3)?,
            owner: offset(frames + 5)?,
            first_shim: 3,
            locals: offset(frames + 4)?,
            instructions: offset(codes + 9)?,
            code_type: ptr::null_mut(),
        })
    }

    /// # Safety
    ///
    /// A thread's state of this layout, whose thread is the calling one.
    unsafe fn innermost(&self, thread: *mut PyThreadState) -> *const c_void {
        let (at, inside) = self.thread;
        // SAFETY: as the caller says: what is there is kept up to date by the thread itself.
        unsafe {
            let found = word(thread.cast(), at);
            match inside {
                Some(inside) if !found.is_null() => word(found, inside),
                _ => found,
            }
        }
    }

    /// The code object of a frame of Python code.
    ///
    /// # Safety
    ///
    /// A frame of this layout, of the calling thread.
    unsafe fn code_of(&self, frame: *const c_void) -> Option<*mut PyObject> {
        // SAFETY: as the caller says; a frame holds its code.
        unsafe {
            let owner = frame.cast::<u8>().add(self.owner).read();
            if owner >= self.first_shim {
                return None;
            }
            let code = word(frame, self.code).map_addr(|address| address & !MARKS);
            let code: *mut PyObject = code.cast_mut().cast();
            let is_code = !code.is_null() && ffi::Py_TYPE(code) == self.code_type;
            is_code.then_some(code)
        }
    }

    /// How far into its code a frame is.
    ///
    /// # Safety
    ///
    /// As that of [`Layout::code_of`], which gave the code.
    unsafe fn offset_of(&self, frame: *const c_void, code: *mut PyObject) -> c_int {
        // SAFETY: as the caller says.
        let at = unsafe { word(frame, self.instruction) } as usize;
        let begin = code as usize + self.instructions;
        // Before its first instruction: that of the function itself.
        c_int::try_from(at as isize - begin as isize).unwrap_or(-1)
    }
}

/// # Safety
///
/// There is a pointer at that offset.
unsafe fn word(base: *const c_void, at: usize) -> *const c_void {
    // SAFETY: as the caller says.
    unsafe { base.byte_add(at).cast::<*const c_void>().read() }
}
