//! The least and greatest value of each column of a chunk, by which readers skip chunks.
//!
//! The least and the greatest value of each column of a chunk, so that a reader can leave out what cannot matter;
//! and what it need not read to know.
//!
//! The writer knows them when a chunk is full; the bounds of the time it knows always. What is empty does not count.

use probing_proto::tables::schema::Kind;

use crate::ring::layout::{Layout, values_bytes};
use crate::ring::memory::Memory;

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

/// What else is known of a column in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Rows that have a value.
    pub values: u32,
    /// The sum of whole numbers, as wide as they are: it may have wrapped.
    pub sum: Option<i64>,
}

impl Tally {
    const SUMMED: u64 = 1 << 32;

    /// As it stands in a ring, behind the zone.
    pub(crate) fn to_words(self) -> [u64; 2] {
        let summed = if self.sum.is_some() { Self::SUMMED } else { 0 };
        let sum = self.sum.unwrap_or(0).cast_unsigned();
        [sum, u64::from(self.values) | summed]
    }

    /// Of a chunk of so many rows. Like zones these are hints: wrong ones are wrong about rows of that file only.
    pub(crate) fn from_words([sum, rest]: [u64; 2], rows: u32) -> Self {
        Self {
            values: (rest as u32).min(rows),
            sum: (rest & Self::SUMMED != 0).then_some(sum.cast_signed()),
        }
    }

    /// Of a column that has no values.
    pub(crate) const NOTHING: Self = Self {
        values: 0,
        sum: Some(0),
    };
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

/// What there is to know of a column of the chunk at `chunk`, by looking at all of its rows.
pub(crate) fn of_column(
    memory: &Memory,
    layout: &Layout,
    chunk: u64,
    column: usize,
    rows: u32,
) -> (Option<Zone>, Tally) {
    let slab = &layout.slabs[column];
    let slice = |offset, kind| memory.bytes(chunk + offset, values_bytes(kind, rows) as usize);
    let values = slice(slab.values, slab.kind);
    let validity = slab.validity.map(|offset| slice(offset, Kind::Bool));
    let there = ValidRows {
        rows,
        // Mostly nothing is missing, and then nobody need look.
        validity: validity.filter(|bits| count(bits, rows) < rows),
    };
    let bit = |row: u32| i64::from(values[row as usize / 8] >> (row % 8) & 1);
    match slab.kind {
        Kind::Bool => unsummed(there.ints((0..rows).map(bit))),
        Kind::U8 => there.ints(values.iter().map(|value| i64::from(*value))),
        Kind::U16 => there.ints(each(values).map(|b| i64::from(u16::from_le_bytes(b)))),
        Kind::I32 => there.ints(each(values).map(|b| i64::from(i32::from_le_bytes(b)))),
        Kind::U32 => there.words(each(values).map(u32::from_le_bytes)),
        Kind::I64 => there.ints(each(values).map(i64::from_le_bytes)),
        Kind::Time => unsummed(there.ints(each(values).map(i64::from_le_bytes))),
        Kind::F64 => there.floats(each(values).map(f64::from_le_bytes)),
        Kind::Bytes16 | Kind::Symbol | Kind::Text => {
            let values = there.count();
            (None, Tally { values, sum: None })
        }
    }
}

fn unsummed((zone, tally): (Option<Zone>, Tally)) -> (Option<Zone>, Tally) {
    (zone, Tally { sum: None, ..tally })
}

fn each<const N: usize>(values: &[u8]) -> impl Iterator<Item = [u8; N]> + Clone + '_ {
    values.as_chunks::<N>().0.iter().copied()
}

/// Which rows have a value.
#[derive(Clone, Copy)]
struct ValidRows<'a> {
    rows: u32,
    /// `None`: all.
    validity: Option<&'a [u8]>,
}

