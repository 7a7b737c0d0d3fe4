//! Maps by address: quick, and not to be made slow by a target that chooses its addresses.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

pub type AddressMap<V> = HashMap<u64, V, ByAddress>;
pub type AddressSet = HashSet<u64, ByAddress>;

/// Hashes one number, with a seed that is another in each map.
#[derive(Debug, Clone)]
pub struct ByAddress {
    seed: u64,
}

impl Default for ByAddress {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0u64);
        Self { seed }
    }
}

impl BuildHasher for ByAddress {
    type Hasher = AddressHasher;

    #[inline]
    fn build_hasher(&self) -> AddressHasher {
        AddressHasher { hash: self.seed }
    }
}

#[derive(Debug)]
pub struct AddressHasher {
    hash: u64,
}

impl Hasher for AddressHasher {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        // Every bit of the number changes half of the bits of the hash.
        let mut hash = self.hash ^ number;
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.hash = hash ^ (hash >> 31);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_alike_fall_apart() {
        let hasher = ByAddress::default();
        for step in [1, 8, 16, 4096, 1 << 32] {
            let numbers = (0..1000u64).map(|number| hasher.hash_one(number * step) % 1024);
            let places: HashSet<u64> = numbers.collect();
            assert!(places.len() > 500, "{step}: {}", places.len());
        }
    }
}
