//! The moments at which this process may be killed, or lose its CPU: a test hook.
//!
//! The promise that a killed attacher harms nobody is tested by dying at every one of them in turn; the promise that a thread
//! is not held for long, by sleeping there.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use crate::Options;
use crate::injection::tracee::HOLD_TIMEOUT;

/// Counts the steps of one attach; dies at the one that was asked for.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    passed: Cell<u32>,
    die_at: Option<u32>,
    sleep_at: Option<u32>,
}

/// As the step to sleep at: each.
const EACH: u32 = 0;

impl Steps {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            passed: Cell::new(0),
            die_at: options.die_at_step,
            sleep_at: options.sleep_at_step,
        }
    }

    pub(crate) fn pass(&self) {
        self.passed.set(self.passed.get() + 1);
        let sleeps = |at: u32| at == EACH || at == self.passed.get();
        if self.sleep_at.is_some_and(sleeps) {
            thread::sleep(HOLD_TIMEOUT + Duration::from_millis(5));
        }
        if self.die_at == Some(self.passed.get()) {
            // The target shall first reach the state that follows, for instance a stop that nobody waited for.
            thread::sleep(Duration::from_millis(3));
            die();
        }
    }
}

#[expect(unsafe_code, reason = "SIGKILL to ourselves has no safe wrapper here")]
fn die() {
    // SAFETY: sends a signal to this process only; no memory is involved.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}
