//! How much memory the rings of a process may have together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// At most this, however much is free.
const MAX_BYTES: u64 = 32 << 20;
/// At most this part of what is free.
const SHARE: u64 = 20;

/// Memory for all rings of a process together.
///
/// A ring grows while it is no larger than what is left then: one alone gets half, and there is always room for another.
#[derive(Debug)]
pub struct Budget {
    left: AtomicU64,
}

impl Budget {
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicU64::new(bytes),
        })
    }

    /// What a process takes where `free` bytes are free: 5 % of it and never more than 32 MB; or what it was asked to, but
    /// no more than half.
    pub fn within(free: u64, asked: Option<u64>) -> u64 {
        match asked {
            None => (free / SHARE).min(MAX_BYTES),
            Some(asked) => asked.min(free / 2),
        }
    }

    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Takes `bytes` if `spare` are left then.
    pub(crate) fn take(&self, bytes: u64, spare: u64) -> bool {
        let taken = |left: u64| left.checked_sub(bytes).filter(|left| *left >= spare);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
            .is_ok()
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_takes_little_unless_it_is_asked_to() {
        const GIGABYTE: u64 = 1 << 30;
        assert_eq!(Budget::within(64 * GIGABYTE, None), 32 << 20);
        assert_eq!(Budget::within(100 << 20, None), 5 << 20);
        assert_eq!(Budget::within(64 * GIGABYTE, Some(GIGABYTE)), GIGABYTE);
        assert_eq!(Budget::within(GIGABYTE, Some(GIGABYTE)), GIGABYTE / 2);
        assert_eq!(Budget::within(GIGABYTE, Some(1 << 20)), 1 << 20);
    }
}
