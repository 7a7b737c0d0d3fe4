//! The priority of a thread of ours while it holds one of the target's: whoever loses the CPU then keeps the target from
//! its work for as long.
#![expect(unsafe_code, reason = "priorities are a C interface")]

use libc::{c_int, sched_param};

/// As long as this lives, the thread that made it gets a CPU before ordinary threads, where that is allowed: root may, and
/// whoever was given `RLIMIT_RTPRIO` or `RLIMIT_NICE`. A thread that is started meanwhile would inherit that: start none.
#[derive(Debug)]
pub struct Urgent {
    before: Before,
}

/// What is to be put back.
#[derive(Debug, Clone, Copy)]
enum Before {
    Nothing,
    Nice(c_int),
    /// Policy and priority in it.
    Policy(c_int, c_int),
}

const LEAST: c_int = 1;
const MOST_URGENT: c_int = -20;

impl Urgent {
    /// Tries to run before all ordinary threads, else with the best share of the CPU, else as before.
    #[must_use]
    pub fn begin() -> Self {
        let before = real_time().or_else(nice).unwrap_or(Before::Nothing);
        Self { before }
    }

    /// Whether it runs before all ordinary threads.
    pub fn is_first(&self) -> bool {
        matches!(self.before, Before::Policy(..))
    }
}

impl Drop for Urgent {
    /// Always allowed: it was so before.
    fn drop(&mut self) {
        match self.before {
            Before::Nothing => {}
            Before::Nice(nice) => _ = set_nice(nice),
            Before::Policy(policy, priority) => _ = set_policy(policy, priority),
        }
    }
}

fn real_time() -> Option<Before> {
    // SAFETY: asks for the calling thread; no memory is involved.
    let policy = unsafe { libc::sched_getscheduler(0) };
    let mut parameters = sched_param { sched_priority: 0 };
    // SAFETY: the kernel writes one such structure, of the calling thread.
    let known = unsafe { libc::sched_getparam(0, &raw mut parameters) };
    (policy >= 0 && known == 0 && set_policy(libc::SCHED_FIFO, LEAST))
        .then_some(Before::Policy(policy, parameters.sched_priority))
}

fn set_policy(policy: c_int, sched_priority: c_int) -> bool {
    let parameters = sched_param { sched_priority };
    // SAFETY: the kernel reads one such structure; thread 0 is the calling one.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

fn nice() -> Option<Before> {
    // SAFETY: asks for the calling thread; an answer of -1 may be a failure, which then does no harm.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    set_nice(MOST_URGENT).then_some(Before::Nice(nice))
}

fn set_nice(nice: c_int) -> bool {
    // SAFETY: numbers only; process 0 is, for this call, the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_ordinary_again_afterwards() {
        let now = || {
            // SAFETY: numbers of the calling thread.
            unsafe {
                (
                    libc::sched_getscheduler(0),
                    libc::getpriority(libc::PRIO_PROCESS, 0),
                )
            }
        };
        let before = now();
        let urgent = Urgent::begin();
        if urgent.is_first() {
            assert_eq!(now().0, libc::SCHED_FIFO);
        }
        drop(urgent);
        assert_eq!(now(), before);
    }
}
