//! Tensors of torch: shape, type and device, and the value of a scalar that the CPU has; no other data.
//!
//! They are C++ objects. Where their parts lie has changed between versions of torch, but each has a pointer back to its
//! Python object, right before its sizes: who finds that has found the rest. What then does not fit together is not shown.

use std::fmt;

use probing_proto::text::tensor_elements;

use crate::memory::u64_at;
use crate::python::objects::{Gap, ReadResult, Type, View};

/// Where the pointer to the C++ object is, behind the header of the Python object. (First there was a flag before it.)
const IMPLEMENTATION: [usize; 2] = [0, 8];
/// Where that has the pointer back. (It has lost a word, and then another.)
const BACK: [usize; 3] = [48, 56, 64];
/// The lowest bits of that pointer have been notes.
const NOTES: u64 = 7;
/// From the sizes on: their number; ten words with sizes and strides, or a pointer to more of them; an offset; the number
/// of elements; type and device.
const SIZES: usize = 8;
const OFFSET: usize = 88;
const ELEMENTS: usize = 96;
const TYPE: usize = 104;
const DEVICE: usize = 106;
const END: usize = 120;
/// Where the tensor has the pointer to its storage, and the storage that to its data: behind one word of counters, or two.
const STORAGE: [usize; 2] = [16, 24];
/// From there on in the storage: the device, and the size in bytes.
const DATA_DEVICE: usize = 24;
const DATA_SIZE: usize = 32;
/// Behind the device of a tensor: the keys that say how torch handles it.
const KEYS: usize = 112;
/// More than so many sizes are not kept in place.
const IN_PLACE: usize = 5;
const MAX_SIZES: usize = 64;
const MAX_BASES: usize = 16;

/// By their numbers, which never change.
const TYPES: [&str; 30] = [
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "bfloat16",
    "quint4x2",
    "quint2x4",
    "bits1x8",
    "bits2x4",
    "bits4x2",
    "bits8",
    "bits16",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e5m2fnuz",
    "float8_e4m3fnuz",
    "uint16",
    "uint32",
    "uint64",
];
const DEVICES: [&str; 21] = [
    "cpu",
    "cuda",
    "mkldnn",
    "opengl",
    "opencl",
    "ideep",
    "hip",
    "fpga",
    "maia",
    "xla",
    "vulkan",
    "metal",
    "xpu",
    "mps",
    "meta",
    "hpu",
    "ve",
    "lazy",
    "ipu",
    "mtia",
    "privateuseone",
];

/// What is known of a tensor without its data.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    shape: Vec<u64>,
    kind: &'static str,
    device: &'static str,
    /// Of several devices.
    index: Option<u8>,
    /// The one element of a scalar that the CPU has.
    element: Option<Vec<u8>>,
}

impl Tensor {
    /// With the name of its class.
    pub(crate) fn shown(&self, class: &str) -> String {
        let element = self.element.as_deref();
        element
            .and_then(|bytes| tensor_elements::scalar(class, self.kind, bytes))
            .unwrap_or_else(|| format!("{class}({self})"))
    }
}

/// As the probe writes it: `shape=(2, 3), dtype=float32, device=cuda:0`.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        let comma = if sizes.len() == 1 { "," } else { "" };
        let sizes = sizes.join(", ");
        let (kind, device) = (self.kind, self.device);
        write!(f, "shape=({sizes}{comma}), dtype={kind}, device={device}")?;
        self.index.map_or(Ok(()), |index| write!(f, ":{index}"))
    }
}

