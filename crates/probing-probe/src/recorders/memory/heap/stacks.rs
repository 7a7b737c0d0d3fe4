//! The Python code that asks for memory, seen from inside the allocator.
//!
//! Nothing here makes an object, allocates, frees, collects garbage, runs code of the program or touches an exception that
//! is on its way: names are read where code objects have them, and copied character by character. To ask for them as
//! attributes would free what a cache of Python's held, and so call the allocators again, under whatever lock the program
//! (`tracemalloc`, for one) asked for memory.
#![expect(
    unsafe_code,
    reason = "looks at code objects where no `Python` can be had"
)]

use std::ffi::{CStr, c_int};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ptr;
use std::sync::OnceLock;

use pyo3::ffi::{self, PyMemberDef, PyObject, PyThreadState, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python::call;
use crate::python::symbols::found;
use crate::recorders::memory::heap::frames::{Frame, Walk};

/// Frames that are looked at, from the innermost on.
const DEPTH: usize = 24;
/// Bytes of a name or a file; of a longer file its end is kept.
const MAX_NAME_BYTES: usize = 200;
const ROOM: usize = 4096;
/// A member that is an object or null, as CPython's headers have always called and numbered it.
const T_OBJECT: c_int = 6;

/// A stack that is known, to try on whether frames are read right.
const KNOWN: &CStr = c"def inner(look):
    return look()

def outer(look):
    pass
    return inner(look)
";

/// The frames of a thread at one moment. Good for as long as they run: to be used at once.
pub(crate) struct Stack {
    /// Code objects and places in them: which line that is takes longer to find than all the rest.
    frames: [(*mut PyObject, c_int); DEPTH],
    count: usize,
    has_gil: bool,
}

/// The same in words.
pub(crate) struct StackText {
    texts: [u8; ROOM],
    used: usize,
    frames: [FrameText; DEPTH],
    count: usize,
}

/// Ranges of the texts.
#[derive(Clone, Copy)]
struct FrameText {
    func: (usize, usize),
    file: (usize, usize),
    lineno: u32,
}

/// What has to be looked up before a hook may need it.
struct CodeLayout {
    current: unsafe extern "C" fn() -> *mut PyThreadState,
    walk: Walk,
    /// Where a code object has its name and its file.
    func: usize,
    file: usize,
}

static MEANS: OnceLock<Option<CodeLayout>> = OnceLock::new();

/// Looks up what is needed, and tries it; false when frames cannot be read in this Python.
pub(crate) fn prepare(py: Python<'_>) -> bool {
    MEANS.get_or_init(|| means(py)).is_some() && is_right(py).unwrap_or(false)
}

fn means(py: Python<'_>) -> Option<CodeLayout> {
    // SAFETY: the type that CPython's headers give it, from 3.10 to 3.14. It has had two names.
    let current = unsafe {
        let current = found(c"PyThreadState_GetUnchecked");
        current.or_else(|| found(c"_PyThreadState_UncheckedGet"))?
    };
    let has_long_names = py.version_info() >= (3, 11);
    let func = if has_long_names {
        c"co_qualname"
    } else {
        c"co_name"
    };
    Some(CodeLayout {
        current,
        walk: Walk::here(py)?,
        func: member_of_code(func, py)?,
        file: member_of_code(c"co_filename", py)?,
    })
}

/// Where in a code object the pointer to this object is, which it has for as long as it lives.
fn member_of_code(name: &CStr, _: Python<'_>) -> Option<usize> {
    // SAFETY: the GIL is held; the slot of a type that lives for ever is null or a list that ends with a member without a
    // name, and never changes.
    unsafe {
        let code: *mut PyTypeObject =
            libc::dlsym(libc::RTLD_DEFAULT, c"PyCode_Type".as_ptr()).cast();
        if code.is_null() {
            return None;
        }
        let mut member: *const PyMemberDef = ffi::PyType_GetSlot(code, ffi::Py_tp_members).cast();
        while !member.is_null() && !(*member).name.is_null() {
            let is_object = [T_OBJECT, ffi::Py_T_OBJECT_EX].contains(&(*member).type_code);
            if is_object && CStr::from_ptr((*member).name) == name {
                return usize::try_from((*member).offset).ok();
            }
            member = member.add(1);
        }
    }
    None
}

/// Whether a stack that is known is told as it is.
fn is_right(py: Python<'_>) -> PyResult<bool> {
    let names = PyDict::new(py);
    py.run(KNOWN, Some(&names), None)?;
    let look = wrap_pyfunction!(look, py)?;
    let told = call::call(&names.as_any().get_item("outer")?, (look,))?;
    let expected = [("inner", "<string>", 2), ("outer", "<string>", 6)];
    let told: Vec<(String, String, u32)> = told.extract()?;
    let told: Vec<(&str, &str, u32)> = told
        .iter()
        .map(|(func, file, lineno)| (&**func, &**file, *lineno))
        .collect();
    Ok(told.get(..2) == Some(&expected))
}

/// What is seen from here.
#[pyfunction]
fn look() -> Vec<(String, String, u32)> {
    let words = Stack::here().in_words();
    let frames = words.frames();
    let owned = frames.map(|(func, file, lineno)| (func.to_owned(), file.to_owned(), lineno));
    owned.collect()
}

impl Stack {
    /// That of the calling thread, which may or may not hold the GIL: without it no Python code asks.
    pub(crate) fn here() -> Self {
        let mut stack = Self {
            frames: [(ptr::null_mut(), 0); DEPTH],
            count: 0,
            has_gil: false,
        };
        if let Some(Some(means)) = MEANS.get() {
            // SAFETY: needs no GIL; tells the thread state that holds the GIL (up to 3.11), or this thread's if it does.
            let current = unsafe { (means.current)() };
            // SAFETY: needs no GIL. The thread's own, or null.
            if !current.is_null() && current == unsafe { ffi::PyGILState_GetThisThreadState() } {
                stack.has_gil = true;
                let each = |frame: &Frame| {
                    stack.frames[stack.count] = (frame.code, frame.place());
                    stack.count += 1;
                    stack.count < DEPTH
                };
                // SAFETY: both are this thread's, so it holds the GIL.
                unsafe { means.walk.each(current, each) };
            }
        }
        stack
    }

    /// Whether the thread holds the GIL.
    pub(crate) fn has_gil(&self) -> bool {
        self.has_gil
    }

    /// The same for the same code objects and places, while those live.
    pub(crate) fn key(&self) -> u64 {
        let frames = self.frames[..self.count].iter();
        frames.fold(self.count as u64, |key, (code, place)| {
            // Both halves of a product: every bit of either number counts.
            let code = key.rotate_left(23) ^ *code as u64;
            let place = u64::from(place.cast_unsigned());
            let product = u128::from(code ^ 0x9e37_79b9_7f4a_7c15)
                * u128::from(place ^ 0xd6e8_feb8_6659_fd93);
            (product >> 64) as u64 ^ product as u64
        })
    }

    /// Its code objects.
    pub(crate) fn codes(&self) -> impl Iterator<Item = *mut PyObject> {
        self.frames[..self.count].iter().map(|(code, _)| *code)
    }

    pub(crate) fn in_words(&self) -> StackText {
        let nothing = FrameText {
            func: (0, 0),
            file: (0, 0),
            lineno: 0,
        };
        let mut words = StackText {
            texts: [0; ROOM],
            used: 0,
            frames: [nothing; DEPTH],
            count: 0,
        };
        if let Some(Some(means)) = MEANS.get() {
            for (code, place) in &self.frames[..self.count] {
                // SAFETY: as told by the walk; the frames still run, and the GIL is held, or there would be none.
                let line = unsafe { means.walk.line(*code, *place) };
                if !words.push(means, *code, line) {
                    break;
                }
            }
        }
        words
    }
}

impl StackText {
    /// The same for the same functions, files and lines.
    pub(crate) fn id(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for frame in self.frames() {
            frame.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Functions, files and lines, innermost first.
    pub(crate) fn frames(&self) -> impl Iterator<Item = (&str, &str, u32)> {
        let text =
            |(begin, end): (usize, usize)| str::from_utf8(&self.texts[begin..end]).unwrap_or("?");
        let seen = self.frames.iter().take(self.count);
        seen.map(move |seen| (text(seen.func), text(seen.file), seen.lineno))
    }

    /// Takes in a frame; whether there is room for another.
    fn push(&mut self, means: &CodeLayout, code: *mut PyObject, line: c_int) -> bool {
        // SAFETY: frames are there only when the GIL is held, and it still is; the code is that of one that runs.
        let (func, file) = unsafe { (self.copy(code, means.func), self.copy(code, means.file)) };
        self.frames[self.count] = FrameText {
            func,
            file,
            lineno: u32::try_from(line).unwrap_or(0),
        };
        self.count += 1;
        self.count < DEPTH && self.used + 2 * MAX_NAME_BYTES <= ROOM
    }

    /// Copies a text that a code object has.
    ///
    /// # Safety
    ///
    /// The GIL is held, `code` is a code object, and a pointer to a text or null is `at` bytes into it.
    unsafe fn copy(&mut self, code: *mut PyObject, at: usize) -> (usize, usize) {
        let begin = self.used;
        // SAFETY: as the caller says. The code is alive, and so is its text; characters are read within the text's length,
        // which needs no memory. Neither fails, so no exception is made or lost.
        unsafe {
            let text = code.byte_add(at).cast::<*mut PyObject>().read();
            if text.is_null() {
                return (begin, begin);
            }
            let length = ffi::PyUnicode_GetLength(text);
            let first = (length - MAX_NAME_BYTES as isize / 4).max(0)
                * isize::from(length > MAX_NAME_BYTES as isize);
            for index in first..length {
                let read = ffi::PyUnicode_ReadChar(text, index);
                let character = char::from_u32(read).unwrap_or(char::REPLACEMENT_CHARACTER);
                let room = &mut self.texts[self.used..(begin + MAX_NAME_BYTES).min(ROOM)];
                if room.len() < character.len_utf8() {
                    break;
                }
                self.used += character.encode_utf8(room).len();
            }
        }
        (begin, self.used)
    }
}
