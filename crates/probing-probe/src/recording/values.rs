//! Python's values as those of a ring.
#![expect(
    unsafe_code,
    reason = "reads numbers and text of Python's own types in nanoseconds"
)]

use std::ffi::c_int;
use std::ptr;

use probing_proto::tables::schema::Kind;
use probing_store::Value;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyString};

use crate::python::call;

/// A value that can be recorded as it is, or that cannot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Plain<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits, as near as a float comes.
    Huge(f64),
    Float(f64),
    Text(&'a str),
    /// Something else, which must be asked what it is.
    Odd,
}

impl Plain<'_> {
    /// The kind of a column that begins with this value; `None` when it says nothing.
    pub(super) fn kind(&self) -> Option<Kind> {
        match self {
            Self::Null => None,
            Self::Bool(_) => Some(Kind::Bool),
            Self::Int(_) => Some(Kind::I64),
            Self::Huge(_) | Self::Float(_) => Some(Kind::F64),
            Self::Text(_) | Self::Odd => Some(Kind::Text),
        }
    }
}

/// Looks at a value. Runs no code of the program.
///
/// # Safety
///
/// `object` is a live object, the GIL is held, and the object outlives `'a` unchanged.
#[inline]
pub(super) unsafe fn plain<'a>(object: *mut PyObject) -> Plain<'a> {
    // SAFETY: a live object has a class, which lives as long.
    let kind = unsafe { ffi::Py_TYPE(object) };
    if kind == &raw mut ffi::PyFloat_Type {
        // SAFETY: a float: its value is read without calling anything.
        return Plain::Float(unsafe { ffi::PyFloat_AsDouble(object) });
    }
    if kind == &raw mut ffi::PyLong_Type {
        // SAFETY: an int that the caller keeps alive.
        return unsafe { int(object) };
    }
    if kind == &raw mut ffi::PyUnicode_Type {
        // SAFETY: a text that the caller keeps alive and unchanged.
        return unsafe { text(object) };
    }
    // SAFETY: takes nothing, and gives the one None there is.
    if object == unsafe { ffi::Py_None() } {
        return Plain::Null;
    }
    if kind == &raw mut ffi::PyBool_Type {
        // SAFETY: takes nothing, and gives the one True there is.
        return Plain::Bool(object == unsafe { ffi::Py_True() });
    }
    // SAFETY: the caller's object is alive and is none of the types above.
    unsafe { plain_of_subclass(object, kind) }
}

/// # Safety
///
/// As [`plain`]; `kind` is the object's class.
#[inline]
unsafe fn plain_of_subclass<'a>(object: *mut PyObject, kind: *mut ffi::PyTypeObject) -> Plain<'a> {
    // SAFETY: a live class: its flags are read without calling anything.
    let flags = unsafe { ffi::PyType_GetFlags(kind) };
    if flags & ffi::Py_TPFLAGS_LONG_SUBCLASS != 0 {
        // SAFETY: derived from `int`, whose value lies where that of an int does.
        return unsafe { int(object) };
    }
    if flags & ffi::Py_TPFLAGS_UNICODE_SUBCLASS != 0 {
        // SAFETY: derived from `str`, whose bytes lie where those of a text do.
        return unsafe { text(object) };
    }
    // SAFETY: live classes, whose bases are compared without calling anything.
    let is_float = unsafe { ffi::PyType_IsSubtype(kind, &raw mut ffi::PyFloat_Type) } != 0;
    if is_float {
        // SAFETY: derived from `float`, whose value is read without calling anything of the program.
        return Plain::Float(unsafe { ffi::PyFloat_AsDouble(object) });
    }
    Plain::Odd
}

/// # Safety
///
/// As [`plain`], and `object` is an `int`.
unsafe fn int<'a>(object: *mut PyObject) -> Plain<'a> {
    let mut overflow: c_int = 0;
    // SAFETY: as the caller says.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow) };
    if overflow == 0 {
        return Plain::Int(value);
    }
    // SAFETY: as the caller says; the only error is that it is too large for a float.
    unsafe {
        let near = ffi::PyLong_AsDouble(object);
        if !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
            return Plain::Huge(f64::INFINITY.copysign(f64::from(overflow)));
        }
        Plain::Huge(near)
    }
}

