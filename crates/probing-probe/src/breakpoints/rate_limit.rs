//! How much of one point is recorded in a second: log lines, snapshots, changes; the rest is counted.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Rows of one point in a second.
const MAX_PER_SECOND: u32 = 1000;
const ASK_EVERY: u32 = 32;

#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The second that is counted.
    second: AtomicI64,
    told: AtomicU32,
    /// How often there was no room: the clock is not asked each time.
    refused: AtomicU32,
}

impl Pace {
    /// Whether there is no room for another in this second, as far as that is known without asking the clock each time.
    #[inline]
    pub(crate) fn is_used_up(&self) -> bool {
        // Whoever asks has the GIL, so nobody else writes these.
        if self.told.load(Ordering::Relaxed) < MAX_PER_SECOND {
            return false;
        }
        let refused = self.refused.load(Ordering::Relaxed).wrapping_add(1);
        self.refused.store(refused, Ordering::Relaxed);
        !refused.is_multiple_of(ASK_EVERY) || self.second.load(Ordering::Relaxed) == second()
    }

    /// Whether one more may be told in this second.
    pub(crate) fn has_room(&self) -> bool {
        if self.is_used_up() {
            return false;
        }
        let told = self.told.load(Ordering::Relaxed);
        let now = second();
        if self.second.load(Ordering::Relaxed) != now {
            self.second.store(now, Ordering::Relaxed);
            self.told.store(1, Ordering::Relaxed);
            return true;
        }
        self.told.store(told.saturating_add(1), Ordering::Relaxed);
        told < MAX_PER_SECOND
    }
}

/// Some milliseconds more or less do not matter, and this clock costs a fifth of the other.
#[expect(unsafe_code, reason = "clock_gettime fills what it is given")]
fn second() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for a time; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec
}
