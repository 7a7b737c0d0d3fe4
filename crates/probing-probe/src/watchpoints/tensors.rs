//! Tensors of torch, read without running Python: version, data pointer and description.
//!
//! Subclasses that answer for themselves are left alone.
#![expect(
    unsafe_code,
    reason = "asks a class what it has, without asking the program"
)]

use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::eval::traceback::text_of;
use crate::python::call::{call, release_error};
use crate::python::interned::interned;
use crate::python::symbols::symbols;
use crate::watchpoints::{elements, format, path};

/// Where torch's own kinds of tensor come from.
const OWN: [&str; 2] = ["torch", "torch.nn.parameter"];

/// How often a tensor was changed in place, and where its data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) count: i64,
    address: u64,
}

/// Until it is dropped, no class and no mode of the program hears of what is asked of tensors.
///
/// Under `torch.device(...)` or `torch.set_default_device(...)` every question, even for a shape, is one to Python code, in
/// which another thread gets the GIL: not in the middle of an assignment.
pub(crate) struct Unheard<'py>(Option<Bound<'py, PyAny>>);

/// What keeps modes of torch from hearing us.
struct Modes {
    count: Option<Py<PyAny>>,
    /// torch's guard, a class.
    guard: Py<PyAny>,
}

impl<'py> Unheard<'py> {
    /// `None` when it cannot be had: then tensors must not be asked anything.
    pub(crate) fn begin(py: Python<'py>) -> Option<Self> {
        static MODES: OnceLock<Option<Modes>> = OnceLock::new();
        let modes = MODES.get_or_init(|| Modes::find(py)).as_ref()?;
        let count = modes.count.as_ref();
        let count = count.and_then(|it| call(it.bind(py), ()).ok()?.extract::<usize>().ok());
        if count == Some(0) {
            return Some(Self(None));
        }
        let guard = call(modes.guard.bind(py), ()).ok()?;
        call(&guard.getattr(interned!(py, "__enter__")).ok()?, ()).ok()?;
        Some(Self(Some(guard)))
    }
}

impl Modes {
    fn find(py: Python<'_>) -> Option<Self> {
        let native = path::module(py, "torch._C")?;
        let count = native.getattr(interned!(py, "_len_torch_function_stack"));
        let guard = native.getattr(interned!(py, "DisableTorchFunction"));
        Some(Self {
            count: count.ok().map(Bound::unbind),
            guard: guard.ok()?.unbind(),
        })
    }
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        let Some(guard) = &self.0 else { return };
        let py = guard.py();
        let nothing = (py.None(), py.None(), py.None());
        let exit = guard.getattr(interned!(py, "__exit__"));
        // A function of torch's own, which sets a flag.
        if let Err(error) = exit.and_then(|exit| call(&exit, nothing)) {
            release_error(py, error);
        }
    }
}

/// Whether it is one of torch's own, which torch itself answers for. One that has no shape yet does so in Python.
pub(crate) fn is_tensor(value: &Bound<'_, PyAny>) -> bool {
    let py = value.py();
    let kind = value.get_type();
    let Some(look_up) = symbols().type_lookup else {
        return false;
    };
    let class = kind.as_type_ptr();
    // SAFETY: the GIL is held; the class lives as long as its object. What is found is borrowed, and looked at at once.
    unsafe {
        let is_native = |name: &Bound<'_, PyString>| {
            let found = look_up(class, name.as_ptr());
            !found.is_null() && ffi::Py_TYPE(found) == &raw mut ffi::PyGetSetDescr_Type
        };
        if !is_native(interned!(py, "_version")) || !is_native(interned!(py, "shape")) {
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
pub(crate) fn version(tensor: &Bound<'_, PyAny>) -> Option<Version> {
    let py = tensor.py();
    let _unheard = Unheard::begin(py)?;
    let count = tensor.getattr(interned!(py, "_version")).ok()?;
    Some(Version {
        count: count.extract().ok()?,
        address: address(tensor)?,
    })
}

/// Where its data begins; 0 where it has none.
pub(crate) fn address(tensor: &Bound<'_, PyAny>) -> Option<u64> {
    let teller = tensor.getattr(interned!(tensor.py(), "data_ptr")).ok()?;
    call(&teller, ()).ok()?.extract().ok()
}

/// Its shape, type and device; the value of a scalar that the CPU has.
pub(crate) fn described(value: &Bound<'_, PyAny>) -> Option<String> {
    if !is_tensor(value) {
        return None;
    }
    let _unheard = Unheard::begin(value.py())?;
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
    if sizes.is_empty()
        && let Some(value) = elements::scalar(value)
    {
        return Some(value);
    }
    let comma = if sizes.len() == 1 { "," } else { "" };
    let short = |name: &str| {
        let part = value.getattr(name).ok()?.str().ok()?;
        let part = text_of(part.as_any());
        Some(part.trim_start_matches("torch.").to_owned())
    };
    Some(format!(
        "{}(shape=({}{comma}), dtype={}, device={})",
        format::name_of(value.get_type().as_any()),
        sizes.join(", "),
        short("dtype")?,
        short("device")?,
    ))
}
