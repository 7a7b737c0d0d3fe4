//! A thread's registers and native stack, copied at one moment.
//!
//! A thread that sleeps is not disturbed: the kernel tells where its stack and its code are, and how often it has run.
//! If that is the same before and after, what was read in between belongs together. Any other thread is held for the copy.

use std::ops::Range;

use probing_process::memory::{self, Memory};
use probing_process::procfs::maps::Mapping;
use probing_process::procfs::threads::Tid;
use probing_process::read_text;
use probing_proto::process::Pid;

use crate::native::registers::Registers;

/// A copy of a stack from its inner end on, at most so long. Hardly any stack is; a copy takes 0.1 ms.
const MAX_COPY: u64 = 1 << 20;
/// The same where the end of the stack is not known.
const MAX_UNKNOWN: u64 = 256 << 10;
const PAGE: u64 = 4096;
/// Below the stack pointer a function may keep values, too.
const RED_ZONE: u64 = 128;

/// Part of a thread's stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StackCopy {
    start: u64,
    bytes: Vec<u8>,
}

impl StackCopy {
    pub(crate) fn new(start: u64, bytes: Vec<u8>) -> Self {
        Self { start, bytes }
    }

    /// A copy of whole pages, as such.
    pub(crate) fn pages(&self) -> (memory::Range, Vec<u8>) {
        let whole = self.bytes.len() & !(PAGE as usize - 1);
        ((self.start, whole), self.bytes[..whole].to_vec())
    }

    pub(crate) fn u64_at(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        memory::u64_at(&self.bytes, offset)
    }
}

/// Where a thread was, with its stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pose {
    pub(crate) registers: Registers,
    pub(crate) stack: StackCopy,
}

/// The part of memory to copy for a stack, given its inner end and Python's idents of the thread.
///
/// An ident is the address of libc's structure for the thread, which lies just beyond its stack. The end of a mapping
/// says less: the stacks of many threads may be one.
pub(crate) fn extent(maps: &[Mapping], stack: u64, idents: &[u64]) -> Option<Range<u64>> {
    let index = maps.partition_point(|mapping| mapping.end <= stack);
    let mapping = maps.get(index).filter(|mapping| mapping.contains(stack))?;
    let start = stack.saturating_sub(RED_ZONE).max(mapping.start);
    let inside = |ident: &&u64| (stack..mapping.end).contains(ident);
    let end = match idents.iter().find(inside) {
        Some(ident) => (*ident).min(start + MAX_COPY),
        None if mapping.path == "[stack]" => mapping.end.min(start + MAX_COPY),
        None => mapping.end.min(start + MAX_UNKNOWN),
    };
    Some(start..end)
}

/// The pages of a part of memory.
pub(crate) fn whole_pages(extent: Range<u64>) -> Range<u64> {
    let end = extent.end.checked_next_multiple_of(PAGE);
    extent.start & !(PAGE - 1)..end.unwrap_or(extent.end)
}

/// A thread that does not run: how the kernel sees it. Two that are equal: it did not run in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SleepState {
    pub(crate) pc: u64,
    pub(crate) stack: u64,
    /// Of the system call it is in; negative for none.
    pub(crate) call: i64,
    /// How often it was given a CPU, as the kernel writes it.
    turns: String,
}

impl SleepState {
    /// `None` while it runs, or if the kernel does not tell.
    pub(crate) fn of(pid: Pid, tid: Tid) -> Option<Self> {
        let turns = turns(pid, tid)?;
        let line = read_text(pid, &format!("task/{tid}/syscall"))?;
        let (call, stack, pc) = parse(&line)?;
        Some(Self {
            pc,
            stack,
            call,
            turns,
        })
    }

    pub(crate) fn registers(&self) -> Registers {
        Registers::new(self.pc, self.stack)
    }
}

/// Number of the system call, stack and code of a line that ends with these two.
fn parse(line: &str) -> Option<(i64, u64, u64)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [number, .., stack, pc] = words.as_slice() else {
        return None;
    };
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    Some((number.parse().ok()?, hex(stack)?, hex(pc)?))
}

/// Something that changes whenever the thread runs.
fn turns(pid: Pid, tid: Tid) -> Option<String> {
    let schedule = read_text(pid, &format!("task/{tid}/schedstat")).unwrap_or_default();
    let slices = schedule.split_ascii_whitespace().nth(2);
    // A kernel that does not count says 0 of a thread that must have run.
    if let Some(slices) = slices.filter(|slices| *slices != "0") {
        return Some(slices.to_owned());
    }
    let status = read_text(pid, &format!("task/{tid}/status"))?;
    let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
    let switches: String = switches.collect();
    (!switches.is_empty()).then_some(switches)
}

/// Copies stacks in one system call, or up to where they can be read.
pub(crate) fn copies(
    memory: &(impl Memory + ?Sized),
    extents: &[Option<Range<u64>>],
) -> Vec<Option<StackCopy>> {
    let ranges: Vec<memory::Range> = extents
        .iter()
        .flatten()
        .map(|extent| (extent.start, (extent.end - extent.start) as usize))
        .collect();
    let mut answers = memory.read_many(&ranges).into_iter();
    extents
        .iter()
        .map(|extent| {
            let extent = extent.as_ref()?;
            let bytes = answers.next().flatten();
            let bytes = bytes.or_else(|| readable_part(memory, extent))?;
            Some(StackCopy::new(extent.start, bytes))
        })
        .collect()
}

/// The pages up to the first that cannot be read: a guard between two stacks.
fn readable_part(memory: &(impl Memory + ?Sized), extent: &Range<u64>) -> Option<Vec<u8>> {
    let first = (extent.start & !(PAGE - 1)) + PAGE;
    let starts = std::iter::once(extent.start).chain((first..extent.end).step_by(PAGE as usize));
    let ranges: Vec<memory::Range> = starts
        .map(|start| {
            let end = (start & !(PAGE - 1)) + PAGE;
            (start, (end.min(extent.end) - start) as usize)
        })
        .collect();
    let pages = memory.read_many(&ranges).into_iter();
    let bytes: Vec<u8> = pages.map_while(|page| page).flatten().collect();
    (!bytes.is_empty()).then_some(bytes)
}
