//! Where the values of the next row go, and the quick way there: most values need nothing but a store.

use probing_proto::tables::schema::Kind;

use crate::ring::layout::{Layout, Slab, width};
use crate::ring::memory::Memory;
use crate::values::value::Value;

/// The columns of the chunk that is being written, but for the time.
#[derive(Debug)]
pub(crate) struct Columns {
    places: Vec<ColumnLayout>,
}

#[derive(Debug, Clone, Copy)]
struct ColumnLayout {
    way: ValueEncoding,
    /// Where the values of the chunk begin.
    values: u64,
    /// Where the bits begin that say which of them are there.
    validity: Option<u64>,
}

/// How a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueEncoding {
    Int,
    Float,
    Symbol,
    /// A whole number that fits into 32 bits.
    Word,
    Bit,
    /// Not by a store alone.
    Other,
}

impl ValueEncoding {
    fn of(slab: &Slab) -> Self {
        match slab.kind {
            Kind::I64 | Kind::Time => Self::Int,
            Kind::F64 => Self::Float,
            Kind::Symbol => Self::Symbol,
            Kind::U32 => Self::Word,
            Kind::Bool => Self::Bit,
            _ => Self::Other,
        }
    }
}

impl Columns {
    pub(crate) fn new(layout: &Layout) -> Self {
        let place = |slab: &Slab| ColumnLayout {
            way: ValueEncoding::of(slab),
            values: slab.values,
            validity: slab.validity,
        };
        let slabs = layout.slabs.iter().skip(1);
        Self {
            places: slabs.map(place).collect(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// Goes on in another chunk.
    pub(crate) fn begin(&mut self, layout: &Layout, chunk: u64) {
        let slabs = layout.slabs.iter().skip(1);
        for (place, slab) in self.places.iter_mut().zip(slabs) {
            place.values = chunk + slab.values;
            place.validity = slab.validity.map(|validity| chunk + validity);
        }
    }

    /// Stores the values of a row, if each of them needs nothing but a store.
    #[inline]
    pub(crate) fn put(&self, memory: &mut Memory, row: u32, values: &[Value<'_>]) -> bool {
        let at = u64::from(row);
        for (place, value) in self.places.iter().zip(values) {
            let (way, bits) = match value {
                Value::I64(value) if place.way == ValueEncoding::Word => {
                    match u32::try_from(*value) {
                        Ok(value) => (ValueEncoding::Word, u64::from(value)),
                        Err(_) => return false,
                    }
                }
                Value::I64(value) => (ValueEncoding::Int, value.cast_unsigned()),
                Value::F64(value) => (ValueEncoding::Float, value.to_bits()),
                Value::Symbol(id) => (ValueEncoding::Symbol, u64::from(*id)),
                Value::Bool(value) => (ValueEncoding::Bit, u64::from(*value)),
                // Zeros, so that nothing old shows.
                Value::Null if place.validity.is_some() => (place.way, 0),
                _ => return false,
            };
            if way != place.way {
                return false;
            }
            match way {
                ValueEncoding::Int | ValueEncoding::Float => {
                    memory.put(place.values + 8 * at, bits);
                }
                ValueEncoding::Symbol | ValueEncoding::Word => {
                    memory.put(place.values + 4 * at, bits as u32);
                }
                ValueEncoding::Bit => put_bit(memory, place.values, row, bits != 0),
                ValueEncoding::Other => return false,
            }
            if let Some(validity) = place.validity {
                put_bit(memory, validity, row, !matches!(value, Value::Null));
            }
        }
        true
    }
}

/// Stores a bit, and clears those of later rows: an older generation, or a row that was refused, may have left them.
#[inline]
pub(crate) fn put_bit(memory: &mut Memory, base: u64, row: u32, value: bool) {
    let (place, bit) = (base + u64::from(row / 8), row % 8);
    let before: u8 = memory.peek(place);
    memory.put(place, before & ((1 << bit) - 1) | u8::from(value) << bit);
}

/// Stores what stands where there is no value: zeros, so that nothing old shows.
pub(crate) fn put_nothing(memory: &mut Memory, kind: Kind, base: u64, row: u32) {
    match width(kind) {
        None => put_bit(memory, base, row, false),
        Some(1) => memory.put(base + u64::from(row), 0_u8),
        Some(2) => memory.put(base + 2 * u64::from(row), 0_u16),
        Some(4) => memory.put(base + 4 * u64::from(row), 0_u32),
        Some(8) => memory.put(base + 8 * u64::from(row), 0_u64),
        Some(_) => memory.put(base + 16 * u64::from(row), 0_u128),
    }
}
