//! What an operation is, from what torch gives to a hook.
//!
//! To ask for its attributes takes 2 µs, most of what recording may cost: torch makes objects for each. They lie side by side
//! in torch's own structure, so that is read, and believed for as long as the attributes, which are asked for now and then,
//! say the same. Shapes and types of tensors are then told by functions that torch offers to C.
#![expect(
    unsafe_code,
    reason = "reads a structure of torch's, and calls functions of C"
)]

use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::ptr::NonNull;

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::python::call::call;
use crate::python::interned::interned;

/// `PyObject_HEAD`, a pointer to the value, one to its holder, one to weak references, and flags: what pybind11 makes of a
/// class that derives from nothing.
pub(crate) const SIZE: usize = 56;
/// Of how many operations one is asked for all the same.
const EVERY: u32 = 1024;
/// Tensors of one operation that are compared.
const MAX_COMPARED_TENSORS: usize = 64;
/// Dimensions of tensors that are told by torch's functions.
pub(crate) const DIMENSIONS: usize = 5;

/// Whether the structure is believed.
pub(crate) struct PreHookReader {
    is_believed: bool,
    /// Which operations were compared already.
    compared: [bool; 256],
    since: u32,
    shim: Option<Shim>,
}

/// `c10d::PreHookArgs`, up to where we look.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PreHookArgs {
    /// The number of the operation.
    pub(crate) op: u8,
    is_async: u8,
    inputs: List,
    outputs: List,
    root: i64,
}

/// `std::vector<at::Tensor>`: a tensor is the address of what it is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct List {
    begin: *const usize,
    end: *const usize,
    room: *const usize,
}

/// A function of torch's for programs in C: takes the address of a tensor, tells something of it, and returns 0.
type TensorGetter<T> = unsafe extern "C" fn(*const usize, *mut T) -> i32;

#[derive(Clone, Copy)]
struct Shim {
    dimensions: TensorGetter<i64>,
    sizes: TensorGetter<*const i64>,
    dtype: TensorGetter<i32>,
}

/// The sizes of one tensor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) sizes: [i64; DIMENSIONS],
    pub(crate) count: usize,
}

/// The attributes of an operation.
pub(crate) struct OperationAttributes {
    pub(crate) op: u8,
    pub(crate) is_async: bool,
    pub(crate) root: i64,
}

impl PreHookReader {
    /// `size` is that of the objects that hooks are given.
    pub(crate) fn new(size: usize) -> Self {
        Self {
            is_believed: size == SIZE,
            compared: [false; 256],
            since: 0,
            shim: Shim::found(),
        }
    }

    /// Without asking, where that is to be believed.
    pub(crate) fn at(&mut self, given: &Bound<'_, PyAny>) -> Option<PreHookArgs> {
        let seen = self.is_believed.then(|| value_of(given)).flatten()?;
        self.since += 1;
        (self.compared[usize::from(seen.op)] && self.since < EVERY).then_some(seen)
    }

    /// Whether to believe it, from what the attributes say.
    pub(crate) fn compare(&mut self, given: &Bound<'_, PyAny>, asked: &OperationAttributes) {
        self.since = 0;
        self.compared[usize::from(asked.op)] = true;
        self.is_believed = self.is_believed
            && value_of(given).is_some_and(|seen| {
                seen.op == asked.op
                    && seen.is_async == u8::from(asked.is_async)
                    && seen.root == asked.root
                    && is_list(given, "input_tensors", seen.inputs)
                    && is_list(given, "output_tensors", seen.outputs)
            });
    }

    /// The one tensor that an operation takes, or gives: its sizes, and the number of its type. `None` where there are
    /// several, and where torch is to be asked otherwise.
    pub(crate) fn tensor(&self, told: &PreHookArgs) -> Option<(Sizes, i32)> {
        let list = if told.inputs.count() == 0 {
            told.outputs
        } else {
            told.inputs
        };
        (list.count() == 1).then(|| self.shim?.told(list.begin))?
    }
}

impl PreHookArgs {
    pub(crate) fn in_words(&self) -> OperationAttributes {
        OperationAttributes {
            op: self.op,
            is_async: self.is_async != 0,
            root: self.root,
        }
    }

