//! Which threads of a process to stop. Nothing here stops or slows one.

use std::fs;
use std::io;
use std::time::Duration;

use probing_process::read_text;
use probing_process::threads::{Place, Tid, all};
use probing_proto::process::Pid;

use crate::arch;

/// The number of a system call in which a thread holds no lock of libc and is not inside malloc.
pub(crate) fn safe_call(place: Place) -> Option<i64> {
    match place {
        Place::Call { number, .. } if arch::is_safe_call(number) => Some(number),
        _ => None,
    }
}

fn restart_cost(place: Place) -> u8 {
    match place {
        Place::Call {
            number, arguments, ..
        } => arch::restart_cost(number, arguments[3]),
        _ => u8::MAX,
    }
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
        if safe_call(place).is_some() {
            found.push((restart_cost(place), tid));
            if found.len() == ENOUGH {
                break;
            }
        }
    }
    found.sort_unstable();
    let mut found: Vec<Tid> = found.into_iter().map(|(_, tid)| tid).collect();
    if safe_call(Place::of(pid, main)).is_some() {
        found.push(main);
    }
    Ok(found)
}

/// How long a thread has had a CPU; nothing if the kernel does not tell.
pub(crate) fn cpu_time(pid: Pid, tid: Tid) -> Duration {
    let text = read_text(pid, &format!("task/{tid}/schedstat")).unwrap_or_default();
    let nanos = text.split_ascii_whitespace().next();
    Duration::from_nanos(nanos.and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

/// How long a blocked thread has slept: the scheduler's `exec_start` of it against our own on the same CPU.
///
/// These clocks differ between CPUs by hundreds of milliseconds, hence the detour. `None`: not known (no
/// `sched` file in this kernel, or that CPU is not for us). The calling thread is ours alone and ends soon.
pub(crate) fn asleep(pid: Pid, tid: Tid) -> Option<Duration> {
    let line = read_text(pid, &format!("task/{tid}/stat"))?;
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
