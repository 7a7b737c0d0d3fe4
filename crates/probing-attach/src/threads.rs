//! The threads of a process as `/proc` shows them, and which of them to stop.
//!
//! Nothing here stops or slows a thread.

use std::fmt;
use std::fs;
use std::io;
use std::time::Duration;

use probing_proto::process::{Pid, Stat};

use crate::arch;
use crate::permission::Status;

/// A kernel thread id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tid(pub(crate) i32);

impl Tid {
    /// The thread that `main` runs in has the process's id.
    pub(crate) fn main_of(pid: Pid) -> Self {
        Self(pid.0 as i32)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a CPU, or waiting for one.
    Running,
    /// Asleep in a system call.
    Call {
        number: i64,
        fourth_argument: u64,
        stack: u64,
        pc: u64,
    },
    /// Asleep otherwise (a page fault), or not known.
    Other,
}

impl Place {
    pub(crate) fn of(pid: Pid, tid: Tid) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
        text.map_or(Self::Other, |text| Self::parse(&text))
    }

    /// `running`, or number, six arguments, stack pointer, program counter.
    fn parse(text: &str) -> Self {
        if text.trim() == "running" {
            return Self::Running;
        }
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let hex = |index: usize| {
            let digits = fields.get(index)?.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        };
        let number = fields.first().and_then(|field| field.parse().ok());
        match (number, hex(4), hex(7), hex(8)) {
            (Some(number), Some(fourth_argument), Some(stack), Some(pc)) if number >= 0 => {
                Self::Call {
                    number,
                    fourth_argument,
                    stack,
                    pc,
                }
            }
            _ => Self::Other,
        }
    }

    fn restart_cost(self) -> u8 {
        match self {
            Self::Call {
                number,
                fourth_argument,
                ..
            } => arch::restart_cost(number, fourth_argument),
            _ => u8::MAX,
        }
    }

    /// The number of a system call in which a thread holds no lock of libc and is not inside malloc.
    pub(crate) fn safe_call(self) -> Option<i64> {
        match self {
            Self::Call { number, .. } if arch::is_safe_call(number) => Some(number),
            _ => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("is running"),
            Self::Call { number, .. } => match arch::call_name(*number) {
                Some(name) => write!(f, "is in the system call {name}"),
                None => write!(f, "is in system call {number}"),
            },
            Self::Other => f.write_str("sleeps in the kernel"),
        }
    }
}

pub(crate) fn all(pid: Pid) -> io::Result<Vec<Tid>> {
    let mut tids: Vec<Tid> = fs::read_dir(format!("/proc/{pid}/task"))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Tid))
        .collect();
    tids.sort();
    Ok(tids)
}

/// The thread that has this id in its own pid namespace.
pub(crate) fn by_id_inside(pid: Pid, id: i32) -> Option<Tid> {
    let has_it =
        |tid: &Tid| Status::of_thread(pid, *tid).is_some_and(|status| status.id_inside == id);
    Some(Tid(id))
        .filter(has_it)
        .or_else(|| all(pid).ok()?.into_iter().find(has_it))
}

/// Threads in which a function may be called, the best first.
///
/// Main comes last: while a thread is stopped, signals sent to the process go to the others. Calls that answer
/// a stop with EINTR or that keep their end time in the kernel come after those that are simply called again.
pub(crate) fn callable(pid: Pid) -> io::Result<Vec<Tid>> {
    const ENOUGH: usize = 8;
    let main = Tid::main_of(pid);
    let mut found = Vec::new();
    for tid in all(pid)?.into_iter().filter(|tid| *tid != main) {
        let place = Place::of(pid, tid);
        if place.safe_call().is_some() {
            found.push((place.restart_cost(), tid));
            if found.len() == ENOUGH {
                break;
            }
        }
    }
    found.sort_unstable();
    let mut found: Vec<Tid> = found.into_iter().map(|(_, tid)| tid).collect();
    if Place::of(pid, main).safe_call().is_some() {
        found.push(main);
    }
    Ok(found)
}

pub(crate) fn stat(pid: Pid, tid: Tid) -> Option<Stat> {
    Stat::parse(&fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?)
}

/// How long a thread has had a CPU; nothing if the kernel does not tell.
pub(crate) fn cpu_time(pid: Pid, tid: Tid) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
    let nanos = text.split_ascii_whitespace().next();
    Duration::from_nanos(nanos.and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

/// How long a blocked thread has slept: the scheduler's `exec_start` of it against our own on the same CPU.
///
/// These clocks differ between CPUs by hundreds of milliseconds, hence the detour. `None`: not known (no
/// `sched` file in this kernel, or that CPU is not for us). The calling thread is ours alone and ends soon.
pub(crate) fn asleep(pid: Pid, tid: Tid) -> Option<Duration> {
    let line = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let (_, fields) = line.rsplit_once(')')?;
    let cpu = fields.split_ascii_whitespace().nth(36)?.parse().ok()?;
    let everywhere = pin_to(cpu)?;
    let now = last_ran("thread-self");
    let then = last_ran(&format!("{pid}/task/{tid}"));
    unpin(&everywhere);
    Duration::try_from_secs_f64((now? - then?) / 1e3).ok()
}

/// Milliseconds of the scheduler's clock at which a thread last got its CPU.
fn last_ran(task: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{task}/sched")).ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("se.exec_start"))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[expect(unsafe_code, reason = "CPU affinity is a C interface")]
fn pin_to(cpu: usize) -> Option<libc::cpu_set_t> {
    let size = size_of::<libc::cpu_set_t>();
    if cpu >= 8 * size {
        return None;
    }
    // SAFETY: a cpu_set_t is plain bits, all zero is the empty set; the kernel reads or writes `size` bytes of
    // it; thread 0 is the calling one; CPU_SET's index was checked above.
    unsafe {
        let (mut old, mut one) = (std::mem::zeroed(), std::mem::zeroed());
        libc::CPU_SET(cpu, &mut one);
        let pinned = libc::sched_getaffinity(0, size, &raw mut old) == 0
            && libc::sched_setaffinity(0, size, &raw const one) == 0;
        pinned.then(|| {
            libc::sched_yield();
            old
        })
    }
}

#[expect(unsafe_code, reason = "CPU affinity is a C interface")]
fn unpin(cpus: &libc::cpu_set_t) {
    // SAFETY: the set was filled by sched_getaffinity for this very thread.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), cpus) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_place_is_read_from_the_kernels_line() {
        let line = "202 0x7f 0x189 0x0 0x9 0x0 0xffffffff 0x7f10 0x7f44\n";
        let place = Place::Call {
            number: 202,
            fourth_argument: 9,
            stack: 0x7f10,
            pc: 0x7f44,
        };
        assert_eq!(Place::parse(line), place);
        assert_eq!(Place::parse("running\n"), Place::Running);
        assert_eq!(Place::parse("-1 0x7f10 0x7f44"), Place::Other);
        assert_eq!(Place::parse(""), Place::Other);
    }

    #[test]
    fn this_process_has_threads() {
        let pid = Pid(std::process::id());
        assert!(all(pid).unwrap().contains(&Tid::main_of(pid)));
        assert!(stat(pid, Tid::main_of(pid)).is_some());
    }

    proptest! {
        #[test]
        fn any_line_is_survived(line in ".{0,80}") {
            Place::parse(&line);
        }
    }
}
