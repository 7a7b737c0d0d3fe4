//! `_`: the value of the last expression.
//!
//! It is never among the program's names: a program may have a `_` of its own, `gettext` or a loop's, and that is then
//! what the name means. Evaluated code finds ours where it would otherwise find nothing.
//!
//! A guest must not keep the program's objects alive. A client that wants to can have its last value held for as long as
//! its connection lasts; for all others it is kept only as far as that keeps nothing else: plain data, and what
//! still lives without us.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString,
    PyTuple, PyWeakrefReference,
};

use crate::python::call::release;

/// Longest text, and most elements of a container, that count as plain data.
const PLAIN_LENGTH: usize = 64 << 10;
const PLAIN_ELEMENTS: usize = 1000;
const PLAIN_DEPTH: usize = 4;

/// The last value of any client. Touched only with the GIL held.
static OF_ALL: Mutex<Option<StoredValue>> = Mutex::new(None);

enum StoredValue {
    Plain(Py<PyAny>),
    Weakly(Py<PyWeakrefReference>),
}

/// One connection's last value; held until it ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionValue(Arc<Mutex<Option<Py<PyAny>>>>);

/// What `_` is for an eval of a connection.
pub(crate) fn recall<'py>(py: Python<'py>, held: &ConnectionValue) -> Option<Bound<'py, PyAny>> {
    let own = lock(&held.0).as_ref().map(|value| value.bind(py).clone());
    own.or_else(|| match &*lock(&OF_ALL) {
        Some(StoredValue::Plain(value)) => Some(value.bind(py).clone()),
        Some(StoredValue::Weakly(value)) => value.bind(py).upgrade(),
        None => None,
    })
}

/// Makes a value the last one.
pub(crate) fn keep(value: &Bound<'_, PyAny>, held: Option<&ConnectionValue>) {
    if let Some(held) = held {
        let before = lock(&held.0).replace(value.clone().unbind());
        if let Some(before) = before {
            release(before.into_bound(value.py()));
        }
    }
    let mut elements = PLAIN_ELEMENTS;
    let kept = if is_plain(value, PLAIN_DEPTH, &mut elements) {
        Some(StoredValue::Plain(value.clone().unbind()))
    } else {
        let weak = PyWeakrefReference::new(value);
        weak.ok().map(|value| StoredValue::Weakly(value.unbind()))
    };
    // Dropping plain data or a weak reference runs no code of the program.
    *lock(&OF_ALL) = kept;
}

impl ConnectionValue {
    /// Lets go of the value. Called by a thread that must not take the GIL.
    pub(crate) fn forget(&self) {
        let Some(value) = lock(&self.0).take() else {
            return;
        };
        let spawned = thread::Builder::new()
            .name("probing-eval".to_owned())
            .spawn(move || {
                // At the end of the interpreter nothing needs to be let go.
                Python::try_attach(|py| release(value.into_bound(py)));
            });
        // Without a thread it goes with the next eval: a reference that is dropped without the GIL waits for it.
        drop(spawned);
    }
}

/// Whether keeping it keeps nothing but numbers and texts.
fn is_plain(value: &Bound<'_, PyAny>, depth: usize, elements: &mut usize) -> bool {
    let Some(left) = elements.checked_sub(1) else {
        return false;
    };
    *elements = left;
    if value.is_none()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyComplex>()
    {
        return true;
    }
    if value.is_exact_instance_of::<PyInt>() {
        return value.extract::<i128>().is_ok();
    }
    let is_short = |most: usize| value.len().is_ok_and(|length| length <= most);
    if value.is_exact_instance_of::<PyString>() || value.is_exact_instance_of::<PyBytes>() {
        return is_short(PLAIN_LENGTH);
    }
    let is_container = value.is_exact_instance_of::<PyList>()
        || value.is_exact_instance_of::<PyTuple>()
        || value.is_exact_instance_of::<PySet>()
        || value.is_exact_instance_of::<PyFrozenSet>()
        || value.is_exact_instance_of::<PyDict>();
    if !is_container || depth == 0 || !is_short(PLAIN_ELEMENTS) {
        return false;
    }
    let mut are_plain = |contents: &Bound<'_, PyAny>| {
        contents.try_iter().is_ok_and(|mut contents| {
            contents.all(|item| item.is_ok_and(|item| is_plain(&item, depth - 1, elements)))
        })
    };
    if let Ok(dict) = value.cast_exact::<PyDict>() {
        return are_plain(dict.keys().as_any()) && are_plain(dict.values().as_any());
    }
    are_plain(value)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
