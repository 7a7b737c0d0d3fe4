//! Reports writes to bytes of another process, by the processor's debug registers.
//!
//! The kernel sets them in every thread of the process, and in those that it starts meanwhile (`event`). A write is a
//! sample in a ring that the kernel shares with us (`ring`, `sample`): which thread, when, its registers, and its stack.
//! Nothing of the process is stopped; a write costs it some microseconds, and when we end, however we end, the kernel
//! clears the registers.
//!
//! A debug exception can reach the kernel without its cause (see `probing_trap`), and then ends a process that has no
//! handler for it. So the process has one first, threads in which no handler would run are left out (`masks`), and a
//! process of our own has to survive all this before (`proof`).

mod bytes;
mod error;
mod event;
mod machine;
mod masks;
mod proof;
mod ring;
mod sample;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use probing_process::procfs::status::Status;
use probing_process::procfs::threads::{self, Tid};
use probing_proto::process::Pid;

pub use crate::bytes::{Bytes, NotBytes};
pub use crate::error::WatchpointError;
use crate::event::{Event, Scope};
pub use crate::proof::{Proof, prove};
use crate::ring::Ring;
use crate::sample::Record;

/// Each thread has an event for each CPU: more would be a burden for the kernel.
const MAX_EVENTS: usize = 32_768;
/// How often the list of threads is read again while events are set: those that were started meanwhile by threads that
/// had none yet.
const ROUNDS: usize = 20;
/// How often events are set anew because a thread began meanwhile: it may have inherited them, and be watched twice.
const QUIET_TRIES: usize = 5;
/// How often writes are counted: that takes a system call for each event.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// What becomes of debug exceptions that arrive without their cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrayTraps {
    /// The process has the handler that drops them. Threads that block SIGTRAP are left out: no handler runs there.
    Dropped,
    /// They may end the process. All threads are watched.
    Accepted,
}

/// A write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub tid: u32,
    /// By `CLOCK_MONOTONIC`.
    pub at_nanos: u64,
    /// The kernel wrote it, asked by this thread: `read(2)` into a buffer.
    pub by_kernel: bool,
    /// Where the thread was: just behind the instruction that wrote, or its system call.
    pub pc: u64,
    /// By the numbers that DWARF gives them.
    pub registers: Vec<u64>,
    /// From the stack pointer on.
    pub stack: Vec<u8>,
}

/// Where a thread was when it wrote: both events of a thread that is watched twice report the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trail {
    pc: u64,
    registers: Vec<u64>,
}

/// Bytes of a process that are watched until this is dropped.
#[derive(Debug)]
pub struct Watchpoint {
    pid: Pid,
    events: Vec<Event>,
    /// One for each CPU.
    rings: Vec<Ring>,
    scope: Scope,
    strays: StrayTraps,
    /// Threads that are not watched: they block SIGTRAP.
    left_out: Vec<Tid>,
    /// Threads that began while events were set, and may be watched twice: each with its last write.
    doubled: HashMap<u32, Option<Trail>>,
    /// Writes that were told.
    told: u64,
    lost: u64,
    counted_at: Instant,
}

impl Watchpoint {
    /// Watches these bytes in all threads of a process; see [`StrayTraps`] for those in which it does not.
    pub fn set(pid: Pid, bytes: Bytes, strays: StrayTraps) -> Result<Self, WatchpointError> {
        let mut watchpoint = Self::set_once(pid, bytes, strays)?;
        for _ in 1..QUIET_TRIES {
            if watchpoint.doubled.is_empty() {
                break;
            }
            drop(watchpoint);
            watchpoint = Self::set_once(pid, bytes, strays)?;
        }
        Ok(watchpoint)
    }

