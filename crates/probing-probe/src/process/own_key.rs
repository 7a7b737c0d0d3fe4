//! The key of this process: its pid and its start time, which a process below a root without `/proc` cannot read.

use std::fs;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use probing_proto::process::{Pid, ProcessKey, Stat};

/// What the command that attached has read of this process from outside.
static TOLD_PID: AtomicU32 = AtomicU32::new(0);
static TOLD_START_TICKS: AtomicU64 = AtomicU64::new(0);

/// Believed where `/proc` cannot be read, in this process and in none of its children.
pub(crate) fn tell_start_ticks(ticks: u64) {
    TOLD_START_TICKS.store(ticks, Ordering::Relaxed);
    TOLD_PID.store(std::process::id(), Ordering::Release);
}

/// This process; `None` where its start time is not known.
pub(crate) fn own_key() -> Option<ProcessKey> {
    let pid = std::process::id();
    let is_told = TOLD_PID.load(Ordering::Acquire) == pid;
    let told = is_told.then(|| TOLD_START_TICKS.load(Ordering::Relaxed));
    let start_ticks = own_stat().map(|stat| stat.start_ticks).or(told)?;
    Some(ProcessKey {
        pid: Pid(pid),
        start_ticks,
    })
}

pub(crate) fn own_stat() -> Option<Stat> {
    Stat::parse(&fs::read_to_string("/proc/self/stat").ok()?)
}
