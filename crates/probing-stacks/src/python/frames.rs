//! Walks from a thread's current frame to its outermost one, over pages that were read before.
//!
//! From 3.11 on most frames lie on a few pages of the thread's own, so a walk needs no system call for each frame.
//! What is not there yet (generators, marks on the C stack, all of 3.10) is fetched page by page for all threads at once.

use crate::memory::{CopyOutcome, Memory, Pages, Range, u32_at, u64_at};
use crate::python::layout::{Instruction, Layout};

/// A frame that is larger says nonsense.
const MAX_FRAME: usize = 512;
/// Frames and marks between them.
const MAX_STEPS_PER_FRAME: usize = 2;
/// Of all threads together.
const MAX_FRAMES: usize = 1_000_000;
const PLAUSIBLE_REFERENCES: std::ops::RangeInclusive<u64> = 1..=u32::MAX as u64;
/// In pointers to code, 3.14 keeps notes in the lowest bits.
const TAGS: u64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) address: u64,
    pub(crate) code: u64,
    /// Offset in bytes in the code's instructions.
    pub(crate) offset: i64,
    pub(crate) is_entry: bool,
}

/// The frames of one thread, innermost first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) frames: Vec<RawFrame>,
    /// Where C entered the interpreter.
    pub(crate) marks: Vec<Mark>,
    pub(crate) end: FrameChainEnd,
}

/// Left on the native stack by a run of the interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) address: u64,
    /// How many frames lie inside of it.
    pub(crate) inner: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FrameChainEnd {
    /// The outermost frame.
    #[default]
    Outermost,
    /// More frames than asked for.
    TooDeep,
    /// Something that is no frame: the thread moved on meanwhile, or the memory is damaged.
    Broken,
}

/// Walks all threads, given their current frames.
pub(crate) fn walk(
    layout: &Layout,
    memory: &(impl Memory + ?Sized),
    pages: &mut Pages,
    starts: &[u64],
    max_depth: usize,
) -> Vec<Chain> {
    let mut walks: Vec<Walk> = starts
        .iter()
        .map(|start| Walk::new(*start, max_depth))
        .collect();
    let mut left = MAX_FRAMES;
    loop {
        // Each round loads a page for each thread that needs one, or finds it missing: walks come to an end.
        let needed: Vec<Range> = walks
            .iter_mut()
            .filter_map(|walk| walk.advance(layout, pages, &mut left))
            .collect();
        if needed.is_empty() {
            return walks.into_iter().map(|walk| walk.chain).collect();
        }
        pages.load(memory, &needed);
    }
}

#[derive(Debug)]
struct Walk {
    next: u64,
    chain: Chain,
    max_depth: usize,
    steps: usize,
    /// A frame seen before, renewed at steps 1, 2, 4, 8 …: to come by it again is to go in circles.
    seen: u64,
}

impl Walk {
    fn new(start: u64, max_depth: usize) -> Self {
        Self {
            next: start,
            chain: Chain::default(),
            max_depth,
            steps: 0,
            seen: 0,
        }
    }

    /// Goes on until it needs memory that is not loaded.
    fn advance(&mut self, layout: &Layout, pages: &Pages, left: &mut usize) -> Option<Range> {
        let size = layout.frame.size().min(MAX_FRAME);
        let mut buffer = [0; MAX_FRAME];
        while self.next != 0 {
            let bytes = &mut buffer[..size];
            let known = if self.next.is_multiple_of(8) {
                pages.copy(self.next, bytes)
            } else {
                CopyOutcome::Never
            };
            let parsed = match known {
                CopyOutcome::NotLoaded => return Some((self.next, size)),
                CopyOutcome::Never => None,
                CopyOutcome::Here => parse(layout, self.next, bytes),
            };
            match parsed {
                _ if self.next == self.seen => self.stop(FrameChainEnd::Broken),
                None => self.stop(FrameChainEnd::Broken),
                Some(_) if *left == 0 || self.is_too_deep() => self.stop(FrameChainEnd::TooDeep),
                Some((previous, found)) => {
                    *left -= 1;
                    self.step(layout, previous, found);
                }
            }
        }
        None
    }

    fn is_too_deep(&self) -> bool {
        self.chain.frames.len() >= self.max_depth
            || self.chain.marks.len() >= MAX_STEPS_PER_FRAME * self.max_depth
    }

    fn stop(&mut self, end: FrameChainEnd) {
        self.chain.end = end;
        self.next = 0;
    }

    fn step(&mut self, layout: &Layout, previous: u64, found: FrameEntry) {
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.seen = self.next;
        }
        match found {
            FrameEntry::Frame(frame) => self.chain.frames.push(frame),
            FrameEntry::Mark => {
                self.chain.marks.push(Mark {
                    address: self.next,
                    inner: self.chain.frames.len(),
                });
                self.last_is_entry();
            }
        }
        // Before 3.11 each frame has its own run of the interpreter.
        if layout.frame.owner.is_none() {
            self.last_is_entry();
        }
        self.next = previous;
        // C called the outermost frame. If not, this is a generator that is just being left.
        if previous == 0 && self.chain.frames.last().is_some_and(|last| !last.is_entry) {
            self.stop(FrameChainEnd::Broken);
        }
    }

    fn last_is_entry(&mut self) {
        if let Some(frame) = self.chain.frames.last_mut() {
            frame.is_entry = true;
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum FrameEntry {
    Frame(RawFrame),
    Mark,
}

/// A frame and the address of the one that called it.
pub(crate) fn parse(layout: &Layout, address: u64, bytes: &[u8]) -> Option<(u64, FrameEntry)> {
    let frame = &layout.frame;
    let previous = u64_at(bytes, frame.previous)?;
    let owner = match frame.owner {
        Some(at) => *bytes.get(at)?,
        None => 0,
    };
    if owner > 4 {
        return None;
    }
    if owner >= frame.first_shim_owner {
        return Some((previous, FrameEntry::Mark));
    }
    // Before 3.11 a frame is an object; one that was freed keeps its content, but nobody refers to it.
    if frame.owner.is_none() && !PLAUSIBLE_REFERENCES.contains(&u64_at(bytes, 0)?) {
        return None;
    }
    let code = u64_at(bytes, frame.code)? & !TAGS;
    let offset = match frame.instruction {
        Instruction::Index(at) => i64::from(u32_at(bytes, at)?.cast_signed()) * 2,
        Instruction::Pointer(at) => {
            let start = code.wrapping_add(layout.code.instructions? as u64);
            u64_at(bytes, at)?.wrapping_sub(start).cast_signed()
        }
    };
    let is_entry = match frame.is_entry {
        Some(at) => *bytes.get(at)? != 0,
        None => false,
    };
    let frame = RawFrame {
        address,
        code,
        offset,
        is_entry,
    };
    Some((previous, FrameEntry::Frame(frame)))
}
