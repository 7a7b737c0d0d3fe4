//! The threads of a process as the kernel shows them: ids, names, and where each sleeps.

use std::fs;

use probing_proto::process::{Pid, Stat};

use crate::permission::{field, read};

/// Length of the structure that holds the GIL, on every version and machine known.
const GIL: u64 = 208;

/// A thread for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) tid: u32,
    /// The id that the thread itself sees.
    pub(crate) inner: u32,
}

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// On a CPU, or waiting for one.
    Running,
    /// Asleep in a system call.
    Syscall {
        number: i64,
        name: Option<&'static str>,
    },
    /// Asleep otherwise: a page fault, or the kernel does not tell.
    Asleep,
    /// Held by SIGSTOP or a debugger.
    Stopped,
}

/// Where a thread is, as `/proc` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Running,
    Call { number: i64, first: u64 },
    Other,
}

pub(crate) fn all(pid: Pid) -> Vec<Task> {
    let outside = is_inside_namespace(pid);
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let mut tasks: Vec<Task> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .map(|tid: u32| {
            let inner = outside.then(|| inner_id(&format!("/proc/{pid}/task/{tid}/status")));
            Task {
                tid,
                inner: inner.flatten().unwrap_or(tid),
            }
        })
        .collect();
    tasks.sort_unstable_by_key(|task| task.tid);
    tasks
}

/// Whether the process has other ids for itself than we have for it.
fn is_inside_namespace(pid: Pid) -> bool {
    inner_id(&format!("/proc/{pid}/status")).is_some_and(|inner| inner != pid.0)
}

fn inner_id(status: &str) -> Option<u32> {
    let status = read(status)?;
    field(&status, "NSpid")?
        .split_ascii_whitespace()
        .next_back()?
        .parse()
        .ok()
}

/// Whether the process as a whole is held.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    read(&format!("/proc/{pid}/stat"))
        .and_then(|line| Stat::parse(&line))
        .is_some_and(|stat| stat.is_stopped() || stat.is_held())
}

pub(crate) fn name(pid: Pid, tid: u32) -> Option<String> {
    let name = read(&format!("/proc/{pid}/task/{tid}/comm"))?;
    Some(name.trim_end_matches('\n').to_owned())
}

impl Place {
    pub(crate) fn of(pid: Pid, tid: u32) -> Self {
        read(&format!("/proc/{pid}/task/{tid}/syscall")).map_or(Self::Other, |text| {
            // `running`, or number, six arguments, stack pointer, program counter.
            Self::parse(&text)
        })
    }

    fn parse(text: &str) -> Self {
        let mut words = text.split_ascii_whitespace();
        let number = words.next();
        if number == Some("running") {
            return Self::Running;
        }
        let first = words.next().and_then(|word| {
            let digits = word.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        });
        match (number.and_then(|word| word.parse().ok()), first) {
            (Some(number), Some(first)) if number >= 0 => Self::Call { number, first },
            _ => Self::Other,
        }
    }

    /// Whether it waits for this GIL.
    pub(crate) fn waits_for(&self, gil: u64) -> bool {
        matches!(*self, Self::Call { number, first } if number == libc::SYS_futex
            && gil != 0 && (gil..gil.saturating_add(GIL)).contains(&first))
    }

    pub(crate) fn state(&self) -> State {
        match *self {
            Self::Running => State::Running,
            Self::Call { number, .. } => State::Syscall {
                number,
                name: call_name(number),
            },
            Self::Other => State::Asleep,
        }
    }
}

/// Names of system calls in which threads sleep.
fn call_name(number: i64) -> Option<&'static str> {
    const NAMES: &[(i64, &str)] = &[
        (libc::SYS_futex, "futex"),
        (libc::SYS_read, "read"),
        (libc::SYS_write, "write"),
        (libc::SYS_readv, "readv"),
        (libc::SYS_writev, "writev"),
        (libc::SYS_clock_nanosleep, "clock_nanosleep"),
        (libc::SYS_nanosleep, "nanosleep"),
        (libc::SYS_pselect6, "pselect6"),
        (libc::SYS_ppoll, "ppoll"),
        (libc::SYS_epoll_pwait, "epoll_pwait"),
        (libc::SYS_wait4, "wait4"),
        (libc::SYS_waitid, "waitid"),
        (libc::SYS_accept, "accept"),
        (libc::SYS_accept4, "accept4"),
        (libc::SYS_connect, "connect"),
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_recvmsg, "recvmsg"),
        (libc::SYS_sendto, "sendto"),
        (libc::SYS_sendmsg, "sendmsg"),
        (libc::SYS_flock, "flock"),
        (libc::SYS_fcntl, "fcntl"),
        (libc::SYS_fsync, "fsync"),
        (libc::SYS_fdatasync, "fdatasync"),
        (libc::SYS_ioctl, "ioctl"),
        (libc::SYS_openat, "openat"),
        (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait"),
        (libc::SYS_rt_sigsuspend, "rt_sigsuspend"),
        (libc::SYS_semtimedop, "semtimedop"),
        (libc::SYS_restart_syscall, "restart_syscall"),
        (libc::SYS_sched_yield, "sched_yield"),
        (libc::SYS_io_uring_enter, "io_uring_enter"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_poll, "poll"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_select, "select"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_epoll_wait, "epoll_wait"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_pause, "pause"),
    ];
    let found = NAMES.iter().find(|(known, _)| *known == number);
    found.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_place_is_read_from_the_kernels_line() {
        let futex = libc::SYS_futex;
        let line = format!("{futex} 0x7f40 0x189 0x0 0x9 0x0 0xffffffff 0x7f10 0x7f44\n");
        let place = Place::parse(&line);
        assert!(place.waits_for(0x7f40) && place.waits_for(0x7f20));
        assert!(!place.waits_for(0x7f41) && !place.waits_for(0x7e00) && !place.waits_for(0));
        let name = Some("futex");
        assert_eq!(
            place.state(),
            State::Syscall {
                number: futex,
                name
            }
        );
        assert_eq!(Place::parse("running\n"), Place::Running);
        assert_eq!(Place::parse("-1 0x7f10 0x7f44"), Place::Other);
    }

    #[test]
    fn this_process_has_tasks() {
        let pid = Pid(std::process::id());
        let tasks = all(pid);
        assert!(tasks.iter().any(|task| task.tid == pid.0));
        assert!(!is_stopped(pid));
        assert!(name(pid, pid.0).is_some());
    }

    proptest! {
        #[test]
        fn any_line_is_survived(line in ".{0,80}") {
            Place::parse(&line);
        }
    }
}
