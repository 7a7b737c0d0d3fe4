//! A ticker with a steady interval, which can be ended early.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Nobody waits longer, and clocks can count so far.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// Wakes threads from their waiting, for good: the one that it was made on, and those that [joined](Self::join). Any
/// thread may [`ask`](Self::ask).
#[derive(Debug, Clone)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    waiting: Arc<Mutex<Vec<Thread>>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            asked: Arc::default(),
            waiting: Arc::new(Mutex::new(vec![thread::current()])),
        }
    }
}

impl Stop {
    /// Wakes this thread, too.
    pub fn join(&self) {
        self.waiting().push(thread::current());
    }

    pub fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        for thread in self.waiting().iter() {
            thread.unpark();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Waits until then, or until asked.
    pub fn wait_until(&self, time: Instant) {
        loop {
            let left = time.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_asked() {
                return;
            }
            thread::park_timeout(left);
        }
    }
}

/// Beats that are so far apart, counted from the start: one that comes late does not delay the next.
#[derive(Debug)]
pub struct Pace {
    start: Instant,
    interval: Duration,
    beats: u64,
    missed: u64,
    stop: Stop,
}

impl Pace {
    /// The first beat is now.
    pub fn new(interval: Duration, stop: &Stop) -> Self {
        Self {
            start: Instant::now(),
            interval: interval.clamp(Duration::from_micros(1), LONGEST),
            beats: 0,
            missed: 0,
            stop: stop.clone(),
        }
    }

    /// Waits for the next beat and gives its time since the start. `None`: asked to stop.
    pub fn wait(&mut self) -> Option<Duration> {
        loop {
            if let Some(beat) = self.wait_for(Duration::MAX) {
                return beat;
            }
        }
    }

    /// The same, but gives nothing if the beat does not come within so long.
    pub fn wait_for(&mut self, patience: Duration) -> Option<Option<Duration>> {
        let passed = (self.start.elapsed().as_nanos() / self.interval.as_nanos()) as u64;
        // Whoever was busy for longer than an interval goes on with the beat that is nearest.
        let late = passed.saturating_sub(self.beats);
        self.missed += late;
        self.beats += late;
        let due = self.interval.saturating_mul(self.beats as u32);
        let patient = Instant::now().checked_add(patience);
        match self.start.checked_add(due) {
            Some(time) if patient.is_none_or(|patient| time <= patient) => {
                self.stop.wait_until(time);
                self.beats += 1;
            }
            _ => {
                self.stop.wait_until(patient?);
                if !self.stop.is_asked() {
                    return None;
                }
            }
        }
        Some((!self.stop.is_asked()).then_some(due))
    }

    /// Beats that nobody was there for.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_millis(10);

    #[test]
    fn beats_come_at_their_time_and_late_ones_are_counted() {
        let mut pace = Pace::new(BEAT, &Stop::default());
        assert_eq!(pace.wait(), Some(Duration::ZERO));
        let second = pace.wait().unwrap();
        assert!(pace.elapsed() >= second && second >= BEAT);
        // Busy for five beats: some are lost, the next is on the grid.
        thread::sleep(BEAT * 5);
        let after = pace.wait().unwrap();
        assert!(after >= BEAT * 5 && pace.missed() >= 3, "{pace:?}");
        assert_eq!(after.as_nanos() % BEAT.as_nanos(), 0);
    }

    #[test]
    fn a_wait_ends_when_asked_to() {
        let stop = Stop::default();
        let mut pace = Pace::new(Duration::from_hours(1), &stop);
        pace.wait();
        let asker = thread::spawn(move || stop.ask());
        assert_eq!(pace.wait(), None);
        asker.join().unwrap();
    }
}
