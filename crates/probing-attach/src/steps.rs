//! The moments at which this process may be killed: a test hook.
//!
//! The promise that a killed attacher harms nobody is tested by dying at every one of them in turn.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

/// Counts the steps of one attach; dies at the one that was asked for.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    passed: Cell<u32>,
    die_at: Option<u32>,
}

impl Steps {
    pub(crate) fn new(die_at: Option<u32>) -> Self {
        Self {
            passed: Cell::new(0),
            die_at,
        }
    }

    pub(crate) fn pass(&self) {
        self.passed.set(self.passed.get() + 1);
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
