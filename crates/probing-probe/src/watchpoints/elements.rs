//! Elements of tensors in the memory of the CPU.
//!
//! Data of other devices is never touched: to wait for one may take for ever.
//!
//! torch says where they are; the kernel reads them (`memory.rs`), so that memory that is gone is no fault. Nothing of the
//! program runs, nor an operation of torch.

use probing_proto::text::tensor_elements;
use pyo3::prelude::*;

use crate::eval::traceback::text_of;
use crate::process::read_memory;
use crate::python::call::call;
use crate::python::interned::interned;
use crate::watchpoints::{format, path, tensors};

/// Elements that are shown.
const SHOWN: usize = 8;

/// Where the elements of a tensor are.
struct Strided {
    dtype: String,
    shape: Vec<usize>,
    strides: Vec<usize>,
    /// Of the first element.
    address: u64,
    /// From there to the end of the memory.
    room: usize,
    width: usize,
}

/// The first elements, in order, without the shape: `[0.5, 1.0, … 30 more]`. `None` for a scalar, which is shown by its value.
pub(crate) fn first(tensor: &Bound<'_, PyAny>) -> Option<String> {
    let strided = Strided::of(tensor).filter(|it| !it.shape.is_empty())?;
    let count = strided.shape.iter().copied().product::<usize>();
    let mut texts = strided.elements(count.min(SHOWN))?;
    if count > texts.len() {
        texts.push(format!("… {} more", count - texts.len()));
    }
    Some(format!("[{}]", texts.join(", ")))
}

/// A tensor without dimensions by its value. `None` for others, and for what is no tensor of torch's own.
pub(crate) fn scalar(tensor: &Bound<'_, PyAny>) -> Option<String> {
    if !tensors::is_tensor(tensor) {
        return None;
    }
    let strided = Strided::of(tensor).filter(|it| it.shape.is_empty())?;
    let bytes = strided.read(1)?;
    let class = format::name_of(tensor.get_type().as_any());
    tensor_elements::scalar(&class, &strided.dtype, &bytes)
}

impl Strided {
    /// `None` for tensors on other devices, without memory, or of types that are not shown.
    fn of(tensor: &Bound<'_, PyAny>) -> Option<Self> {
        let py = tensor.py();
        let _unheard = tensors::Unheard::begin(py)?;
        let is_cpu = tensor.getattr(interned!(py, "is_cpu")).ok()?;
        if !is_cpu.is_truthy().ok()? {
            return None;
        }
        let ask = |name| call(&tensor.getattr(name).ok()?, ()).ok();
        if is_negated(tensor)? {
            return None;
        }
        let dtype = text_of(tensor.getattr("dtype").ok()?.str().ok()?.as_any());
        let dtype = dtype.trim_start_matches("torch.").to_owned();
        let width = tensor_elements::width(&dtype)?;
        let begin = ask("storage_offset")?.extract::<usize>().ok()?;
        let storage = ask("untyped_storage")?;
        let size = call(&storage.getattr("nbytes").ok()?, ()).ok()?;
        let size = size.extract::<usize>().ok()?;
        Some(Self {
            width,
            shape: tensor.getattr("shape").ok()?.extract().ok()?,
            strides: ask("stride")?.extract().ok()?,
            address: tensors::address(tensor)?,
            room: size.checked_sub(begin.checked_mul(width)?)?,
            dtype,
        })
    }

    fn elements(&self, count: usize) -> Option<Vec<String>> {
        let bytes = self.read(count)?;
        let each = bytes.chunks_exact(self.width);
        each.map(|bytes| tensor_elements::element(&self.dtype, bytes))
            .collect()
    }

    /// The bytes of the first elements.
    fn read(&self, count: usize) -> Option<Vec<u8>> {
        let places = (0..count).map(|number| {
            let at = self.offset(number)?.checked_mul(self.width)?;
            let is_inside = at.checked_add(self.width)? <= self.room;
            let address = self.address.checked_add(at as u64)?;
            is_inside.then_some((address, self.width))
        });
        let (pieces, bytes) = read_memory::read(&places.collect::<Option<Vec<_>>>()?).ok()?;
        pieces.lengths.iter().all(Option::is_some).then_some(bytes)
    }

    /// Of an element, from the first one on, in elements.
    fn offset(&self, mut number: usize) -> Option<usize> {
        let mut offset = 0_usize;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            offset = offset.checked_add((number % size).checked_mul(stride)?)?;
            number /= size;
        }
        Some(offset)
    }
}

/// Whether its memory has the numbers with the other sign. `is_neg()` would say so, and lets go of the GIL meanwhile: in the
/// middle of an assignment no other thread may come in.
fn is_negated(tensor: &Bound<'_, PyAny>) -> Option<bool> {
    let module = path::module(tensor.py(), "torch._C")?;
    let keys = call(&module.getattr("_dispatch_keys").ok()?, (tensor,)).ok()?;
    let negative = module.getattr("DispatchKey").ok()?.getattr("Negative");
    let has = call(&keys.getattr("has").ok()?, (negative.ok()?,)).ok()?;
    has.is_truthy().ok()
}
