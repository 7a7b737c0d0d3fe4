//! The progress line of sampling, on a terminal's stderr.

use std::io::Write as _;
use std::time::{Duration, Instant};

use probing_client::Samples;

use crate::terminal::{self, own};

/// Between two drawings.
const STEP: Duration = Duration::from_millis(100);
const WIDTH: usize = 30;
/// To the line's beginning, and clear the line.
const OVER: &str = "\x1b[G\x1b[2K";

pub(super) struct Progress {
    total: Duration,
    /// `None`: nobody sees it.
    next: Option<Instant>,
}

impl Progress {
    pub(super) fn new(total: Duration) -> Self {
        Self {
            total,
            next: terminal::is_stderr_terminal().then(Instant::now),
        }
    }

    pub(super) fn show(&mut self, whom: &str, samples: &Samples) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + STEP);
        // A terminal that is gone must not end the sampling.
        let line = line(whom, samples, self.total);
        write!(terminal::stderr(), "{}{line}", own(OVER)).ok();
    }

    pub(super) fn clear(&self) {
        if self.next.is_some() {
            write!(terminal::stderr(), "{}", own(OVER)).ok();
        }
    }
}

fn line(whom: &str, samples: &Samples, total: Duration) -> String {
    let (took, total) = (samples.took.as_secs_f64(), total.as_secs_f64());
    let part = if total > 0.0 { took / total } else { 1.0 };
    format!(
        "sampling {whom} {} {} {took:.1} of {total:.1} s, {} samples, {} missed (Ctrl-C ends sampling)",
        samples.pid,
        bar(part),
        samples.taken,
        samples.missed
    )
}

fn bar(part: f64) -> String {
    let done = ((part * WIDTH as f64) as usize).min(WIDTH);
    format!("[{}{}]", "=".repeat(done), " ".repeat(WIDTH - done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_from_the_left() {
        assert_eq!(bar(0.0), format!("[{}]", " ".repeat(30)));
        assert_eq!(bar(0.1), format!("[==={}]", " ".repeat(27)));
        assert_eq!(bar(7.0), format!("[{}]", "=".repeat(30)));
    }
}