    fn set_once(pid: Pid, bytes: Bytes, strays: StrayTraps) -> Result<Self, WatchpointError> {
        let cpus = event::online_cpus().map_err(WatchpointError::Failed)?;
        event::allow_many();
        let mut watchpoint = Self {
            pid,
            events: Vec::new(),
            rings: Vec::new(),
            scope: Scope::Everything,
            strays,
            left_out: Vec::new(),
            doubled: HashMap::new(),
            told: 0,
            lost: 0,
            counted_at: Instant::now(),
        };
        let mut known: HashSet<Tid> = HashSet::new();
        for round in 0..ROUNDS {
            let Ok(found) = threads::thread_ids(pid) else {
                return Err(WatchpointError::Ended { pid });
            };
            let fresh: Vec<Tid> = found.into_iter().filter(|tid| known.insert(*tid)).collect();
            if fresh.is_empty() {
                break;
            }
            // Those that come up later may have inherited the registers: `check` finds them.
            if strays == StrayTraps::Dropped && round == 0 {
                watchpoint.leave_out(&fresh);
            }
            let watched = fresh
                .into_iter()
                .filter(|tid| !watchpoint.left_out.contains(tid));
            for tid in watched.collect::<Vec<Tid>>() {
                if round > 0 {
                    watchpoint.doubled.insert(tid.0, None);
                }
                watchpoint.set_in(tid, bytes, &cpus)?;
            }
        }
        if watchpoint.events.is_empty() {
            return Err(if watchpoint.left_out.is_empty() {
                WatchpointError::Ended { pid }
            } else {
                WatchpointError::AllBlocked { pid }
            });
        }
        Ok(watchpoint)
    }

    /// Leaves out those of these threads that block SIGTRAP.
    fn leave_out(&mut self, threads: &[Tid]) {
        let main = Tid::main_of(self.pid);
        let mut blocking = masks::blocking(self.pid, threads);
        // The probe's threads block it, and touch nothing of the program. Those that evaluate code inherit their registers
        // from these, and have the mask of the main thread.
        if !blocking.contains(&main) {
            blocking.retain(|tid| !masks::is_ours(self.pid, *tid));
        }
        self.left_out = blocking;
    }

    fn set_in(&mut self, tid: Tid, bytes: Bytes, cpus: &[u32]) -> Result<(), WatchpointError> {
        if self.events.len() + cpus.len() > MAX_EVENTS {
            return Err(WatchpointError::TooMany {
                most: MAX_EVENTS / cpus.len().max(1),
            });
        }
        for cpu in cpus {
            let opened = loop {
                match Event::open(tid, *cpu, bytes, self.scope) {
                    Err(error) if error.asks_for_less() && self.scope.narrow() => {}
                    // A program that the process starts would have the registers, and no handler.
                    Ok(_)
                        if self.scope.reaches_children() && self.strays == StrayTraps::Dropped =>
                    {
                        return Err(WatchpointError::Inherited);
                    }
                    opened => break opened,
                }
            };
            let event = match opened {
                Ok(event) => event,
                // It has ended meanwhile, or the CPU was switched off.
                Err(error) if error.is_gone() => continue,
                Err(error) => return Err(error.told(self.pid)),
            };
            if let Some(ring) = self.rings.iter().find(|ring| ring.cpu == *cpu) {
                event.write_to(ring).map_err(WatchpointError::Failed)?;
            } else {
                let ring = Ring::of(&event, *cpu).map_err(WatchpointError::NoRing)?;
                self.rings.push(ring);
            }
            self.events.push(event);
        }
        Ok(())
    }

    /// Names of the program's threads whose writes are not seen, because they block SIGTRAP.
    pub fn left_out(&self) -> Vec<String> {
        let theirs = self.left_out.iter();
        theirs
            .filter(|tid| !masks::is_ours(self.pid, **tid))
            .filter_map(|tid| masks::name(self.pid, *tid))
            .collect()
    }

    /// Whether stray traps are still dropped in every thread that may be watched. An error means that the watchpoint has to
    /// be dropped.
    pub fn check(&self) -> Result<(), WatchpointError> {
        let pid = self.pid;
        if self.strays == StrayTraps::Accepted {
            return Ok(());
        }
        let (Some(status), Ok(found)) = (Status::of(pid), threads::thread_ids(pid)) else {
            return Err(WatchpointError::Ended { pid });
        };
        if !masks::catches(&status) {
            return Err(WatchpointError::Unguarded { pid });
        }
        let others: Vec<Tid> = found
            .into_iter()
            .filter(|tid| !self.left_out.contains(tid))
            .collect();
        for tid in masks::blocking(pid, &others) {
            if let Some(name) = masks::name(pid, tid)
                && !masks::is_ours(pid, tid)
            {
                return Err(WatchpointError::Blocked { pid, tid, name });
            }
        }
        Ok(())
    }

