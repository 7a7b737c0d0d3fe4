//! The threads of a process as the kernel shows them.
//!
//! Nothing here stops or slows one.

use std::fmt;
use std::io;

use probing_proto::process::{Pid, Stat};

use crate::access::source::Kernel;
use crate::procfs::status::Status;
use crate::procfs::system_calls;

/// A kernel thread id, as seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u32);

impl Tid {
    /// The thread that `main` runs in has the process's id.
    pub fn main_of(pid: Pid) -> Self {
        Self(pid.0)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// All threads, in the order of their ids.
pub fn thread_ids(process: impl Kernel) -> io::Result<Vec<Tid>> {
    let names = process.names("task")?;
    let mut tids: Vec<Tid> = names
        .iter()
        .filter_map(|name| name.parse().ok().map(Tid))
        .collect();
    tids.sort_unstable();
    Ok(tids)
}

/// The thread that has this id in its own pid namespace.
pub fn by_id_inside(process: impl Kernel, id: u32) -> Option<Tid> {
    let has_it =
        |tid: &Tid| Status::of_thread(&process, *tid).is_some_and(|status| status.id_inside == id);
    Some(Tid(id))
        .filter(has_it)
        .or_else(|| thread_ids(&process).ok()?.into_iter().find(has_it))
}

pub fn stat(process: impl Kernel, tid: Tid) -> Option<Stat> {
    Stat::parse(&process.text(&format!("task/{tid}/stat"))?)
}

/// What the kernel calls it: at most 15 bytes.
pub fn name(process: impl Kernel, tid: Tid) -> Option<String> {
    let name = process.text(&format!("task/{tid}/comm"))?;
    Some(name.trim_end_matches('\n').to_owned())
}

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyscallState {
    /// On a CPU, or waiting for one.
    Running,
    /// Asleep in a system call.
    Call {
        number: i64,
        arguments: [u64; 6],
        stack: u64,
        pc: u64,
    },
    /// Asleep otherwise (a page fault), or not known.
    Other,
}

impl SyscallState {
    pub fn of(process: impl Kernel, tid: Tid) -> Self {
        match process.text(&format!("task/{tid}/syscall")) {
            Some(text) => Self::parse(&text),
            // That it runs is told to everyone, in what it sleeps to few.
            None if stat(&process, tid).is_some_and(Stat::is_running) => Self::Running,
            None => Self::Other,
        }
    }

    /// `running`, or number, six arguments, stack pointer, program counter.
    pub fn parse(text: &str) -> Self {
        if text.trim() == "running" {
            return Self::Running;
        }
        let mut words = text.split_ascii_whitespace();
        let number = words.next().and_then(|word| word.parse().ok());
        let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let rest: Option<Vec<u64>> = words.map(hex).collect();
        let split = rest.as_deref().and_then(<[u64]>::split_first_chunk);
        match (number, split) {
            (Some(number), Some((&arguments, &[stack, pc]))) if number >= 0 => Self::Call {
                number,
                arguments,
                stack,
                pc,
            },
            _ => Self::Other,
        }
    }

    /// The name of the system call that it is in, for one in which threads sleep.
    pub fn call_name(&self) -> Option<&'static str> {
        match self {
            Self::Call { number, .. } => system_calls::name(*number),
            Self::Running | Self::Other => None,
        }
    }
}

impl fmt::Display for SyscallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("is running"),
            Self::Call { number, .. } => match self.call_name() {
                Some(name) => write!(f, "is in the system call {name}"),
                None => write!(f, "is in system call {number}"),
            },
            Self::Other => f.write_str("sleeps in the kernel"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_place_is_read_from_the_kernels_line() {
        let number = libc::SYS_futex;
        let line = format!("{number} 0x7f 0x189 0x0 0x9 0x0 0xffffffff 0x7f10 0x7f44\n");
        let place = SyscallState::Call {
            number,
            arguments: [0x7f, 0x189, 0, 9, 0, 0xffff_ffff],
            stack: 0x7f10,
            pc: 0x7f44,
        };
        assert_eq!(SyscallState::parse(&line), place);
        assert_eq!(place.to_string(), "is in the system call futex");
        assert_eq!(SyscallState::parse("running\n"), SyscallState::Running);
        assert_eq!(SyscallState::parse("-1 0x7f10 0x7f44"), SyscallState::Other);
        assert_eq!(SyscallState::parse(""), SyscallState::Other);
    }

    #[test]
    fn this_process_has_threads() {
        let pid = Pid(std::process::id());
        let main = Tid::main_of(pid);
        assert!(thread_ids(pid).unwrap().contains(&main));
        assert!(stat(pid, main).is_some());
        assert!(name(pid, main).is_some());
        assert_eq!(by_id_inside(pid, pid.0), Some(main));
    }

    proptest! {
        #[test]
        fn any_line_is_survived(line in ".{0,80}") {
            SyscallState::parse(&line);
        }
    }
}
