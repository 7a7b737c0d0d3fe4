//! What a trace may cost, and has: a purse that fills as the process uses CPU time, and that every event takes from.

use rustix::time::{ClockId, clock_gettime};

use probing_proto::message::trace::MILLION;

/// What a purse holds at most: what comes in during so much CPU time. It begins full.
const FULL_NANOS: f64 = 250e6;
/// Muted functions are told of again when it is filled to this part.
const RESUME_LEVEL: f64 = 0.8;
/// When it lacks more than what it holds, everything is muted.
const DEEP: f64 = -1.0;

/// Nanoseconds.
pub(crate) struct Budget {
    /// Of CPU time; none: there is no limit.
    share: Option<f64>,
    event_nanos: f64,
    balance: f64,
    cpu: i64,
    began: i64,
    events: u64,
    charged: f64,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    GoOn,
    /// What is called most is muted.
    Mute,
    /// All is.
    MuteAll,
    Resume,
}

impl Budget {
    pub(crate) fn new(budget_ppm: Option<u32>, event_nanos: f64) -> Self {
        let share = budget_ppm.map(|ppm| f64::from(ppm) / f64::from(MILLION));
        let cpu = cpu_nanos();
        Self {
            share,
            event_nanos,
            balance: share.unwrap_or(0.0) * FULL_NANOS,
            cpu,
            began: cpu,
            events: 0,
            charged: 0.0,
        }
    }

    pub(crate) fn account(&mut self, events: u64, is_overdrawn: bool) -> Verdict {
        self.events += events;
        let now = cpu_nanos();
        let passed = (now - self.cpu).max(0) as f64;
        self.cpu = now;
        self.judge(passed, events, is_overdrawn)
    }

    fn judge(&mut self, passed: f64, events: u64, is_overdrawn: bool) -> Verdict {
        let Some(share) = self.share else {
            return Verdict::GoOn;
        };
        let full = share * FULL_NANOS;
        self.balance = (self.balance + share * passed).min(full) - events as f64 * self.event_nanos;
        match is_overdrawn {
            false if self.balance < 0.0 => Verdict::Mute,
            true if self.balance < DEEP * full => Verdict::MuteAll,
            true if self.balance >= RESUME_LEVEL * full => Verdict::Resume,
            _ => Verdict::GoOn,
        }
    }

    pub(crate) fn charge(&mut self, nanos: i64) {
        self.charged += nanos as f64;
        self.balance -= nanos as f64;
    }

    /// The share that it has cost since it began, events, and what one costs.
    pub(crate) fn bill(&self) -> (f64, u64, f64) {
        let passed = (cpu_nanos() - self.began).max(1) as f64;
        let cost = self.events as f64 * self.event_nanos + self.charged;
        (cost / passed, self.events, self.event_nanos)
    }
}

/// What the process has used.
fn cpu_nanos() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
