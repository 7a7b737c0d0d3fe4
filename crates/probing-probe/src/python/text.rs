//! Texts of Python, in Rust.

use pyo3::prelude::*;

/// A Python string as text; what has no UTF-8 form (lone surrogates) is escaped.
pub(crate) fn text_of(string: &Bound<'_, PyAny>) -> String {
    if let Ok(text) = string.extract::<String>() {
        return text;
    }
    string
        .call_method1("encode", ("utf-8", "backslashreplace"))
        .and_then(|bytes| bytes.extract::<Vec<u8>>())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}
