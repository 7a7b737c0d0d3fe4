//! The clock of recorded rows: the processor's time counter where it is steady, else the kernel's clock.
//!
//! The clock of recorded rows, read by the processor's counter of time where that runs steadily: half of what the
//! kernel's clock costs, and an event has nothing else to spend so much on.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use probing_store::monotonic_nanos;
use pyo3::prelude::*;

/// The counter is trusted when it was compared with the clock over at least so long.
const LEAST_NANOS: i64 = 5_000_000;
/// Nanoseconds per tick are kept as a fraction of 2 to this power.
const SHIFT: u32 = 32;

/// The counter and the clock at one moment. Written with the GIL held, and read so.
static BASE_TICKS: AtomicU64 = AtomicU64::new(0);
static BASE_NANOS: AtomicI64 = AtomicI64::new(0);
/// 0: not known yet, or there is no such counter.
static FACTOR: AtomicU64 = AtomicU64::new(0);

/// Now, as `probing_store::monotonic_nanos` tells it.
#[inline]
pub(crate) fn now() -> i64 {
    now_by_counter().unwrap_or_else(monotonic_nanos)
}

/// The same, where that takes no call.
#[inline]
pub(crate) fn now_by_counter() -> Option<i64> {
    let factor = FACTOR.load(Ordering::Relaxed);
    if factor == 0 {
        return None;
    }
    let passed = ticks().wrapping_sub(BASE_TICKS.load(Ordering::Relaxed));
    let nanos = (u128::from(passed) * u128::from(factor)) >> SHIFT;
    Some(BASE_NANOS.load(Ordering::Relaxed) + nanos as i64)
}

/// Compares the counter with the clock, now and then: the longer ago the last time, the better.
pub(crate) fn compare() {
    if !is_steady() {
        return;
    }
    let (ticks, nanos) = (ticks(), monotonic_nanos());
    let base_nanos = BASE_NANOS.load(Ordering::Relaxed);
    if base_nanos == 0 {
        BASE_TICKS.store(ticks, Ordering::Relaxed);
        BASE_NANOS.store(nanos, Ordering::Relaxed);
        return;
    }
    let passed = ticks.wrapping_sub(BASE_TICKS.load(Ordering::Relaxed));
    if nanos - base_nanos < LEAST_NANOS || passed == 0 {
        return;
    }
    let factor = (((nanos - base_nanos) as u128) << SHIFT) / u128::from(passed);
    BASE_TICKS.store(ticks, Ordering::Relaxed);
    BASE_NANOS.store(nanos, Ordering::Relaxed);
    FACTOR.store(factor as u64, Ordering::Relaxed);
}

/// Waits until the counter can be trusted, which it can be a few milliseconds after the first look at it.
pub(crate) fn prepare(py: Python<'_>) {
    compare();
    if is_steady() && FACTOR.load(Ordering::Relaxed) == 0 {
        py.detach(|| std::thread::sleep(Duration::from_nanos(LEAST_NANOS.unsigned_abs())));
        compare();
    }
}

#[cfg(target_arch = "x86_64")]
mod counter {
    #![expect(unsafe_code, reason = "reads the counter of the processor")]

    use std::sync::OnceLock;

    #[inline]
    pub(crate) fn ticks() -> u64 {
        // SAFETY: every processor of this architecture has the instruction.
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    /// Whether it runs at one rate, whatever the processor's does.
    pub(crate) fn is_steady() -> bool {
        const POWER: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        static IS: OnceLock<bool> = OnceLock::new();
        *IS.get_or_init(|| {
            let last = std::arch::x86_64::__cpuid(0x8000_0000).eax;
            last >= POWER && std::arch::x86_64::__cpuid(POWER).edx & INVARIANT != 0
        })
    }
}

#[cfg(target_arch = "aarch64")]
mod counter {
    #![expect(unsafe_code, reason = "reads the counter of the processor")]

    #[inline]
    pub(crate) fn ticks() -> u64 {
        let ticks: u64;
        // SAFETY: the counter of virtual time, which the kernel lets every program read: its own clock is made of it.
        unsafe {
            std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags, nomem));
        }
        ticks
    }

    /// It runs at one rate, by the architecture.
    pub(crate) fn is_steady() -> bool {
        true
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod counter {
    pub(crate) fn ticks() -> u64 {
        0
    }

    pub(crate) fn is_steady() -> bool {
        false
    }
}

use counter::{is_steady, ticks};
