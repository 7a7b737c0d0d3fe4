//! The identity of a watched value, remembered without a reference to it.
//!
//! Never the object itself, which would live longer for it.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};

use crate::breakpoints::registry::Breakpoint;
use crate::python::int_value;
use crate::watchpoints::tensors::{self, Version};
use crate::watchpoints::{format, shown};

/// Text that is longer is known by where it is.
const MAX_TEXT: usize = 200;
/// Bytes, also: variables of the environment are bytes, and some are long search paths.
const MAX_BYTES: usize = 4096;
/// What was not put into words, because there was too much of it.
const NOT_TOLD: &str = "…";

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RememberedValue {
    /// It was never looked at.
    Unknown,
    Unbound,
    None,
    Bool(bool),
    Int(i64),
    /// As bits: what is no number is the same as itself.
    Float(u64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    Object {
        address: usize,
        kind: usize,
        version: Option<Version>,
        words: Option<Box<str>>,
    },
}

impl RememberedValue {
    /// A value that can be told later. An object's words are not made here.
    pub(crate) fn of(value: Option<&Bound<'_, PyAny>>) -> Self {
        let Some(value) = value else {
            return Self::Unbound;
        };
        plain(value).unwrap_or_else(|| Self::Object {
            address: value.as_ptr() as usize,
            kind: value.get_type().as_ptr() as usize,
            version: tensors::is_tensor(value)
                .then(|| tensors::version(value))
                .flatten(),
            words: None,
        })
    }

    /// Whether a value is this one still.
    #[inline]
    pub(crate) fn is(&self, value: Option<&Bound<'_, PyAny>>) -> bool {
        let Some(value) = value else {
            return *self == Self::Unbound;
        };
        match self {
            Self::Unknown | Self::Unbound => false,
            Self::Object {
                address,
                kind,
                version,
                ..
            } => {
                *address == value.as_ptr() as usize
                    && *kind == value.get_type().as_ptr() as usize
                    && (version.is_none() || tensors::version(value) == *version)
            }
            Self::Float(bits) => value
                .cast_exact::<PyFloat>()
                .is_ok_and(|number| number.value().to_bits() == *bits),
            Self::Int(number) => {
                value.is_exact_instance_of::<PyInt>() && int_value::read_int(value) == Some(*number)
            }
            Self::Bytes(bytes) => value
                .cast_exact::<PyBytes>()
                .is_ok_and(|other| other.as_bytes() == &**bytes),
            plainly => plain(value).as_ref() == Some(plainly),
        }
    }

    /// Whether both are the same; numbers first, which are compared most.
    #[inline]
    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Int(one), Self::Int(other)) => one == other,
            (Self::Float(one), Self::Float(other)) => one == other,
            _ => self == other,
        }
    }

    /// Whether what is remembered of another value says that it is this one. Runs nothing.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Object {
                    address,
                    kind,
                    version,
                    ..
                },
                Self::Object {
                    address: other_address,
                    kind: other_kind,
                    version: other_version,
                    ..
                },
            ) => (address, kind, version) == (other_address, other_kind, other_version),
            _ => self == other,
        }
    }

    pub(crate) fn with_words(self, told: &str) -> Self {
        match self {
            Self::Object {
                address,
                kind,
                version,
                ..
            } => Self::Object {
                address,
                kind,
                version,
                words: Some(told.into()),
            },
            plainly => plainly,
        }
    }

    /// In words; `None` for what was not bound, or not known.
    pub(crate) fn told(&self, py: Python<'_>, point: &Breakpoint) -> Option<String> {
        match self {
            Self::Unknown | Self::Unbound => None,
            Self::None => Some("None".to_owned()),
            Self::Bool(value) => Some(if *value { "True" } else { "False" }.to_owned()),
            Self::Int(number) => Some(number.to_string()),
            Self::Float(bits) => {
                let number = PyFloat::new(py, f64::from_bits(*bits));
                Some(format::format_value(number.as_any()))
            }
            Self::Text(text) => Some(format::format_value(PyString::new(py, text).as_any())),
            Self::Bytes(bytes) => Some(shown(point, PyBytes::new(py, bytes).as_any())),
            Self::Object { words, .. } => Some(words.as_deref().unwrap_or(NOT_TOLD).to_owned()),
        }
    }
}

/// One of Python's own values, which is known by what it is. Runs nothing.
#[inline]
pub(crate) fn plain(value: &Bound<'_, PyAny>) -> Option<RememberedValue> {
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Some(RememberedValue::Float(number.value().to_bits()));
    }
    if value.is_exact_instance_of::<PyInt>() {
        return int_value::read_int(value).map(RememberedValue::Int);
    }
    if let Ok(flag) = value.cast_exact::<PyBool>() {
        return Some(RememberedValue::Bool(flag.is_true()));
    }
    if let Ok(text) = value.cast_exact::<PyString>() {
        if text.len().is_ok_and(|length| length > MAX_TEXT) {
            return None;
        }
        return text
            .to_str()
            .ok()
            .map(|text| RememberedValue::Text(text.into()));
    }
    if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        let bytes = bytes.as_bytes();
        return (bytes.len() <= MAX_BYTES).then(|| RememberedValue::Bytes(bytes.into()));
    }
    value.is_none().then_some(RememberedValue::None)
}