impl ValidRows<'_> {
    fn count(self) -> u32 {
        self.validity
            .map_or(self.rows, |bits| count(bits, self.rows))
    }

    fn ints(self, values: impl Iterator<Item = i64> + Clone) -> (Option<Zone>, Tally) {
        let ((min, max), tally) = self.tally(values);
        let zone = if min <= max {
            Zone::Int { min, max }
        } else {
            Zone::Empty
        };
        (Some(zone), tally)
    }

    /// The same of words, which are compared several at a time.
    fn words(self, values: impl Iterator<Item = u32> + Clone) -> (Option<Zone>, Tally) {
        if self.validity.is_some() || self.rows == 0 {
            return self.ints(values.map(i64::from));
        }
        let within = |(min, max): (u32, u32), value: u32| (min.min(value), max.max(value));
        let (min, max) = values.clone().fold((u32::MAX, 0), within);
        let sum = values.map(u64::from).fold(0, u64::wrapping_add);
        let (min, max) = (i64::from(min), i64::from(max));
        let tally = Tally {
            values: self.rows,
            sum: Some(sum.cast_signed()),
        };
        (Some(Zone::Int { min, max }), tally)
    }

    /// No zone where there is a NaN, of which engines think differently: greater than all, or unlike all. Nor a sum:
    /// that of floats depends on their order.
    fn floats(self, values: impl Iterator<Item = f64> + Clone) -> (Option<Zone>, Tally) {
        let ((min, max), tally) = self.tally(values.map(ordered));
        if min > max {
            return unsummed((Some(Zone::Empty), tally));
        }
        let (min, max) = (from_ordered(min), from_ordered(max));
        // In the order of numbers NaNs are first and last.
        let is_nan = min.is_nan() || max.is_nan();
        unsummed(((!is_nan).then_some(Zone::Float { min, max }), tally))
    }

    /// The least and the greatest, and the rest. The least is greater than the greatest when there is nothing.
    fn tally(self, values: impl Iterator<Item = i64> + Clone) -> ((i64, i64), Tally) {
        let within = |(min, max): (i64, i64), value: i64| (min.min(value), max.max(value));
        let none = (i64::MAX, i64::MIN);
        let (bounds, sum) = match self.validity {
            None => (
                values.clone().fold(none, within),
                values.fold(0, i64::wrapping_add),
            ),
            Some(bits) => (
                valid(values.clone(), bits).fold(none, within),
                valid(values, bits).fold(0, i64::wrapping_add),
            ),
        };
        let tally = Tally {
            values: self.count(),
            sum: Some(sum),
        };
        (bounds, tally)
    }
}

/// A number that is less or greater where the float is (as by `total_cmp`).
fn ordered(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    bits ^ (bits >> 63) & i64::MAX
}

fn from_ordered(number: i64) -> f64 {
    f64::from_bits((number ^ (number >> 63) & i64::MAX).cast_unsigned())
}

/// How many of the first bits are set.
pub(crate) fn count(bits: &[u8], rows: u32) -> u32 {
    let (whole, rest) = (rows as usize / 8, rows % 8);
    let set: u32 = bits.iter().take(whole).map(|byte| byte.count_ones()).sum();
    let last = bits.get(whole).map_or(0, |byte| byte & ((1 << rest) - 1));
    set + last.count_ones()
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
    fn what_is_known_of_a_column_comes_back_from_its_words() {
        for tally in [
            Tally::NOTHING,
            Tally {
                values: 4096,
                sum: Some(-1),
            },
            Tally {
                values: 3,
                sum: None,
            },
        ] {
            assert_eq!(Tally::from_words(tally.to_words(), 4096), tally);
        }
        // There cannot be more values than rows.
        assert_eq!(Tally::from_words([0, u64::MAX], 64).values, 64);
    }

    #[test]
    fn only_bits_of_rows_are_counted() {
        assert_eq!(count(&[0xff, 0xff], 11), 11);
        assert_eq!(count(&[0x0f, 0b101], 9), 5);
        assert_eq!(count(&[], 0), 0);
    }

    #[test]
    fn the_zone_of_floats_is_in_their_order_and_unknown_with_a_nan() {
        let zone = |values: &[f64]| {
            let rows = values.len() as u32;
            let all = ValidRows {
                rows,
                validity: None,
            };
            all.floats(values.iter().copied()).0
        };
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
