//! The clock of recorded rows: monotonic while it runs, since 1970 when it is read.

use rustix::time::{ClockId, clock_gettime};

/// Now, on the clock that rows are written with.
pub fn monotonic_nanos() -> i64 {
    nanos(ClockId::Monotonic)
}

/// What to add to that clock to get nanoseconds since 1970. Changes when somebody sets the time.
pub fn wall_offset_nanos() -> i64 {
    nanos(ClockId::Realtime).wrapping_sub(nanos(ClockId::Monotonic))
}

fn nanos(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec)
}
