//! Source text made into code or a tree, without the classes of trees.
//!
//! The `compile` of Python asks whether it was given a tree, and for that makes the 118 classes that trees consist of:
//! some 250 KB, which a program that has no use for them does not have to hold for us. So text goes to the function that
//! `compile` itself calls for it.
#![expect(unsafe_code, reason = "calls what the stable interface leaves out")]

use std::ffi::{CString, c_int, c_void};
use std::mem;
use std::sync::OnceLock;

use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use crate::python::call::{call, unwinding_sleeps};
use crate::python::embedded::builtins;

/// What text is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Statements.
    Exec,
    /// An expression.
    Eval,
}

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Eval => "eval",
        }
    }

    /// `Py_file_input` or `Py_eval_input`.
    const fn token(self) -> c_int {
        match self {
            Self::Exec => 257,
            Self::Eval => 258,
        }
    }
}

/// `PyCF_SOURCE_IS_UTF8` and `PyCF_IGNORE_COOKIE`, as `compile` sets them for a string.
const IS_A_STRING: u32 = 0x100 | 0x800;

/// As `PyCompilerFlags` is.
#[repr(C)]
struct Flags {
    flags: c_int,
    /// The minor version of Python whose grammar it is; looked at for trees only.
    feature_version: c_int,
}

/// As `Py_CompileStringObject` is.
type Compile = unsafe extern "C-unwind" fn(
    *const std::ffi::c_char,
    *mut PyObject,
    c_int,
    *mut Flags,
    c_int,
) -> *mut PyObject;

/// `compile(source, file, mode, flags, dont_inherit=True)`.
pub(crate) fn compile<'py>(
    py: Python<'py>,
    source: &str,
    file: &str,
    mode: Mode,
    flags: u32,
) -> PyResult<Bound<'py, PyAny>> {
    // Python's own says what is wrong with a NUL.
    let (Some(compile), Ok(text)) = (found(), CString::new(source)) else {
        let compile = builtins(py)?.compile.bind(py);
        return call(compile, (source, file, mode.name(), flags, true));
    };
    let file = PyString::new(py, file);
    let mut flags = Flags {
        flags: (flags | IS_A_STRING) as c_int,
        feature_version: c_int::from(py.version_info().minor),
    };
    // A warning about the source may run the program's code.
    let result = unwinding_sleeps(|| {
        // SAFETY: the text ends with NUL, the name is a live object, the flags are as the function takes them and outlive
        // the call; the GIL is held, as `py` says.
        unsafe {
            compile(
                text.as_ptr(),
                file.as_ptr(),
                mode.token(),
                &raw mut flags,
                -1,
            )
        }
    });
    // SAFETY: the call returns a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, result) }
}

/// Looked for by name, as the stable interface has only one without flags. An interpreter that hides its symbols has none.
fn found() -> Option<Compile> {
    static FOUND: OnceLock<Option<Compile>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the name ends with NUL.
        let address =
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"Py_CompileStringObject".as_ptr()) };
        // SAFETY: not null, and a function of this type in every Python from 3.4 on.
        (!address.is_null()).then(|| unsafe { mem::transmute::<*mut c_void, Compile>(address) })
    })
}

/// Runs a few bytecodes, which is when an exception that is pending for this thread comes.
pub(crate) fn run_nothing(py: Python<'_>) -> PyResult<()> {
    static NOTHING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let builtins = builtins(py)?;
    let nothing = NOTHING.get_or_try_init(py, || {
        let source = "for _ in (0, 0): pass";
        compile(py, source, "<probing>", Mode::Exec, 0).map(Bound::unbind)
    })?;
    call(builtins.eval.bind(py), (nothing.bind(py), PyDict::new(py))).map(drop)
}
