//! Values as bounded text, without running any Python.
//!
//! What has no words of its own here is told by its class and address.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet,
    PyString, PyTuple, PyType,
};

use crate::eval::traceback::text_of;
use crate::python::call::call;
use crate::python::interned::interned;
use crate::python::signal_handlers;
use crate::watchpoints::tensors;

/// As readers from outside have them.
const ITEMS: usize = 10;
const DEPTH: usize = 3;
const TEXT: usize = 200;
/// Of one value, in bytes.
const MAX_TEXT_BYTES: usize = 2000;
/// Of a number that is written out; it takes time that grows with the square.
const BITS: u64 = 4000;

/// A value in words. Python's own `repr` looks for signals first, and what their handlers raise is not ours to drop.
pub(crate) fn format_value(value: &Bound<'_, PyAny>) -> String {
    let mut text = signal_handlers::kept_out(value.py(), || format_nested(value, 0));
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.push('…');
    }
    text
}

fn format_nested(value: &Bound<'_, PyAny>, depth: usize) -> String {
    if let Some(text) = scalar(value).or_else(|| container(value, depth)) {
        return text;
    }
    if let Some(text) = tensors::described(value) {
        return text;
    }
    let kind = value.get_type();
    if value.is_instance_of::<PyType>() {
        return format!("<class '{}'>", name_of(value));
    }
    format!(
        "<{} object at {:p}>",
        name_of(kind.as_any()),
        value.as_ptr()
    )
}

/// What Python's own types say of themselves runs no code of the program.
fn scalar(value: &Bound<'_, PyAny>) -> Option<String> {
    if let Ok(text) = value.cast_exact::<PyString>() {
        return Some(cut(value, text.len().ok()?));
    }
    if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        return Some(cut(value, bytes.as_bytes().len()));
    }
    if let Ok(bytes) = value.cast_exact::<PyByteArray>() {
        return Some(cut(value, bytes.len()));
    }
    if value.is_exact_instance_of::<PyInt>() {
        let bits = value
            .call_method0(interned!(value.py(), "bit_length"))
            .ok()?;
        let bits = bits.extract::<u64>().ok()?;
        if bits > BITS {
            return Some(format!("<int of {bits} bits>"));
        }
        return own(value);
    }
    let is_plain = value.is_none()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyComplex>();
    is_plain.then(|| own(value)).flatten()
}

fn own(value: &Bound<'_, PyAny>) -> Option<String> {
    value.repr().ok().map(|text| text_of(text.as_any()))
}

/// Text or bytes, as far as they are shown.
fn cut(value: &Bound<'_, PyAny>, length: usize) -> String {
    if length <= TEXT {
        return own(value).unwrap_or_default();
    }
    let sequence = value.cast::<pyo3::types::PySequence>();
    let first = sequence.ok().and_then(|it| it.get_slice(0, TEXT).ok());
    let first = first.and_then(|first| own(first.as_any()));
    format!("{}… ({} more)", first.unwrap_or_default(), length - TEXT)
}

fn container(value: &Bound<'_, PyAny>, depth: usize) -> Option<String> {
    let most = if depth < DEPTH { ITEMS } else { 0 };
    let each = |items: &mut dyn Iterator<Item = Bound<'_, PyAny>>, count: usize| {
        let texts = items.take(most).map(|item| format_nested(&item, depth + 1));
        listed(texts.collect(), count)
    };
    if let Ok(list) = value.cast_exact::<PyList>() {
        return Some(format!("[{}]", each(&mut list.iter(), list.len())));
    }
    if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        let comma = if tuple.len() == 1 { "," } else { "" };
        let items = each(&mut tuple.iter(), tuple.len());
        return Some(format!("({items}{comma})"));
    }
    if let Ok(dict) = value.cast_exact::<PyDict>() {
        let pairs = dict.iter().take(most);
        let texts = pairs.map(|(key, item)| {
            format!(
                "{}: {}",
                format_nested(&key, depth + 1),
                format_nested(&item, depth + 1)
            )
        });
        return Some(format!("{{{}}}", listed(texts.collect(), dict.len())));
    }
    let size = if let Ok(set) = value.cast_exact::<PySet>() {
        set.len()
    } else {
        value.cast_exact::<PyFrozenSet>().ok()?.len()
    };
    let mut items = value.try_iter().ok()?.filter_map(Result::ok);
    let name = name_of(value.get_type().as_any());
    Some(format!("{name}({})", each(&mut items, size)))
}

fn listed(mut texts: Vec<String>, count: usize) -> String {
    if count > texts.len() {
        texts.push(format!("… {} more", count - texts.len()));
    }
    texts.join(", ")
}

/// The name of a value's class.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    name_of(value.get_type().as_any())
}

/// The name of a class, which no metaclass of the program's is asked for.
pub(crate) fn name_of(class: &Bound<'_, PyAny>) -> String {
    static NAME_OF: OnceLock<Option<Py<PyAny>>> = OnceLock::new();
    let py = class.py();
    let teller = NAME_OF.get_or_init(|| {
        let names = py.get_type::<PyType>().getattr("__dict__").ok()?;
        let getter = names.get_item("__name__").ok()?.getattr("__get__");
        getter.ok().map(Bound::unbind)
    });
    let name = teller
        .as_ref()
        .and_then(|it| call(it.bind(py), (class,)).ok());
    name.map_or_else(|| "object".to_owned(), |name| text_of(&name))
}
