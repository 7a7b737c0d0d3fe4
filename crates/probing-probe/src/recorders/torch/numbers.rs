//! The numbers of a tensor, where they lie in this process's memory.
//!
//! torch tells by `DLPack`, a C structure that others rely on, too: one call, which runs none of the program's code, whatever
//! modes it is in, and which holds on to the memory until we let go of it.
#![expect(
    unsafe_code,
    reason = "reads a structure of C, and the memory that it tells of"
)]

use std::ffi::{c_int, c_void};
use std::slice;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::call::call;
use crate::recorders::torch::statistics::{self, BFloat16, Float16, StridedLayout};
use crate::recording::statistics::Statistics;

/// Fewer numbers are looked at without letting go of the GIL: it takes some microseconds.
const MAX_WITH_GIL: usize = 1 << 16;
/// More dimensions than torch has.
const MAX_DIMENSIONS: c_int = 64;

/// `DLDevice`
#[repr(C)]
struct Device {
    kind: i32,
    number: i32,
}

/// `DLTensor`
#[repr(C)]
struct Described {
    data: *const c_void,
    device: Device,
    dimensions: i32,
    kind: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    /// May be null: then the last dimension is side by side.
    strides: *const i64,
    byte_offset: u64,
}

/// `kDLCPU`, `kDLInt`, and so on.
const CPU: i32 = 1;
const INT: u8 = 0;
const UNSIGNED: u8 = 1;
const FLOAT: u8 = 2;
const BRAIN: u8 = 4;
const BOOL: u8 = 6;

/// A tensor whose numbers can be looked at.
pub(crate) struct Numbers<'py> {
    /// Holds on to the memory.
    _capsule: Bound<'py, PyAny>,
    data: *const u8,
    kind: (u8, u8),
    lie: StridedLayout,
    shape: Vec<i64>,
}

/// What can go into another thread's hands: it is read only, while the capsule stays with us.
struct Memory(*const u8);

// SAFETY: the memory is read by one thread at a time, and held by the capsule.
unsafe impl Send for Memory {}
// SAFETY: nobody writes to the memory through this, so that several threads may hold the address.
unsafe impl Sync for Memory {}

impl<'py> Numbers<'py> {
    /// `None` for tensors that are not in this memory, or whose numbers are of a kind that is left to torch.
    pub(crate) fn of(tell: &Bound<'py, PyAny>, tensor: &Bound<'py, PyAny>) -> Option<Self> {
        // It refuses what has no memory: wrapped by `vmap`, sparse, without data.
        let capsule = call(tell, (tensor,)).ok()?;
        // SAFETY: the GIL is held. Null, without an exception left, for what is no such capsule.
        let described = unsafe {
            let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), c"dltensor".as_ptr());
            if pointer.is_null() {
                ffi::PyErr_Clear();
            }
            pointer.cast::<Described>().as_ref()?
        };
        if described.device.kind != CPU
            || described.lanes != 1
            || !(0..=MAX_DIMENSIONS).contains(&described.dimensions)
        {
            return None;
        }
        let dimensions = described.dimensions as usize;
        // SAFETY: torch gives as many of each as there are dimensions; a tensor of none may have no list.
        let (shape, strides) = unsafe {
            (
                list(described.shape, dimensions)?,
                list(described.strides, dimensions)?,
            )
        };
        let kind = (described.kind, described.bits);
        let offset = usize::try_from(described.byte_offset).ok()?;
        let data = described.data.cast::<u8>().wrapping_add(offset);
        let lie = StridedLayout::new(shape, strides);
        let shape = shape.to_vec();
        let width = usize::from(described.bits / 8).max(1);
        let is_there = !data.is_null() || shape.contains(&0);
        (is_there && (data as usize).is_multiple_of(width) && is_known(kind)).then_some(Self {
            _capsule: capsule,
            data,
            kind,
            lie,
            shape,
        })
    }

    /// As torch calls it.
    pub(crate) fn dtype(&self) -> &'static str {
        match self.kind {
            (FLOAT, 32) => "float32",
            (FLOAT, 64) => "float64",
            (FLOAT, _) => "float16",
            (BRAIN, _) => "bfloat16",
            (BOOL, _) => "bool",
            (INT, 8) => "int8",
            (INT, 16) => "int16",
            (INT, 32) => "int32",
            (INT, _) => "int64",
            (_, 8) => "uint8",
            (_, 16) => "uint16",
            (_, 32) => "uint32",
            _ => "uint64",
        }
    }

    pub(crate) fn shape(&self) -> &[i64] {
        &self.shape
    }

    pub(crate) fn count(&self) -> usize {
        self.shape
            .iter()
            .map(|&size| size.max(0) as usize)
            .fold(1, usize::saturating_mul)
    }

    /// One pass over all of them. Lets go of the GIL for many, as torch's own operations do, and with the same right: who
    /// takes a tensor's memory away while it is in use breaks those, too.
    pub(crate) fn statistics(&self, py: Python<'_>) -> Statistics {
        if self.count() < MAX_WITH_GIL {
            return self.look();
        }
        let (memory, kind, lie) = (Memory(self.data), self.kind, &self.lie);
        py.detach(move || {
            let memory = memory;
            // SAFETY: as in `look`.
            unsafe { look_at(memory.0, kind, lie) }
        })
    }

    fn look(&self) -> Statistics {
        // SAFETY: the capsule holds the memory, torch has told how the numbers lie in it, and their kind is known. Other
        // threads may write to it meanwhile, as to any tensor: then some of the numbers are older than others.
        unsafe { look_at(self.data, self.kind, &self.lie) }
    }
}

fn is_known(kind: (u8, u8)) -> bool {
    matches!(
        kind,
        (INT | UNSIGNED, 8 | 16 | 32 | 64) | (FLOAT, 16 | 32 | 64) | (BRAIN, 16) | (BOOL, 8)
    )
}

/// # Safety
///
/// Numbers of this kind, which is known, lie so from `data` on, aligned, in memory that stays.
#[expect(clippy::cast_ptr_alignment, reason = "the caller promises it")]
unsafe fn look_at(data: *const u8, kind: (u8, u8), lie: &StridedLayout) -> Statistics {
    // SAFETY: as the caller says.
    unsafe {
        match kind {
            (FLOAT, 32) => statistics::compute(data.cast::<f32>(), lie),
            (FLOAT, 64) => statistics::compute(data.cast::<f64>(), lie),
            (FLOAT, _) => statistics::compute(data.cast::<Float16>(), lie),
            (BRAIN, _) => statistics::compute(data.cast::<BFloat16>(), lie),
            (INT, 8) => statistics::compute(data.cast::<i8>(), lie),
            (INT, 16) => statistics::compute(data.cast::<i16>(), lie),
            (INT, 32) => statistics::compute(data.cast::<i32>(), lie),
            (INT, _) => statistics::compute(data.cast::<i64>(), lie),
            (UNSIGNED, 16) => statistics::compute(data.cast::<u16>(), lie),
            (UNSIGNED, 32) => statistics::compute(data.cast::<u32>(), lie),
            (UNSIGNED, 64) => statistics::compute(data.cast::<u64>(), lie),
            _ => statistics::compute(data, lie),
        }
    }
}

/// # Safety
///
/// Null, or as many numbers.
unsafe fn list<'a>(first: *const i64, count: usize) -> Option<&'a [i64]> {
    if count == 0 {
        return Some(&[]);
    }
    // SAFETY: as the caller says.
    (!first.is_null()).then(|| unsafe { slice::from_raw_parts(first, count) })
}