impl View<'_> {
    /// The tensor that an object is; `None` for others, and for what cannot be made out.
    pub(crate) fn tensor(&self, object: u64, class: &Type) -> ReadResult<Option<Tensor>> {
        if !class.is_heap() || !self.is_tensor(class)? {
            return Ok(None);
        }
        let header = self.interpreter.layout.builtins.header;
        for at in IMPLEMENTATION {
            let implementation = self.word(object, header + at)?;
            if !implementation.is_multiple_of(8) || implementation < 4096 {
                continue;
            }
            let bytes = match self.bytes(implementation, BACK[2] + 8 + END) {
                Err(Gap::Wrong) => continue,
                bytes => bytes?,
            };
            let is_back = |back: &&usize| {
                u64_at(&bytes, **back).is_some_and(|pointer| pointer & !NOTES == object)
            };
            if let Some(back) = BACK.iter().find(is_back) {
                let Some(mut tensor) = self.described(&bytes[back + 8..])? else {
                    return Ok(None);
                };
                tensor.element = self.element(&tensor, &bytes, back + 8)?;
                return Ok(Some(tensor));
            }
        }
        Ok(None)
    }

    fn is_tensor(&self, class: &Type) -> ReadResult<bool> {
        let (mut name, mut base) = (class.name.clone(), class.base);
        for _ in 0..MAX_BASES {
            if matches!(&*name, "TensorBase" | "_TensorBase") {
                return Ok(true);
            }
            if base == 0 {
                break;
            }
            let next = self.type_at(base)?;
            (name, base) = (next.name.clone(), next.base);
        }
        Ok(false)
    }

    /// The element of a scalar that the CPU has, where all fits together.
    fn element(&self, tensor: &Tensor, bytes: &[u8], sizes: usize) -> ReadResult<Option<Vec<u8>>> {
        let Some(width) = tensor_elements::width(tensor.kind) else {
            return Ok(None);
        };
        let keys = u64_at(bytes, sizes + KEYS).ok_or(Gap::Wrong)?;
        // The keys of a tensor on the CPU are five, or three without gradients. One more may be that of numbers that have
        // the other sign in memory.
        if !tensor.shape.is_empty() || tensor.device != "cpu" || keys.count_ones() % 2 == 0 {
            return Ok(None);
        }
        let offset = u64_at(bytes, sizes + OFFSET).ok_or(Gap::Wrong)?;
        let Some(begin) = offset.checked_mul(width as u64) else {
            return Ok(None);
        };
        for at in STORAGE {
            let storage = u64_at(bytes, at).ok_or(Gap::Wrong)?;
            if !storage.is_multiple_of(8) || storage < 4096 {
                continue;
            }
            let found = match self.bytes(storage + at as u64, DATA_SIZE + 8) {
                Err(Gap::Wrong) => continue,
                found => found?,
            };
            let word = |at| u64_at(&found, at).ok_or(Gap::Wrong);
            let (data, size) = (word(0)?, word(DATA_SIZE)?);
            let is_inside = begin
                .checked_add(width as u64)
                .is_some_and(|end| end <= size);
            let Some(address) = data
                .checked_add(begin)
                .filter(|_| data >= 4096 && is_inside)
            else {
                continue;
            };
            if found[DATA_DEVICE] != 0 {
                continue;
            }
            return match self.bytes(address, width) {
                Err(Gap::Wrong) => Ok(None),
                element => Ok(Some(element?.to_vec())),
            };
        }
        Ok(None)
    }

    /// From the bytes that begin with the number of sizes.
    fn described(&self, bytes: &[u8]) -> ReadResult<Option<Tensor>> {
        let word = |at: usize| u64_at(bytes, at).ok_or(Gap::Wrong);
        let count = usize::try_from(word(0)?).unwrap_or(usize::MAX);
        if count > MAX_SIZES {
            return Ok(None);
        }
        let shape = if count <= IN_PLACE {
            (0..count)
                .map(|n| word(SIZES + 8 * n))
                .collect::<ReadResult<_>>()?
        } else {
            match self.words(word(SIZES)?, count) {
                Err(Gap::Wrong) => return Ok(None),
                shape => shape?,
            }
        };
        let elements = shape
            .iter()
            .try_fold(1_u64, |product, size| product.checked_mul(*size));
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(u8::MAX);
        let kind = TYPES.get(usize::from(u16::from_le_bytes([
            byte(TYPE),
            byte(TYPE + 1),
        ])));
        let device = DEVICES.get(usize::from(byte(DEVICE)));
        let is_known = byte(DEVICE + 2) == 1;
        Ok(match (kind, device) {
            (Some(kind), Some(device)) if elements == Some(word(ELEMENTS)?) && is_known => {
                Some(Tensor {
                    shape,
                    kind,
                    device,
                    index: Some(byte(DEVICE + 1)).filter(|index| i8::try_from(*index).is_ok()),
                    element: None,
                })
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_written_as_the_probe_writes_it() {
        let tensor = |shape: &[u64], index| Tensor {
            shape: shape.to_vec(),
            kind: "float32",
            device: "cuda",
            index,
            element: None,
        };
        for (tensor, text) in [
            (
                tensor(&[], Some(0)),
                "shape=(), dtype=float32, device=cuda:0",
            ),
            (tensor(&[2], None), "shape=(2,), dtype=float32, device=cuda"),
            (
                tensor(&[2, 3], Some(7)),
                "shape=(2, 3), dtype=float32, device=cuda:7",
            ),
        ] {
            assert_eq!(tensor.to_string(), text);
        }
    }
}
