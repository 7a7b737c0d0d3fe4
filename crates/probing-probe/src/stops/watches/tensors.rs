//! Tensors of torch, as far as they can be known without running Python: what counts their changes in place, where their
//! data is, what they look like. Subclasses that answer for themselves are left alone.
#![expect(
    unsafe_code,
    reason = "asks a class what it has, without asking the program"
)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::super::symbols::symbols;
use super::words;
use crate::guarded::call;
use crate::interned::interned;
use crate::traceback::text_of;

/// Where torch's own kinds of tensor come from.
const OWN: [&str; 2] = ["torch", "torch.nn.parameter"];

/// How often a tensor was changed in place, and where its data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    count: i64,
    address: u64,
}

/// Whether it is one of torch's own.
pub(crate) fn is_tensor(value: &Bound<'_, PyAny>) -> bool {
    let py = value.py();
    let kind = value.get_type();
    let Some(look_up) = symbols().type_lookup else {
        return false;
    };
    let class = kind.as_type_ptr();
    // SAFETY: the GIL is held; the class lives as long as its object. What is found is borrowed, and looked at at once.
    unsafe {
        let counter = look_up(class, interned!(py, "_version").as_ptr());
        let is_counted =
            !counter.is_null() && ffi::Py_TYPE(counter) == &raw mut ffi::PyGetSetDescr_Type;
        if !is_counted {
            return false;
        }
        let module = look_up(class, interned!(py, "__module__").as_ptr());
        let module: Option<Bound<'_, PyAny>> = Bound::from_borrowed_ptr_or_opt(py, module);
        module.is_some_and(|module| {
            let module = module.cast_exact::<PyString>();
            module.is_ok_and(|name| name.to_str().is_ok_and(|name| OWN.contains(&name)))
        })
    }
}

/// What changes with its data. `None` for what is no tensor, or counts no changes.
pub(super) fn version(tensor: &Bound<'_, PyAny>) -> Option<Version> {
    let py = tensor.py();
    let count = tensor.getattr(interned!(py, "_version")).ok()?;
    Some(Version {
        count: count.extract().ok()?,
        address: address(tensor)?,
    })
}

/// Where its data begins; 0 where it has none.
pub(super) fn address(tensor: &Bound<'_, PyAny>) -> Option<u64> {
    let teller = tensor.getattr(interned!(tensor.py(), "data_ptr")).ok()?;
    call(&teller, ()).ok()?.extract().ok()
}

/// Its shape, type and device.
pub(super) fn described(value: &Bound<'_, PyAny>) -> Option<String> {
    if !is_tensor(value) {
        return None;
    }
    let shape = value.getattr("shape").ok()?;
    let sizes: Vec<String> = shape
        .cast::<PyTuple>()
        .ok()?
        .iter()
        .map(|size| {
            size.extract::<i64>()
                .map_or_else(|_| "?".to_owned(), |size| size.to_string())
        })
        .collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let short = |name: &str| {
        let part = value.getattr(name).ok()?.str().ok()?;
        let part = text_of(part.as_any());
        Some(part.trim_start_matches("torch.").to_owned())
    };
    Some(format!(
        "{}(shape=({}{comma}), dtype={}, device={})",
        words::name_of(value.get_type().as_any()),
        sizes.join(", "),
        short("dtype")?,
        short("device")?,
    ))
}
