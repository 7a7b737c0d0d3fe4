//! Hashes of addresses: maps from objects are looked into by every event.

use std::hash::Hasher;

/// Addresses are different enough; only their low bits are not.
#[derive(Debug, Default)]
pub(crate) struct Address(u64);

impl Hasher for Address {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.write_u64(address as u64);
    }

    fn write_u64(&mut self, address: u64) {
        self.0 = (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
