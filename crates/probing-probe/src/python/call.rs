//! Calls into Python that may run the program's code, made so that the end of the interpreter cannot abort the process.
//!
//! A thread that asks for the GIL while the interpreter ends is unwound by `pthread_exit` (before Python 3.14). That
//! must not pass through Rust frames: a thread that gets so far sleeps until the process is gone, as 3.14 does itself.
//!
//! `pyo3` declares the same functions as ones that never unwind, and the compiler, which knows one function by a name, may
//! believe that of both. So they are called by addresses that it cannot know.
#![expect(unsafe_code, reason = "declares the call as one that may unwind")]

use std::ffi::c_void;
use std::hint::black_box;
use std::mem;
use std::ptr;
use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// As `PyObject_Call` is.
type Call =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;
/// As `Py_DecRef` is.
type DecRef = unsafe extern "C-unwind" fn(*mut PyObject);

unsafe extern "C-unwind" {
    fn PyObject_Call(
        callable: *mut PyObject,
        args: *mut PyObject,
        kwargs: *mut PyObject,
    ) -> *mut PyObject;
    fn Py_DecRef(object: *mut PyObject);
}

/// Sleeps for ever when dropped, which only unwinding does.
struct SleepForEver;

impl Drop for SleepForEver {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Makes a call that may unwind.
#[inline]
pub(crate) fn unwinding_sleeps<T>(call: impl FnOnce() -> T) -> T {
    let unwinding = SleepForEver;
    let result = call();
    mem::forget(unwinding);
    result
}

/// `callable(*args)`.
pub(crate) fn call<'py>(
    callable: &Bound<'py, PyAny>,
    args: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error: Into<PyErr>>,
) -> PyResult<Bound<'py, PyAny>> {
    let args = args.into_pyobject(callable.py()).map_err(Into::into)?;
    call_with(callable, args, None)
}

/// `callable(*args, **kwargs)`.
pub(crate) fn call_with<'py>(
    callable: &Bound<'py, PyAny>,
    args: Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let kwargs = kwargs.map_or(ptr::null_mut(), Bound::as_ptr);
    let python = black_box::<Call>(PyObject_Call);
    let result = unwinding_sleeps(|| {
        // SAFETY: the pointers come from live references (or are null) and the GIL is held, as their lifetime says.
        unsafe { python(callable.as_ptr(), args.as_ptr(), kwargs) }
    });
    release(args.into_any());
    // SAFETY: the call returns a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), result) }
}

/// As `PyObject_Vectorcall` is.
type Vectorcall = unsafe extern "C-unwind" fn(
    *mut PyObject,
    *const *mut PyObject,
    usize,
    *mut PyObject,
) -> *mut PyObject;

/// `callable(*args)`, without a tuple to hold them where Python can do without.
pub(crate) fn call_plainly<'py>(
    callable: &Bound<'py, PyAny>,
    args: &[Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    let Some(vectorcall) = vectorcall() else {
        return call_with(callable, PyTuple::new(callable.py(), args)?, None);
    };
    let (count, kwargs) = (args.len(), ptr::null_mut());
    let result = unwinding_sleeps(|| {
        // SAFETY: a `Bound` is a pointer to a live object, so a slice of them is what the function takes; the GIL is held,
        // as their lifetime says.
        unsafe { vectorcall(callable.as_ptr(), args.as_ptr().cast(), count, kwargs) }
    });
    // SAFETY: the call returns a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), result) }
}

/// From 3.11 on; looked for by name, as the stable interface has it from 3.12 on only.
fn vectorcall() -> Option<Vectorcall> {
    static FOUND: OnceLock<Option<Vectorcall>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the name ends with NUL.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyObject_Vectorcall".as_ptr()) };
        // SAFETY: not null, and a function of this type in every Python that has one of this name.
        (!address.is_null()).then(|| unsafe { mem::transmute::<*mut c_void, Vectorcall>(address) })
    })
}

/// Lets go of an exception, and so of the frames that its traceback leads to, now: what is dropped where Python has called
/// us without `pyo3` waits until `pyo3` is called, and in a program that nobody asks anything that may be never.
pub(crate) fn release_error(py: Python<'_>, error: PyErr) {
    error.restore(py);
    let mut parts = [ptr::null_mut(); 3];
    let [kind, value, traceback] = &mut parts;
    // SAFETY: the GIL is held; three valid places are filled with references (or null), which are ours.
    unsafe { ffi::PyErr_Fetch(kind, value, traceback) };
    for part in parts {
        // SAFETY: null, or a reference that `PyErr_Fetch` has given to us.
        if let Some(part) = unsafe { Bound::from_owned_ptr_or_opt(py, part) } {
            release(part);
        }
    }
}

/// Lets go of an object, whose destructor may be the program's.
pub(crate) fn release(object: Bound<'_, PyAny>) {
    let object = object.into_ptr();
    let python = black_box::<DecRef>(Py_DecRef);
    unwinding_sleeps(|| {
        // SAFETY: the reference was ours, and the GIL is held, as its lifetime said.
        unsafe { python(object) }
    });
}
