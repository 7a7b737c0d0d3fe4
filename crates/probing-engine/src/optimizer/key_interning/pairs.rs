//! Numbers in place of pairs of numbers.
//!
//! Mostly few of those that could be are not there, and a pair is found by where it stands; else by its value.

use crate::optimizer::key_interning::NONE;
use crate::optimizer::key_interning::numbers::Numbers;

/// Places in all that may be empty, whatever is there.
const MAX_EMPTY_CELLS: usize = 1 << 16;
/// Places for each pair that is there, beyond those.
const SPARSE: usize = 8;

/// A table from pairs to their numbers.
#[derive(Debug)]
pub(super) struct Pairs(PairStorage);

#[derive(Debug)]
enum PairStorage {
    ByPlace(DenseGrid),
    ByValue(Numbers),
}

/// A row for each first number, as wide as the greatest second one wants it.
#[derive(Debug, Default)]
struct DenseGrid {
    width_bits: u32,
    cells: Vec<u32>,
    /// By number.
    pairs: Vec<u64>,
    is_closed: bool,
}

impl Pairs {
    pub(super) fn new() -> Self {
        Self(PairStorage::ByPlace(DenseGrid::default()))
    }

    #[inline]
    pub(super) fn number(&mut self, first: u32, second: u32) -> u32 {
        if let PairStorage::ByPlace(places) = &mut self.0 {
            if let Some(number) = places.number(first, second) {
                return number;
            }
            let mut numbers = Numbers::new();
            for pair in &places.pairs {
                numbers.number(*pair);
            }
            self.0 = PairStorage::ByValue(numbers);
        }
        match &mut self.0 {
            PairStorage::ByValue(numbers) => numbers.number(joined(first, second)),
            PairStorage::ByPlace(_) => NONE,
        }
    }

    /// No more of them: a pair that has not come before has [`NONE`] from now on.
    pub(super) fn close(&mut self) {
        match &mut self.0 {
            PairStorage::ByPlace(places) => places.is_closed = true,
            PairStorage::ByValue(numbers) => numbers.close(),
        }
    }

    /// By number: the first in the upper half, the second in the lower one.
    pub(super) fn values(&self) -> &[u64] {
        match &self.0 {
            PairStorage::ByPlace(places) => &places.pairs,
            PairStorage::ByValue(numbers) => numbers.values(),
        }
    }

    pub(super) fn size(&self) -> usize {
        match &self.0 {
            PairStorage::ByPlace(places) => {
                places.cells.capacity() * size_of::<u32>()
                    + places.pairs.capacity() * size_of::<u64>()
            }
            PairStorage::ByValue(numbers) => numbers.size(),
        }
    }
}

impl DenseGrid {
    /// `None`: too few of the places are taken.
    #[inline]
    fn number(&mut self, first: u32, second: u32) -> Option<u32> {
        let is_wide = u64::from(second) >> self.width_bits == 0;
        let place = (first as usize) << self.width_bits | second as usize;
        if is_wide
            && let Some(&number) = self.cells.get(place)
            && number != NONE
        {
            return Some(number);
        }
        self.add(first, second)
    }

    fn add(&mut self, first: u32, second: u32) -> Option<u32> {
        if self.is_closed {
            return Some(NONE);
        }
        let most = MAX_EMPTY_CELLS + SPARSE * self.pairs.len();
        let width_bits = self.width_bits.max(u32::BITS - second.leading_zeros());
        let rows = (first as usize + 1).max(self.cells.len() >> self.width_bits);
        let wanted = rows
            .checked_shl(width_bits)
            .filter(|cells| *cells <= most)?;
        if width_bits > self.width_bits {
            self.width_bits = width_bits;
            self.cells = vec![NONE; wanted];
            for (number, pair) in self.pairs.iter().enumerate() {
                let place = ((pair >> 32) as usize) << width_bits | *pair as u32 as usize;
                self.cells[place] = number as u32;
            }
        } else if wanted > self.cells.len() {
            self.cells.resize(wanted, NONE);
        }
        let number = self.pairs.len() as u32;
        self.cells[(first as usize) << width_bits | second as usize] = number;
        self.pairs.push(joined(first, second));
        Some(number)
    }
}

fn joined(first: u32, second: u32) -> u64 {
    u64::from(first) << 32 | u64::from(second)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn pairs_have_the_numbers_in_which_they_came() {
        let dense: Vec<(u32, u32)> = (0..40_000).map(|row| (row / 800, row % 200)).collect();
        let late: Vec<(u32, u32)> = (0..5_000).map(|row| (row % 7, row / 3)).collect();
        let sparse: Vec<(u32, u32)> = (0..3_000)
            .map(|row: u32| (row, row.wrapping_mul(2_654_435_761)))
            .collect();
        let both = [&dense[..], &sparse[..], &dense[..], &late[..]].concat();
        for rows in [dense, late, sparse, both] {
            let mut pairs = Pairs::new();
            let mut known = HashMap::new();
            for (first, second) in rows {
                let next = known.len() as u32;
                let wanted = *known.entry((first, second)).or_insert(next);
                assert_eq!(pairs.number(first, second), wanted);
            }
            assert_eq!(pairs.values().len(), known.len());
            for ((first, second), number) in known {
                assert_eq!(pairs.values()[number as usize], joined(first, second));
            }
        }
    }

    #[test]
    fn places_that_stay_empty_are_few() {
        let mut pairs = Pairs::new();
        for row in 0..20_000 {
            pairs.number(row, row);
        }
        assert!(matches!(pairs.0, PairStorage::ByValue(_)));
        assert!(pairs.size() < 4 << 20);
    }
}
