//! The least and the greatest value of each column of a chunk, so that a reader can leave out what cannot matter.
//!
//! The writer knows them when a chunk is full; that of the time it knows always. What is empty does not count.

use probing_proto::store::Kind;

use crate::layout::{Layout, values_bytes};
use crate::memory::Memory;

/// All values of a column in a chunk are between these (`None` and NaN apart).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Zone {
    /// Of integers, bools and times.
    Int { min: i64, max: i64 },
    /// Of floats.
    Float { min: f64, max: f64 },
    /// There is no value that could be compared.
    Empty,
}

impl Zone {
    /// What stands in a ring where nothing is known.
    pub(crate) const UNKNOWN: [u64; 2] = [u64::MAX, u64::MAX - 1];

    /// As it stands in a ring. The least is greater than the greatest when there is nothing.
    pub(crate) fn to_words(self) -> [u64; 2] {
        match self {
            Self::Int { min, max } => [min as u64, max as u64],
            Self::Float { min, max } => [min.to_bits(), max.to_bits()],
            Self::Empty => [1, 0],
        }
    }

    /// `None` for kinds that have no zone. Zones are hints from a file: a wrong one can only hide rows of that file.
    pub(crate) fn from_words(kind: Kind, [min, max]: [u64; 2]) -> Option<Self> {
        if [min, max] == [1, 0] {
            return is_compared(kind).then_some(Self::Empty);
        }
        match kind {
            Kind::F64 => {
                let (min, max) = (f64::from_bits(min), f64::from_bits(max));
                (min <= max).then_some(Self::Float { min, max })
            }
            _ if is_compared(kind) => {
                let (min, max) = (min as i64, max as i64);
                (min <= max).then_some(Self::Int { min, max })
            }
            _ => None,
        }
    }

    /// The same, of values that are `offset` later.
    pub(crate) fn shifted(self, offset: i64) -> Self {
        match self {
            Self::Int { min, max } => Self::Int {
                min: min.saturating_add(offset),
                max: max.saturating_add(offset),
            },
            other => other,
        }
    }
}

fn is_compared(kind: Kind) -> bool {
    match kind {
        Kind::Time
        | Kind::Bool
        | Kind::U8
        | Kind::U16
        | Kind::I32
        | Kind::U32
        | Kind::I64
        | Kind::F64 => true,
        Kind::Bytes16 | Kind::Symbol | Kind::Text => false,
    }
}

/// The zone of a column of the chunk at `chunk`, by looking at all of its rows.
pub(crate) fn of_column(
    memory: &Memory,
    layout: &Layout,
    chunk: u64,
    column: usize,
    rows: u32,
) -> Option<Zone> {
    let slab = &layout.slabs[column];
    let slice = |offset, kind| memory.bytes(chunk + offset, values_bytes(kind, rows) as usize);
    let values = slice(slab.values, slab.kind);
    let validity = slab.validity.map(|offset| slice(offset, Kind::Bool));
    let bit = |bits: &[u8], row: usize| bits[row / 8] >> (row % 8) & 1;
    match slab.kind {
        Kind::Bool => Some(ints(
            (0..rows as usize).map(|row| i64::from(bit(values, row))),
            validity,
        )),
        Kind::U8 => Some(ints(values.iter().map(|value| i64::from(*value)), validity)),
        Kind::U16 => Some(ints(
            each(values).map(|b| i64::from(u16::from_le_bytes(b))),
            validity,
        )),
        Kind::I32 => Some(ints(
            each(values).map(|b| i64::from(i32::from_le_bytes(b))),
            validity,
        )),
        Kind::U32 => Some(ints(
            each(values).map(|b| i64::from(u32::from_le_bytes(b))),
            validity,
        )),
        Kind::Time | Kind::I64 => Some(ints(each(values).map(i64::from_le_bytes), validity)),
        Kind::F64 => floats(each(values).map(f64::from_le_bytes), validity),
        Kind::Bytes16 | Kind::Symbol | Kind::Text => None,
    }
}

fn each<const N: usize>(values: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    values.as_chunks::<N>().0.iter().copied()
}

fn ints(values: impl Iterator<Item = i64>, validity: Option<&[u8]>) -> Zone {
    let (min, max) = bounds(values, validity);
    if min <= max {
        Zone::Int { min, max }
    } else {
        Zone::Empty
    }
}

/// `None` where there is a NaN, of which engines think differently: greater than all, or unlike all.
fn floats(values: impl Iterator<Item = f64>, validity: Option<&[u8]>) -> Option<Zone> {
    let (min, max) = bounds(values.map(ordered), validity);
    if min > max {
        return Some(Zone::Empty);
    }
    let (min, max) = (from_ordered(min), from_ordered(max));
    // In the order of numbers NaNs are first and last.
    let is_nan = min.is_nan() || max.is_nan();
    (!is_nan).then_some(Zone::Float { min, max })
}

/// A number that is less or greater where the float is (as by `total_cmp`).
fn ordered(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    bits ^ (bits >> 63) & i64::MAX
}

fn from_ordered(number: i64) -> f64 {
    f64::from_bits((number ^ (number >> 63) & i64::MAX).cast_unsigned())
}

/// The least is greater than the greatest when there is nothing.
fn bounds(values: impl Iterator<Item = i64>, validity: Option<&[u8]>) -> (i64, i64) {
    let within = |(min, max): (i64, i64), value: i64| (min.min(value), max.max(value));
    let none = (i64::MAX, i64::MIN);
    match validity {
        None => values.fold(none, within),
        Some(bits) => valid(values, bits).fold(none, within),
    }
}

fn valid<T>(values: impl Iterator<Item = T>, bits: &[u8]) -> impl Iterator<Item = T> {
    values
        .enumerate()
        .filter(|(row, _)| {
            bits.get(row / 8)
                .is_some_and(|byte| byte >> (row % 8) & 1 == 1)
        })
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_of_floats_is_in_their_order_and_unknown_with_a_nan() {
        let zone = |values: &[f64]| floats(values.iter().copied(), None);
        assert_eq!(zone(&[]), Some(Zone::Empty));
        for values in [
            vec![1.5],
            vec![-0.5, -1e300, -f64::MIN_POSITIVE],
            vec![2.0, f64::INFINITY, -3.0, f64::NEG_INFINITY, 5e-324],
        ] {
            let min = values.iter().copied().fold(f64::INFINITY, f64::min);
            let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert_eq!(zone(&values), Some(Zone::Float { min, max }));
        }
        let zeros = zone(&[0.0, -0.0]).unwrap();
        assert_eq!(zeros.to_words(), [(-0.0_f64).to_bits(), 0]);
        for nan in [f64::NAN, -f64::NAN] {
            assert_eq!(zone(&[1.0, nan, f64::INFINITY]), None);
        }
    }
}
