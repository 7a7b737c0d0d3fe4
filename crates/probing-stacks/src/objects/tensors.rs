//! Tensors of torch: shape, type and device, never the data.
//!
//! They are C++ objects. Where their parts lie has changed between versions of torch, but each has a pointer back to its
//! Python object, right before its sizes: who finds that has found the rest. What then does not fit together is not shown.

use std::fmt;

use super::{Gap, Look, Type, View};
use crate::memory::u64_at;

/// Where the pointer to the C++ object is, behind the header of the Python object. (First there was a flag before it.)
const IMPLEMENTATION: [usize; 2] = [0, 8];
/// Where that has the pointer back. (It has lost a word, and then another.)
const BACK: [usize; 3] = [48, 56, 64];
/// The lowest bits of that pointer have been notes.
const NOTES: u64 = 7;
/// From the sizes on: their number; ten words with sizes and strides, or a pointer to more of them; an offset; the number
/// of elements; type and device.
const SIZES: usize = 8;
const ELEMENTS: usize = 96;
const TYPE: usize = 104;
const DEVICE: usize = 106;
const END: usize = 112;
/// More than so many sizes are not kept in place.
const IN_PLACE: usize = 5;
const MOST_SIZES: usize = 64;
const MOST_BASES: usize = 16;

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
    pub(crate) fn tensor(&self, object: u64, class: &Type) -> Look<Option<Tensor>> {
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
                return self.described(&bytes[back + 8..]);
            }
        }
        Ok(None)
    }

    fn is_tensor(&self, class: &Type) -> Look<bool> {
        let (mut name, mut base) = (class.name.clone(), class.base);
        for _ in 0..MOST_BASES {
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

    /// From the bytes that begin with the number of sizes.
    fn described(&self, bytes: &[u8]) -> Look<Option<Tensor>> {
        let word = |at: usize| u64_at(bytes, at).ok_or(Gap::Wrong);
        let count = usize::try_from(word(0)?).unwrap_or(usize::MAX);
        if count > MOST_SIZES {
            return Ok(None);
        }
        let shape = if count <= IN_PLACE {
            (0..count)
                .map(|n| word(SIZES + 8 * n))
                .collect::<Look<_>>()?
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
