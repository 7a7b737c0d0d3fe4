//! On which CPUs a thread of ours runs: there where a sleeper's clock is, and not where a thread of the target works.
//!
//! Only for threads that are ours alone and end soon: nothing is put back.

use probing_proto::process::Pid;

use crate::procfs::threads::{SyscallState, Tid};
use crate::read_text;

/// The CPU that a thread has, or had last.
pub fn of(pid: Pid, tid: Tid) -> Option<usize> {
    let line = read_text(pid, &format!("task/{tid}/stat"))?;
    let (_, fields) = line.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// Leaves its CPU to a thread that runs, and gives back where we may run else. What we do takes longer than it may be kept
/// from its work, and a thread that is new or wakes up takes the CPU from who had it.
pub fn leave_to(pid: Pid, tid: Tid) -> Option<Cpus> {
    let before = Cpus::ours()?;
    if SyscallState::of(pid, tid) == SyscallState::Running {
        let mut others = before;
        others.remove(of(pid, tid)?);
        others.take(); // refused if there is none
    }
    Some(before)
}

/// A set of CPUs.
#[derive(Clone, Copy)]
pub struct Cpus(libc::cpu_set_t);

impl std::fmt::Debug for Cpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cpus")
    }
}

#[expect(unsafe_code, reason = "CPU affinity is a C interface")]
impl Cpus {
    const SIZE: usize = size_of::<libc::cpu_set_t>();

    fn none() -> Self {
        // SAFETY: plain bits; all zero is the empty set.
        Self(unsafe { std::mem::zeroed() })
    }

    /// `None` if there are too many.
    pub fn only(cpu: usize) -> Option<Self> {
        let mut one = Self::none();
        // SAFETY: the index is within the set.
        (cpu < 8 * Self::SIZE).then(|| unsafe { libc::CPU_SET(cpu, &mut one.0) })?;
        Some(one)
    }

    fn remove(&mut self, cpu: usize) {
        if cpu < 8 * Self::SIZE {
            // SAFETY: the index is within the set.
            unsafe { libc::CPU_CLR(cpu, &mut self.0) };
        }
    }

    /// Where our thread may run.
    pub fn ours() -> Option<Self> {
        let mut ours = Self::none();
        // SAFETY: the kernel writes that many bytes of the set; thread 0 is the calling one.
        let answer = unsafe { libc::sched_getaffinity(0, Self::SIZE, &raw mut ours.0) };
        (answer == 0).then_some(ours)
    }

    /// Lets our thread run there and nowhere else; false if that cannot be.
    pub fn take(&self) -> bool {
        // SAFETY: the kernel reads that many bytes of the set; thread 0 is the calling one.
        unsafe { libc::sched_setaffinity(0, Self::SIZE, &raw const self.0) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_thread_runs_where_it_is_told() {
        // In a thread of its own, like all of this.
        let seen = std::thread::spawn(|| {
            let before = Cpus::ours().unwrap();
            let pid = Pid(std::process::id());
            let cpu = of(pid, Tid::main_of(pid)).unwrap();
            assert!(Cpus::only(cpu).unwrap().take());
            let here = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            assert!(
                here.contains(&format!("Cpus_allowed_list:\t{cpu}\n")),
                "{here}"
            );
            assert!(before.take());
            assert!(!Cpus::none().take());
        });
        seen.join().unwrap();
    }
}
