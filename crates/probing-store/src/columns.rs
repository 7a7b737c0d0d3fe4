//! Where the values of the next row go, and the quick way there: most values need nothing but a store.

use probing_proto::store::Kind;

use crate::layout::{Layout, Slab};
use crate::memory::Memory;
use crate::value::Value;

/// The columns of the chunk that is being written, but for the time.
#[derive(Debug)]
pub(crate) struct Columns {
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    way: Way,
    /// Where the values of the chunk begin.
    values: u64,
}

/// How a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Int,
    Float,
    Symbol,
    /// Not by a store alone.
    Other,
}

impl Way {
    fn of(slab: &Slab) -> Self {
        match slab.kind {
            _ if slab.validity.is_some() => Self::Other,
            Kind::I64 | Kind::Time => Self::Int,
            Kind::F64 => Self::Float,
            Kind::Symbol => Self::Symbol,
            _ => Self::Other,
        }
    }
}

impl Columns {
    pub(crate) fn new(layout: &Layout) -> Self {
        let place = |slab: &Slab| Place {
            way: Way::of(slab),
            values: slab.values,
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
        }
    }

    /// Stores the values of a row, if each of them needs nothing but a store.
    #[inline]
    pub(crate) fn put(&self, memory: &mut Memory, row: u32, values: &[Value<'_>]) -> bool {
        let row = u64::from(row);
        for (place, value) in self.places.iter().zip(values) {
            let (way, bits) = match value {
                Value::I64(value) => (Way::Int, value.cast_unsigned()),
                Value::F64(value) => (Way::Float, value.to_bits()),
                Value::Symbol(id) => (Way::Symbol, u64::from(*id)),
                _ => return false,
            };
            if way != place.way {
                return false;
            }
            if way == Way::Symbol {
                memory.put(place.values + 4 * row, bits as u32);
            } else {
                memory.put(place.values + 8 * row, bits);
            }
        }
        true
    }
}
