//! Numbers in place of values: 0 for the first that comes, 1 for the next that is new.

use ahash::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Places for values that came lately: a power of two, and few enough to stay near the processor.
const RECENT_BITS: u32 = 11;
/// The number of a value that has none.
pub(crate) const NONE: u32 = u32::MAX;

/// A table from values of 64 bits to their numbers.
#[derive(Debug)]
pub(super) struct Numbers {
    hasher: RandomState,
    table: HashTable<InternedNumber>,
    /// By number.
    values: Vec<u64>,
    recent: Vec<InternedNumber>,
    is_closed: bool,
}

#[derive(Debug, Clone, Copy)]
struct InternedNumber {
    value: u64,
    number: u32,
}

impl Numbers {
    pub(super) fn new() -> Self {
        let nothing = InternedNumber {
            value: 0,
            number: NONE,
        };
        Self {
            hasher: RandomState::new(),
            table: HashTable::new(),
            values: Vec::new(),
            recent: vec![nothing; 1 << RECENT_BITS],
            is_closed: false,
        }
    }

    #[inline]
    pub(super) fn number(&mut self, value: u64) -> u32 {
        let place = slot(value);
        let recent = self.recent[place];
        if recent.value == value && recent.number != NONE {
            return recent.number;
        }
        let number = self.look_up(value);
        self.recent[place] = InternedNumber { value, number };
        number
    }

    /// Adds the number of each value. Mostly it is that of the one before.
    pub(super) fn numbers(&mut self, values: &[i64], numbers: &mut Vec<u32>) {
        let mut last = None;
        numbers.extend(values.iter().map(|value| match last {
            Some((known, number)) if known == value => number,
            _ => {
                let number = self.number(value.cast_unsigned());
                last = Some((value, number));
                number
            }
        }));
    }

    /// No more of them: a value that has not come before has [`NONE`] from now on.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// A number that stands for no value.
    pub(super) fn reserve(&mut self) -> u32 {
        if self.is_closed {
            return NONE;
        }
        self.values.push(0);
        self.values.len() as u32 - 1
    }

    pub(super) fn values(&self) -> &[u64] {
        &self.values
    }

    pub(super) fn size(&self) -> usize {
        self.values.capacity() * size_of::<u64>()
            + self.table.allocation_size()
            + self.recent.capacity() * size_of::<InternedNumber>()
    }

    fn look_up(&mut self, value: u64) -> u32 {
        let (hasher, values) = (&self.hasher, &mut self.values);
        let hash = hasher.hash_one(value);
        if self.is_closed {
            let known = self.table.find(hash, |known| known.value == value);
            return known.map_or(NONE, |known| known.number);
        }
        let entry = self.table.entry(
            hash,
            |known| known.value == value,
            |known| hasher.hash_one(known.value),
        );
        match entry {
            Entry::Occupied(entry) => entry.get().number,
            Entry::Vacant(entry) => {
                let number = values.len() as u32;
                entry.insert(InternedNumber { value, number });
                values.push(value);
                number
            }
        }
    }
}

fn slot(value: u64) -> usize {
    (value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - RECENT_BITS)) as usize
}
