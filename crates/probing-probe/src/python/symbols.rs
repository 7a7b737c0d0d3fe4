//! Functions of the interpreter that not every Python has: looked for once, by name.
#![expect(unsafe_code, reason = "dlsym gives addresses without types")]

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::sync::OnceLock;

use pyo3::ffi::{PyFrameObject, PyObject, PyThreadState, PyTypeObject};

/// As `PyEval_SetTrace` takes it.
pub(crate) type TraceFunction =
    unsafe extern "C" fn(*mut PyObject, *mut PyFrameObject, c_int, *mut PyObject) -> c_int;

/// As `PyDict_AddWatcher` takes it.
pub(crate) type DictCallback =
    unsafe extern "C" fn(c_int, *mut PyObject, *mut PyObject, *mut PyObject) -> c_int;

/// As `PyObject_GetBuffer` fills it.
#[repr(C)]
pub(crate) struct Buffer {
    pub(crate) start: *mut c_void,
    owner: *mut PyObject,
    pub(crate) length: isize,
    pub(crate) item: isize,
    is_readonly: c_int,
    dimensions: c_int,
    format: *mut c_void,
    shape: *mut c_void,
    strides: *mut c_void,
    suboffsets: *mut c_void,
    internal: *mut c_void,
}

/// Those that are there.
pub(crate) struct Symbols {
    /// From 3.12 on: a variable of a frame, by name.
    pub(crate) frame_variable:
        Option<unsafe extern "C" fn(*mut PyFrameObject, *mut PyObject) -> *mut PyObject>,
    /// The line of an offset in code.
    pub(crate) line_at: Option<unsafe extern "C" fn(*mut PyObject, c_int) -> c_int>,
    /// From 3.11 on.
    pub(crate) frame_globals: Option<unsafe extern "C" fn(*mut PyFrameObject) -> *mut PyObject>,
    /// Up to 3.12: takes over what was assigned to `f_locals`.
    pub(crate) locals_to_fast: Option<unsafe extern "C" fn(*mut PyFrameObject, c_int)>,
    /// What a class has under a name, without running anything.
    pub(crate) type_lookup:
        Option<unsafe extern "C" fn(*mut PyTypeObject, *mut PyObject) -> *mut PyObject>,
    /// 3.10 and 3.11: of any thread.
    pub(crate) set_trace: Option<
        unsafe extern "C" fn(*mut PyThreadState, Option<TraceFunction>, *mut PyObject) -> c_int,
    >,
    /// The same, of calls and returns alone.
    pub(crate) set_profile: Option<
        unsafe extern "C" fn(*mut PyThreadState, Option<TraceFunction>, *mut PyObject) -> c_int,
    >,
    /// From 3.11 on: nobody is told what a thread does in between.
    pub(crate) enter_tracing: Option<unsafe extern "C" fn(*mut PyThreadState)>,
    pub(crate) leave_tracing: Option<unsafe extern "C" fn(*mut PyThreadState)>,
    pub(crate) current_interpreter: Option<unsafe extern "C" fn() -> *mut c_void>,
    /// The newest interpreter, and the one that the process began with.
    pub(crate) newest_interpreter: Option<unsafe extern "C" fn() -> *mut c_void>,
    pub(crate) main_interpreter: Option<unsafe extern "C" fn() -> *mut c_void>,
    pub(crate) first_thread: Option<unsafe extern "C" fn(*mut c_void) -> *mut PyThreadState>,
    pub(crate) next_thread: Option<unsafe extern "C" fn(*mut PyThreadState) -> *mut PyThreadState>,
    /// From 3.12 on: dictionaries that tell before they change.
    pub(crate) dict_add_watcher: Option<unsafe extern "C" fn(DictCallback) -> c_int>,
    pub(crate) dict_clear_watcher: Option<unsafe extern "C" fn(c_int) -> c_int>,
    pub(crate) dict_watch: Option<unsafe extern "C" fn(c_int, *mut PyObject) -> c_int>,
    pub(crate) dict_unwatch: Option<unsafe extern "C" fn(c_int, *mut PyObject) -> c_int>,
    /// In every version; part of the limited interface from 3.11 on.
    pub(crate) get_buffer: Option<unsafe extern "C" fn(*mut PyObject, *mut Buffer, c_int) -> c_int>,
    pub(crate) release_buffer: Option<unsafe extern "C" fn(*mut Buffer)>,
}

pub(crate) fn symbols() -> &'static Symbols {
    static SYMBOLS: OnceLock<Symbols> = OnceLock::new();
    // SAFETY: each name is asked for with the type that CPython's headers give it, in all versions that have it.
    SYMBOLS.get_or_init(|| unsafe {
        Symbols {
            frame_variable: found(c"PyFrame_GetVar"),
            line_at: found(c"PyCode_Addr2Line"),
            frame_globals: found(c"PyFrame_GetGlobals"),
            locals_to_fast: found(c"PyFrame_LocalsToFast"),
            type_lookup: found(c"_PyType_Lookup"),
            set_trace: found(c"_PyEval_SetTrace"),
            set_profile: found(c"_PyEval_SetProfile"),
            enter_tracing: found(c"PyThreadState_EnterTracing"),
            leave_tracing: found(c"PyThreadState_LeaveTracing"),
            current_interpreter: found(c"PyInterpreterState_Get"),
            newest_interpreter: found(c"PyInterpreterState_Head"),
            main_interpreter: found(c"PyInterpreterState_Main"),
            first_thread: found(c"PyInterpreterState_ThreadHead"),
            next_thread: found(c"PyThreadState_Next"),
            dict_add_watcher: found(c"PyDict_AddWatcher"),
            dict_clear_watcher: found(c"PyDict_ClearWatcher"),
            dict_watch: found(c"PyDict_Watch"),
            dict_unwatch: found(c"PyDict_Unwatch"),
            get_buffer: found(c"PyObject_GetBuffer"),
            release_buffer: found(c"PyBuffer_Release"),
        }
    })
}

/// Whether the process has more than one interpreter: a new one becomes the first of their list.
pub(crate) fn has_other_interpreters() -> bool {
    let symbols = symbols();
    let (Some(newest), Some(main)) = (symbols.newest_interpreter, symbols.main_interpreter) else {
        return false;
    };
    // SAFETY: both only read a pointer of the runtime, which is there as long as the process; nothing is read through it.
    unsafe { newest() != main() }
}

/// A function of the process.
///
/// # Safety
///
/// `F` is the type of the function that is called so.
pub(crate) unsafe fn found<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(mem::size_of::<F>() == mem::size_of::<*mut c_void>()) };
    // SAFETY: the name ends with NUL.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: not null, and of this type, as the caller says.
    (!address.is_null()).then(|| unsafe { mem::transmute_copy(&address) })
}
