//! The address of a value's bytes: a tensor's data, or the buffer of an array.
//!
//! Who watches them looks from outside.
#![expect(
    unsafe_code,
    reason = "the buffer protocol is a C interface, not in the limited one of 3.10"
)]

use std::mem::MaybeUninit;

use probing_proto::message::breakpoints::Storage;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::eval::traceback::text_of;
use crate::python::call::call;
use crate::python::symbols::symbols;
use crate::watchpoints::type_name;

/// Any memory, whatever its shape, and no matter whether it may be written through the buffer.
const FULL_READ_ONLY: i32 = 0x11c;

/// As JSON. Runs code of the value's class.
pub(crate) fn describe_storage(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let found = match value.getattr("data_ptr") {
        Ok(teller) => of_tensor(value, &teller)?,
        Err(_) => of_buffer(value)?,
    };
    if found.address == 0 || found.bytes == 0 {
        let kind = found.kind;
        return Err(PyTypeError::new_err(format!(
            "an empty {kind} has no bytes"
        )));
    }
    serde_json::to_string(&found).map_err(|error| PyTypeError::new_err(error.to_string()))
}

fn of_tensor(value: &Bound<'_, PyAny>, teller: &Bound<'_, PyAny>) -> PyResult<Storage> {
    let number = |name: &str| -> PyResult<u64> { call(&value.getattr(name)?, ())?.extract() };
    let device = text_of(value.getattr("device")?.str()?.as_any());
    if device != "cpu" {
        let why = format!("its bytes are on {device}: a processor watches its own memory only");
        return Err(PyTypeError::new_err(why));
    }
    let item = number("element_size")?;
    Ok(Storage {
        address: call(teller, ())?.extract()?,
        bytes: number("nbytes").or_else(|_| Ok::<_, PyErr>(item * number("numel")?))?,
        item,
        kind: type_name(value),
    })
}

fn of_buffer(value: &Bound<'_, PyAny>) -> PyResult<Storage> {
    let (Some(get), Some(release)) = (symbols().get_buffer, symbols().release_buffer) else {
        return Err(PyTypeError::new_err("this Python has no buffer functions"));
    };
    let mut buffer = MaybeUninit::uninit();
    // SAFETY: the GIL is held and the object is alive; the structure is filled when 0 comes back, and else there is an
    // exception. It is given back at once: the address stays true as long as the object is not resized.
    let (address, bytes, item) = unsafe {
        if get(value.as_ptr(), buffer.as_mut_ptr(), FULL_READ_ONLY) != 0 {
            drop(PyErr::take(value.py()));
            let kind = type_name(value);
            let why = format!(
                "a {kind} has no bytes that can be watched: it is neither a tensor nor a buffer"
            );
            return Err(PyTypeError::new_err(why));
        }
        let mut buffer = buffer.assume_init();
        let found = (buffer.start as u64, buffer.length, buffer.item);
        release(&raw mut buffer);
        found
    };
    let size = |number: isize| u64::try_from(number).unwrap_or(0);
    Ok(Storage {
        address,
        bytes: size(bytes),
        item: size(item),
        kind: type_name(value),
    })
}