    pub(crate) fn has_tensors(&self) -> bool {
        self.inputs.count() + self.outputs.count() > 0
    }
}

impl List {
    fn count(self) -> usize {
        (self.end as usize).wrapping_sub(self.begin as usize) / size_of::<usize>()
    }
}

impl Shim {
    fn found() -> Option<Self> {
        // SAFETY: the types that torch's header gives them, which it promises not to change.
        unsafe {
            Some(Self {
                dimensions: transmute::<NonNull<c_void>, TensorGetter<i64>>(function(
                    c"aoti_torch_get_dim",
                )?),
                sizes: transmute::<NonNull<c_void>, TensorGetter<*const i64>>(function(
                    c"aoti_torch_get_sizes",
                )?),
                dtype: transmute::<NonNull<c_void>, TensorGetter<i32>>(function(
                    c"aoti_torch_get_dtype",
                )?),
            })
        }
    }

    fn told(self, tensor: *const usize) -> Option<(Sizes, i32)> {
        let (mut count, mut sizes, mut dtype) = (0, std::ptr::null(), 0);
        // SAFETY: the address of a tensor, in a list that is believed; what they are given is theirs to fill. The sizes are
        // the tensor's own, as many as it has dimensions.
        unsafe {
            if (self.dimensions)(tensor, &raw mut count) != 0 {
                return None;
            }
            let count = usize::try_from(count).ok().filter(|it| *it <= DIMENSIONS)?;
            let is_told = (self.sizes)(tensor, &raw mut sizes) == 0
                && (self.dtype)(tensor, &raw mut dtype) == 0;
            if !is_told {
                return None;
            }
            let mut told = Sizes {
                count,
                ..Sizes::default()
            };
            for (place, size) in told.sizes[..count].iter_mut().enumerate() {
                *size = sizes.add(place).read();
            }
            Some((told, dtype))
        }
    }
}

/// A function of torch's library: of those for programs in C, or of what all groups have in common.
pub(crate) fn function(name: &CStr) -> Option<NonNull<c_void>> {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: the names end with NUL. Nothing is loaded that was not, and the library stays open.
    unsafe {
        let torch = NonNull::new(libc::dlopen(c"libtorch_cpu.so".as_ptr(), flags))?;
        NonNull::new(libc::dlsym(torch.as_ptr(), name.as_ptr()))
    }
}

/// Asks torch.
pub(crate) fn asked(given: &Bound<'_, PyAny>) -> PyResult<OperationAttributes> {
    let py = given.py();
    let name = given.getattr(interned!(py, "name"))?;
    let number = call(&name.getattr(interned!(py, "__int__"))?, ())?;
    Ok(OperationAttributes {
        op: number.extract()?,
        is_async: given.getattr(interned!(py, "async_op"))?.is_truthy()?,
        root: given.getattr(interned!(py, "root"))?.extract()?,
    })
}

/// Whether a list is that of the tensors which an attribute tells, one by one.
fn is_list(given: &Bound<'_, PyAny>, name: &str, seen: List) -> bool {
    let Ok(tensors) = given.getattr(name) else {
        return false;
    };
    let Ok(tensors) = tensors.cast::<PyList>() else {
        return false;
    };
    if tensors.len() != seen.count() || seen.end.addr() < seen.begin.addr() {
        return false;
    }
    tensors
        .iter()
        .take(MAX_COMPARED_TENSORS)
        .enumerate()
        .all(|(place, tensor)| {
            // Its address, as torch itself tells it.
            let address = tensor
                .getattr("_cdata")
                .and_then(|it| it.extract::<usize>());
            // SAFETY: of as many as there are.
            address.is_ok_and(|address| unsafe { seen.begin.add(place).read() } == address)
        })
}

fn value_of(given: &Bound<'_, PyAny>) -> Option<PreHookArgs> {
    // SAFETY: a live object of pybind11's, of a class without bases (by its size): behind the head is the address of its
    // value. That has two numbers, two lists and another number among its attributes, and so at least as many bytes; it lives
    // as long as the object, is not written to, and any bytes are a value of what is read.
    unsafe {
        let head = given.as_ptr();
        let value = head.add(1).cast::<Option<NonNull<PreHookArgs>>>().read();
        Some(value?.read())
    }
}
