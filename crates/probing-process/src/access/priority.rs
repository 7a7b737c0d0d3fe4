//! The priority of our thread while it holds a thread of the target.
//!
//! The priority of a thread of ours while it holds one of the target's: whoever loses the CPU then keeps the target
//! from its work for as long.
#![expect(unsafe_code, reason = "priorities are a C interface")]

use libc::{c_int, c_long, sched_attr};

/// As long as this lives, the thread that made it gets a CPU before ordinary threads, as far as that is allowed: root may
/// run before all of them, and whoever was given `RLIMIT_RTPRIO` or `RLIMIT_NICE`. Everybody else may ask for short turns,
/// which come sooner. A thread that is started meanwhile would inherit that: start none.
#[derive(Debug)]
pub struct PriorityBoost {
    /// What is to be put back.
    before: Option<sched_attr>,
    is_first: bool,
}

const MIN_PRIORITY: u32 = 1;
const MIN_NICE: i32 = -20;
/// The shortest turn that Linux gives (from 6.12 on; before, it takes no notice). Who asks for short turns preempts others
/// when it wakes up, and a hold lasts for few of them.
const SHORTEST_TURN_NANOS: u64 = 100_000;
/// As long as those of others.
const USUAL_TURN: u64 = 0;

impl PriorityBoost {
    /// Tries to run before all ordinary threads, else with the best share of the CPU, else in short turns.
    #[must_use]
    pub fn begin() -> Self {
        let before = attributes();
        let is_first = before.is_some() && set(real_time());
        let short = before.map(|before| sched_attr {
            sched_runtime: SHORTEST_TURN_NANOS,
            ..before
        });
        if let Some(short) = short.filter(|_| !is_first) {
            let preferred = sched_attr {
                sched_nice: MIN_NICE,
                ..short
            };
            _ = set(preferred) || set(short);
        }
        Self { before, is_first }
    }

    /// Whether it runs before all ordinary threads.
    pub fn is_first(&self) -> bool {
        self.is_first
    }
}

impl Drop for PriorityBoost {
    /// Always allowed: it was so before.
    fn drop(&mut self) {
        if let Some(before) = self.before {
            set(before);
        }
    }
}

fn real_time() -> sched_attr {
    sched_attr {
        sched_policy: libc::SCHED_FIFO as u32,
        sched_priority: MIN_PRIORITY,
        ..none()
    }
}

const fn none() -> sched_attr {
    sched_attr {
        size: size_of::<sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    }
}

/// How the calling thread is scheduled. `None`: by a policy that is not to be meddled with.
fn attributes() -> Option<sched_attr> {
    let mut attributes = none();
    let (thread, flags): (c_int, c_int) = (0, 0);
    // SAFETY: the kernel writes one such structure, whose size it is told; thread 0 is the calling one.
    let known: c_long = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread,
            &raw mut attributes,
            attributes.size,
            flags,
        )
    };
    let is_ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE]
        .contains(&(attributes.sched_policy as c_int));
    attributes.size = size_of::<sched_attr>() as u32;
    // It is told even where nobody asked for it.
    attributes.sched_runtime = USUAL_TURN;
    (known == 0 && is_ordinary).then_some(attributes)
}

fn set(attributes: sched_attr) -> bool {
    let (thread, flags): (c_int, c_int) = (0, 0);
    // SAFETY: the kernel reads one such structure, which has its true size; thread 0 is the calling one.
    let done: c_long = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            thread,
            &raw const attributes,
            flags,
        )
    };
    done == 0
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
        let urgent = PriorityBoost::begin();
        if urgent.is_first() {
            assert_eq!(now().0, libc::SCHED_FIFO);
        }
        drop(urgent);
        assert_eq!(now(), before);
    }
}