/// # Safety
///
/// As above, and `object` is a `str`.
unsafe fn text<'a>(object: *mut PyObject) -> Plain<'a> {
    let mut length = 0;
    // SAFETY: as the caller says; the object keeps the bytes, which are UTF-8, for as long as it lives.
    unsafe {
        let bytes = ffi::PyUnicode_AsUTF8AndSize(object, &raw mut length);
        if bytes.is_null() {
            // It has half of a surrogate pair, or there is no memory.
            ffi::PyErr_Clear();
            return Plain::Odd;
        }
        let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), length as usize);
        Plain::Text(std::str::from_utf8_unchecked(bytes))
    }
}

/// The value for a column of a kind; `Err`: the column must become one that holds this kind, too.
#[inline]
pub(super) fn fit(plain: Plain<'_>, kind: Kind) -> Result<Value<'_>, Kind> {
    match (plain, kind) {
        (Plain::Null, _) => Ok(Value::Null),
        (Plain::Float(value) | Plain::Huge(value), Kind::F64) => Ok(Value::F64(value)),
        (Plain::Int(value), Kind::I64) => Ok(Value::I64(value)),
        (Plain::Int(value), Kind::F64) => Ok(Value::F64(value as f64)),
        (Plain::Text(text), Kind::Text) => Ok(Value::Text(text)),
        (Plain::Bool(value), Kind::Bool) => Ok(Value::Bool(value)),
        (Plain::Bool(value), Kind::I64) => Ok(Value::I64(i64::from(value))),
        (Plain::Bool(value), Kind::F64) => Ok(Value::F64(f64::from(u8::from(value)))),
        (plain, _) => Err(plain.kind().unwrap_or(Kind::Text)),
    }
}

/// A value that can be recorded in the place of one that cannot: a number if it can be one, else its text. Runs code of
/// the program.
pub(super) fn simplified<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    if object.is_instance_of::<PyString>() {
        // A text that has no UTF-8.
        return call::call(&object.getattr("encode")?, ("utf-8", "backslashreplace"))
            .and_then(|bytes| call::call(&bytes.getattr("decode")?, ()));
    }
    if matches!(object.get_type().name()?.to_str()?, "bool" | "bool_") {
        return Ok(object.is_truthy()?.into_pyobject(py)?.to_owned().into_any());
    }
    for way in ["__index__", "__float__"] {
        if let Ok(convert) = object.getattr(way)
            && let Some(number) = tried(call::call(&convert, ()))?
            // What calls itself a number may still not be one.
            && !matches!(plain_of(&number), Plain::Odd | Plain::Text(_) | Plain::Null)
        {
            return Ok(number);
        }
    }
    in_words(object)
}

/// The text of a value. Runs code of the program.
pub(super) fn in_words<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    if object.is_instance_of::<PyFloat>() {
        return Ok(object.repr()?.into_any());
    }
    let text = call::call(py.get_type::<PyString>().as_any(), (object,));
    match tried(text)? {
        Some(text) if !matches!(plain_of(&text), Plain::Odd) => Ok(text),
        Some(text) if text.is_instance_of::<PyString>() => simplified(&text),
        _ => {
            let kind = object.get_type().name()?;
            let words = format!("<{kind} without a text>");
            Ok(PyString::new(py, &words).into_any())
        }
    }
}

/// `None` for what raised an `Exception`; what ends a program (an interrupt, an exit) goes on.
fn tried(result: PyResult<Bound<'_, PyAny>>) -> PyResult<Option<Bound<'_, PyAny>>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => Python::attach(|py| {
            if error.is_instance_of::<pyo3::exceptions::PyException>(py) {
                Ok(None)
            } else {
                Err(error)
            }
        }),
    }
}

/// Looks at a value that somebody holds.
pub(super) fn plain_of<'a>(object: &'a Bound<'_, PyAny>) -> Plain<'a> {
    debug_assert_ne!(object.as_ptr(), ptr::null_mut());
    // SAFETY: a bound reference is alive, the GIL is held, and numbers and texts do not change.
    unsafe { plain(object.as_ptr()) }
}
