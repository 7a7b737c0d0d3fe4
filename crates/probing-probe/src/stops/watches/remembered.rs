//! What a watch remembers of a value, to know it again. Never the object itself, which would live longer for it.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};

use super::super::numbers;
use super::tensors::{self, Version};
use super::words;

/// Text that is longer is known by where it is.
const MAX_TEXT: usize = 200;
/// What was not put into words, because there was too much of it.
const NOT_TOLD: &str = "…";

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Remembered {
    /// It was never looked at.
    Unknown,
    Unbound,
    None,
    Bool(bool),
    Int(i64),
    /// As bits: what is no number is the same as itself.
    Float(u64),
    Text(Box<str>),
    Object {
        address: usize,
        kind: usize,
        version: Option<Version>,
        words: Option<Box<str>>,
    },
}

impl Remembered {
    /// A value that can be told later. An object's words are not made here.
    pub(super) fn of(value: Option<&Bound<'_, PyAny>>) -> Self {
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
    pub(super) fn is(&self, value: Option<&Bound<'_, PyAny>>) -> bool {
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
                value.is_exact_instance_of::<PyInt>() && numbers::of(value) == Some(*number)
            }
            plainly => plain(value).as_ref() == Some(plainly),
        }
    }

    /// Whether both are the same; numbers first, which are compared most.
    #[inline]
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Int(one), Self::Int(other)) => one == other,
            (Self::Float(one), Self::Float(other)) => one == other,
            _ => self == other,
        }
    }

    /// Whether what is remembered of another value says that it is this one. Runs nothing.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
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

    pub(super) fn with_words(self, told: &str) -> Self {
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
    pub(super) fn told(&self, py: Python<'_>) -> Option<String> {
        match self {
            Self::Unknown | Self::Unbound => None,
            Self::None => Some("None".to_owned()),
            Self::Bool(value) => Some(if *value { "True" } else { "False" }.to_owned()),
            Self::Int(number) => Some(number.to_string()),
            Self::Float(bits) => {
                let number = PyFloat::new(py, f64::from_bits(*bits));
                Some(words::of(number.as_any()))
            }
            Self::Text(text) => Some(words::of(PyString::new(py, text).as_any())),
            Self::Object { words, .. } => Some(words.as_deref().unwrap_or(NOT_TOLD).to_owned()),
        }
    }
}

/// One of Python's own values, which is known by what it is. Runs nothing.
#[inline]
pub(super) fn plain(value: &Bound<'_, PyAny>) -> Option<Remembered> {
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Some(Remembered::Float(number.value().to_bits()));
    }
    if value.is_exact_instance_of::<PyInt>() {
        return numbers::of(value).map(Remembered::Int);
    }
    if let Ok(flag) = value.cast_exact::<PyBool>() {
        return Some(Remembered::Bool(flag.is_true()));
    }
    if let Ok(text) = value.cast_exact::<PyString>() {
        if text.len().is_ok_and(|length| length > MAX_TEXT) {
            return None;
        }
        return text.to_str().ok().map(|text| Remembered::Text(text.into()));
    }
    value.is_none().then_some(Remembered::None)
}
