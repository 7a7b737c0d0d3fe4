//! The kernel's events: a debug register in one thread while it runs on one CPU, and in the threads that it starts.
//!
//! *Invariant:* an event is enabled until it is closed. A debug exception that arrives while its event is disabled has no owner,
//! and the kernel sends SIGTRAP.
#![expect(unsafe_code, reason = "perf_event_open is a C interface")]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use libc::{c_int, c_long, c_ulong};
use probing_process::procfs::threads::Tid;
use probing_proto::process::Pid;

use crate::bytes::Bytes;
use crate::error::WatchpointError;
use crate::machine::WANTED;
use crate::ring::Ring;

/// Of the stack, from its inner end on. A record is shorter than 64 KB.
const STACK: u32 = 32 << 10;

const TYPE_BREAKPOINT: u32 = 5;
const ON_WRITE: u32 = 2;
// Instruction, thread, time, registers, stack.
const SAMPLE: u64 = 1 | (1 << 1) | (1 << 2) | (1 << 12) | (1 << 13);
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const USE_CLOCK: u64 = 1 << 25;
/// Only threads inherit, not children; from Linux 5.13 on, as the next.
const INHERIT_THREAD: u64 = 1 << 35;
const REMOVE_ON_EXEC: u64 = 1 << 36;
const CLOSE_ON_EXEC: c_ulong = 1 << 3;

const SET_OUTPUT: c_ulong = 0x2405;

/// `struct perf_event_attr` as of its fifth version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
    breakpoint_length: u64,
    branch_sample_type: u64,
    sample_registers: u64,
    sample_stack: u32,
    clock: i32,
    sample_registers_interrupt: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

/// How much the kernel is asked for; older ones and those that trust us less give less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What the kernel writes for the process, too.
    Everything,
    /// Only what the process writes itself.
    User,
    /// The same, of a kernel that has its children inherit, too.
    UserBefore513,
}

impl Scope {
    /// Whether there is something less to ask for.
    pub(crate) fn narrow(&mut self) -> bool {
        let less = match self {
            Self::Everything => Self::User,
            Self::User => Self::UserBefore513,
            Self::UserBefore513 => return false,
        };
        *self = less;
        true
    }

    /// Whether what the process starts is watched with it.
    pub(crate) fn reaches_children(self) -> bool {
        self == Self::UserBefore513
    }

    fn flags(self) -> u64 {
        INHERIT
            | USE_CLOCK
            | match self {
                Self::Everything => INHERIT_THREAD | REMOVE_ON_EXEC,
                Self::User => INHERIT_THREAD | REMOVE_ON_EXEC | EXCLUDE_KERNEL,
                Self::UserBefore513 => EXCLUDE_KERNEL,
            }
    }
}

/// An event that the kernel has set; dropped, it is cleared.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

/// Why it was not.
#[derive(Debug)]
pub(crate) struct NotSet(io::Error);

impl NotSet {
    fn code(&self) -> c_int {
        self.0.raw_os_error().unwrap_or(0)
    }

    /// Not allowed, or not known to this kernel.
    pub(crate) fn asks_for_less(&self) -> bool {
        matches!(self.code(), libc::EACCES | libc::EPERM | libc::EINVAL)
    }

    /// There is no such thread or CPU any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.code(), libc::ESRCH | libc::ENODEV)
    }

    pub(crate) fn told(self, pid: Pid) -> WatchpointError {
        let code = self.code();
        let Self(source) = self;
        match code {
            libc::EACCES | libc::EPERM => WatchpointError::NotPermitted { pid, source },
            libc::ENOSPC => WatchpointError::NoneLeft { pid },
            libc::ENOENT | libc::EOPNOTSUPP | libc::ENOSYS => {
                WatchpointError::Unsupported { source }
            }
            libc::EMFILE | libc::ENFILE => WatchpointError::TooFewFiles { pid },
            _ => WatchpointError::Failed(source),
        }
    }
}

impl Event {
    pub(crate) fn open(tid: Tid, cpu: u32, bytes: Bytes, scope: Scope) -> Result<Self, NotSet> {
        let attributes = Attributes {
            kind: TYPE_BREAKPOINT,
            size: size_of::<Attributes>() as u32,
            sample_period: 1,
            sample_type: SAMPLE,
            flags: scope.flags(),
            wakeup_events: 1,
            breakpoint_type: ON_WRITE,
            breakpoint_address: bytes.address,
            breakpoint_length: u64::from(bytes.length),
            sample_registers: WANTED,
            sample_stack: STACK,
            clock: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        // SAFETY: the structure has its true size and lives until the call returns; the kernel only reads it.
        let opened: c_long = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                tid.0 as c_int,
                cpu as c_int,
                -1 as c_int,
                CLOSE_ON_EXEC,
            )
        };
        if opened < 0 {
            return Err(NotSet(io::Error::last_os_error()));
        }
        // SAFETY: the kernel has just made it for us.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(opened as RawFd) }))
    }

    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Has what it tells written into the ring of another, of the same CPU.
    pub(crate) fn write_to(&self, ring: &Ring) -> io::Result<()> {
        self.control(SET_OUTPUT, ring.number)
    }

    /// How many writes the kernel has counted, also in threads that inherited it, and also those without a sample.
    pub(crate) fn count(&self) -> u64 {
        let mut count = 0_u64;
        let size = size_of_val(&count);
        // SAFETY: the kernel writes at most that many bytes to a number that lives until the call returns.
        let read = unsafe { libc::read(self.number(), (&raw mut count).cast(), size) };
        // Of an event that the kernel has removed there is nothing to read.
        if read == size as isize { count } else { 0 }
    }

    fn control(&self, request: c_ulong, argument: c_int) -> io::Result<()> {
        // SAFETY: these requests take numbers: they touch no memory of ours.
        let done = unsafe { libc::ioctl(self.number(), request as _, argument) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// The CPUs that run, by number.
pub(crate) fn online_cpus() -> io::Result<Vec<u32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    Ok(ranges(text.trim()))
}

/// `0-3,8`
fn ranges(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(',')
        .filter_map(range)
        .flatten()
        .take(8192)
        .collect()
}

/// Each event is an open file. Only our own limit is raised, as far as we may.
pub(crate) fn allow_many() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure lives until the calls return.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            // Where that is refused, what is allowed has to do.
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_in_ranges() {
        assert_eq!(ranges("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(ranges("0"), [0]);
        assert_eq!(ranges(""), [0; 0]);
    }

    #[test]
    fn the_kernel_knows_a_structure_of_this_size() {
        assert_eq!(size_of::<Attributes>(), 112);
    }
}
