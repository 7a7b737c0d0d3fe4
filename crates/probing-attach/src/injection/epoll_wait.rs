//! How long a thread has waited in an epoll call when we stop it.
//!
//! A stop makes such a call answer EINTR, and the kernel does not say how much of its time was left. So we look
//! before we stop, and afterwards make sure that what we saw is what we stopped: each wait gives up the CPU once, and so
//! does each stop, and the kernel counts that. One wait does not: a stop that meets a thread on its way into a call
//! keeps it from falling asleep there. So who should have woken up before we stopped it has, and is in its next wait.
//! The answer must not be too long: a wait that goes on a little later than it should is nothing that a program may
//! complain of, one that ends early is.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use probing_process::cpus::{self, Cpus};
use probing_process::procfs::threads::{SyscallState, Tid};
use probing_proto::process::Pid;

use crate::arch;
use crate::injection::thread_choice;

/// What was seen of a thread before it was stopped.
#[derive(Debug)]
pub(crate) struct ThreadSnapshot {
    pid: Pid,
    tid: Tid,
    pub(crate) place: SyscallState,
    /// Nothing if it was in no epoll call: then one that it is stopped in has only begun.
    asleep: Option<EpollSleep>,
}

/// A sleep in an epoll call, as far as the kernel tells (there may be no `sched` file, or its CPU is not for us).
#[derive(Debug, Clone, Copy)]
struct EpollSleep {
    /// Going to sleep was the last of so many times that the thread gave up the CPU.
    switches: Option<u64>,
    since: Option<Instant>,
}

impl ThreadSnapshot {
    pub(crate) fn at(pid: Pid, tid: Tid) -> Self {
        let place = SyscallState::of(pid, tid);
        let asleep = is_epoll(place).then(|| EpollSleep::see(pid, tid)).flatten();
        Self {
            pid,
            tid,
            place,
            asleep,
        }
    }

    /// How long, at least, the wait had lasted when the thread was stopped, after which it gave up the CPU for so many
    /// `stops`; `None` if that cannot be said: the kernel does not tell, or the thread has woken up since our look, and
    /// may be in another wait.
    ///
    /// Only of a thread that is stopped to the end, such as one whose registers were read.
    pub(crate) fn waited(&self, stopped_at: Instant, stops: u64) -> Option<Duration> {
        let Some(asleep) = self.asleep else {
            return Some(Duration::ZERO);
        };
        let now = Account::of(&format!("{}/task/{}", self.pid, self.tid))?;
        let is_same = now.switches == asleep.switches? + stops;
        is_same.then_some(stopped_at.saturating_duration_since(asleep.since?))
    }
}

impl EpollSleep {
    /// The order matters: who sleeps when we ask where it is, and gave up the CPU no more often than we read before
    /// that, has slept since.
    fn see(pid: Pid, tid: Tid) -> Option<Self> {
        let account = Account::of(&format!("{pid}/task/{tid}"));
        let cpu = cpus::of(pid, tid);
        is_epoll(SyscallState::of(pid, tid)).then(|| Self {
            switches: account.map(|account| account.switches),
            since: account
                .zip(cpu)
                .and_then(|(account, cpu)| account.since(cpu)),
        })
    }
}

fn is_epoll(place: SyscallState) -> bool {
    thread_choice::safe_call(place).is_some_and(arch::is_epoll)
}

/// What the scheduler tells of a thread.
#[derive(Debug, Clone, Copy)]
struct Account {
    /// When it last had its CPU, in milliseconds of that CPU's own clock.
    ran_at: f64,
    /// How often it gave up the CPU because it had to wait.
    switches: u64,
}

impl Account {
    fn of(task: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{task}/sched")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.rsplit(' ').next()
        };
        Some(Self {
            ran_at: value("se.exec_start ")?.parse().ok()?,
            switches: value("nr_voluntary_switches ")?.parse().ok()?,
        })
    }

    /// The moment at which it last had `cpu`, or a little later.
    ///
    /// The scheduler's clocks differ between CPUs by hundreds of milliseconds, so we go there to compare. The short
    /// sleep renews our own account.
    fn since(self, cpu: usize) -> Option<Instant> {
        let before = Cpus::ours()?;
        if !Cpus::only(cpu)?.take() {
            return None;
        }
        thread::sleep(Duration::from_nanos(1));
        let ours = Self::of("thread-self");
        let now = Instant::now();
        before.take();
        // It is zero for one that was moved to another CPU and has not run there since, even asleep: on a busy machine
        // the kernel leaves who goes to sleep in its queue for a while, and moves it with the others.
        let ago = (self.ran_at > 0.0).then_some(ours?.ran_at - self.ran_at)?;
        now.checked_sub(Duration::try_from_secs_f64(ago / 1e3).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_account_of_this_thread_is_read() {
        let before = Account::of("thread-self").unwrap();
        thread::sleep(Duration::from_millis(1));
        let after = Account::of("thread-self").unwrap();
        assert!(before.ran_at > 0.0 && after.ran_at > before.ran_at);
        assert!(after.switches > before.switches);
    }

    #[test]
    fn who_was_moved_in_its_sleep_has_no_account() {
        let moved = Account {
            ran_at: 0.0,
            switches: 1,
        };
        assert!(moved.since(0).is_none());
    }

    #[test]
    fn a_file_of_another_kernel_says_nothing() {
        for text in [
            "",
            "se.exec_start : 12.5\n",
            "se.exec_start : x\nnr_voluntary_switches : 1\n",
        ] {
            assert!(Account::parse(text).is_none(), "{text}");
        }
    }
}