    /// Whether writes that the kernel makes for the process are seen, too.
    pub fn sees_kernel(&self) -> bool {
        self.scope == Scope::Everything
    }

    /// Writes that were counted and not told, because they were too many; as of the last count.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What has been written until now, in the order of time; waits for the first until `until`.
    pub fn wait(&mut self, until: Option<Instant>) -> Result<Vec<Write>, WatchpointError> {
        ring::wait(&self.rings, until).map_err(WatchpointError::Failed)?;
        // Before the samples are read: those that come meanwhile are not lost.
        let is_due = self.counted_at.elapsed() >= COUNT_INTERVAL;
        let counted = is_due.then(|| self.count());
        let mut writes = Vec::new();
        for ring in &mut self.rings {
            for record in ring.take() {
                match record {
                    Record::Write { pid, write } => {
                        self.told += 1;
                        // Else a child that was forked before the kernel could tell threads from children.
                        if pid == self.pid.0 && !is_second(&mut self.doubled, &write) {
                            writes.push(write);
                        }
                    }
                    // How many is counted with the others.
                    Record::Lost => {}
                }
            }
        }
        if let Some(counted) = counted {
            self.lose(counted);
        }
        writes.sort_by_key(|write| write.at_nanos);
        Ok(writes)
    }

    /// Passes over what has been written until now; it is counted as lost.
    ///
    /// Whoever has seen enough waits and then calls this. Meanwhile the kernel drops samples for which the ring has no room,
    /// and the events stay enabled.
    pub fn skip(&mut self) {
        let counted = self.count();
        for ring in &mut self.rings {
            ring.take();
        }
        self.lose(counted);
    }

    /// How many writes there were.
    fn count(&mut self) -> u64 {
        self.counted_at = Instant::now();
        self.events.iter().map(Event::count).sum()
    }

    fn lose(&mut self, counted: u64) {
        self.lost = self.lost.max(counted.saturating_sub(self.told));
    }
}

/// Whether this is the write that was reported just before, by the other event of a thread that is watched twice.
fn is_second(doubled: &mut HashMap<u32, Option<Trail>>, write: &Write) -> bool {
    let Some(last) = doubled.get_mut(&write.tid) else {
        return false;
    };
    let trail = Trail {
        pc: write.pc,
        registers: write.registers.clone(),
    };
    if last.as_ref() == Some(&trail) {
        *last = None;
        return true;
    }
    *last = Some(trail);
    false
}

impl Drop for Watchpoint {
    /// A stray trap that is under way ends a process if its thread blocks SIGTRAP in that moment, as each does for an instant
    /// when it starts another thread. So the events are closed when none does, or after a few milliseconds.
    fn drop(&mut self) {
        if self.strays == StrayTraps::Dropped
            && let Ok(mut watched) = threads::thread_ids(self.pid)
        {
            watched.retain(|tid| !self.left_out.contains(tid) && !masks::is_ours(self.pid, *tid));
            masks::blocking(self.pid, &watched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(tid: u32, pc: u64) -> Write {
        Write {
            tid,
            at_nanos: 0,
            by_kernel: false,
            pc,
            registers: vec![pc, 7],
            stack: Vec::new(),
        }
    }

    #[test]
    fn a_write_that_two_events_report_is_one() {
        let mut doubled = HashMap::from([(2, None)]);
        let reported = [
            (2, 10),
            (2, 10),
            (2, 10),
            (1, 10),
            (1, 10),
            (2, 10),
            (2, 11),
        ];
        let told: Vec<(u32, u64)> = reported
            .into_iter()
            .filter(|(tid, pc)| !is_second(&mut doubled, &write(*tid, *pc)))
            .collect();
        assert_eq!(told, [(2, 10), (2, 10), (1, 10), (1, 10), (2, 11)]);
    }
}
