//! Tells a true stack from a torn one, without stopping the thread.
//!
//! A thread that runs pushes and pops frames while its memory is copied, so one copy may mix two moments: a frame that
//! was left long ago above one that was just entered. Several copies made one right after the other, in one system
//! call, agree only if the stack stood still: the innermost frame may have gone on within its function, all else is the
//! same. If they never agree, the outer frames that all copies have in common are true nevertheless.

use crate::code::Codes;
use crate::frames::{self, Chain, End, RawFrame};
use crate::interpreter::Interpreter;
use crate::layout::CurrentFrame;
use crate::memory::{Known, Memory, Pages, Range, u64_at};
use crate::threads::{self, Head, Thread};

/// Copies that must agree.
const COPIES: usize = 4;
const TRIES: usize = 12;
/// Of a thread, to copy at once: the newest frames move, older ones are read as they come.
const MAX_PAGES: usize = 32;

/// The stack of a thread that may be running.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) chain: Chain,
    pub(crate) torn: bool,
    pub(crate) retried: u32,
}

/// What a thread's stack is read with.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a, M: ?Sized> {
    pub(crate) interpreter: &'a Interpreter,
    pub(crate) memory: &'a M,
    pub(crate) max_depth: usize,
}

impl<M: Memory + ?Sized> Reading<'_, M> {
    /// Reads one thread until copies agree. `seen` is where it was found before.
    pub(crate) fn settle(
        &self,
        codes: &mut Codes,
        thread: &Thread,
        head: Head,
        seen: &Chain,
    ) -> Settled {
        let (mut ranges, mut retried) = (self.ranges(head, seen), 0);
        let mut best: Option<Chain> = None;
        for _ in 0..TRIES {
            let copies = self.copies(thread, &ranges);
            let loaded = copies.iter().flatten();
            let wanted = loaded.flat_map(|(_, chain)| chain.frames.iter().map(|frame| frame.code));
            codes.forget_failures();
            codes.load(self.interpreter, self.memory, wanted);
            if let Some(chain) = agreed(&copies).filter(|chain| self.is_possible(codes, chain)) {
                return Settled {
                    chain,
                    torn: false,
                    retried,
                };
            }
            retried += 1;
            let mut common = in_common(&copies);
            common.frames = self.possible_outer(codes, common.frames);
            if best
                .as_ref()
                .is_none_or(|best| best.frames.len() < common.frames.len())
            {
                best = Some(common);
            }
            if let Some((head, chain)) = copies.into_iter().flatten().next_back() {
                ranges = self.ranges(head, &chain);
            }
        }
        Settled {
            chain: best.unwrap_or_default(),
            torn: true,
            retried,
        }
    }

    /// Whether all of it is code of this interpreter, at instructions that exist.
    pub(crate) fn is_possible(&self, codes: &Codes, chain: &Chain) -> bool {
        chain.end != End::Broken && chain.frames.iter().all(|frame| self.is_frame(codes, frame))
    }

    fn is_frame(&self, codes: &Codes, frame: &RawFrame) -> bool {
        let free_threaded = self.interpreter.layout.free_threaded;
        codes
            .get(frame.code)
            .is_some_and(|code| free_threaded || code.line(frame.offset).is_some())
    }

    /// Without the innermost frames up to the last that cannot be.
    pub(crate) fn possible_outer(&self, codes: &Codes, frames: Vec<RawFrame>) -> Vec<RawFrame> {
        let wrong = frames
            .iter()
            .rposition(|frame| !self.is_frame(codes, frame));
        frames
            .into_iter()
            .skip(wrong.map_or(0, |index| index + 1))
            .collect()
    }

    /// Pages that hold the newest frames.
    fn ranges(&self, head: Head, chain: &Chain) -> Vec<Range> {
        let size = self.interpreter.layout.frame.size();
        let frames = chain.frames.iter().map(|frame| frame.address);
        let places = frames.chain(chain.marks.iter().copied());
        let mut pages: Vec<Range> = places
            .take(100 * MAX_PAGES)
            .map(|address| Pages::around((address, size)))
            .collect();
        if head.pointer != 0 {
            pages.insert(0, Pages::around((head.pointer, 64)));
        }
        if head.top != 0 {
            pages.insert(0, Pages::around((head.top.saturating_sub(64), 256)));
        }
        let mut seen = std::collections::HashSet::new();
        pages.retain(|range| seen.insert(*range));
        pages.truncate(MAX_PAGES);
        pages
    }

    /// Copies a thread and its pages several times with one call.
    fn copies(&self, thread: &Thread, ranges: &[Range]) -> Vec<Option<(Head, Chain)>> {
        let head = (thread.address, threads::size_of_head(self.interpreter));
        let once: Vec<Range> = std::iter::once(head)
            .chain(ranges.iter().copied())
            .collect();
        let answers = self.memory.read_many(&once.repeat(COPIES));
        answers
            .chunks_exact(once.len())
            .map(|answers| {
                let (head, answers) = answers.split_first()?;
                let mut head = threads::head(self.interpreter, head.as_deref()?)?;
                let mut pages = Pages::default();
                for (range, bytes) in ranges.iter().zip(answers) {
                    if let Some(bytes) = bytes {
                        pages.insert(*range, bytes.clone());
                    }
                }
                head.frame = self.current_frame(head, &mut pages)?;
                let layout = &self.interpreter.layout;
                let starts = [head.frame];
                let chain = frames::walk(layout, self.memory, &mut pages, &starts, self.max_depth);
                Some((head, chain.into_iter().next()?))
            })
            .collect()
    }

    fn current_frame(&self, head: Head, pages: &mut Pages) -> Option<u64> {
        let CurrentFrame::Through { inside, .. } = self.interpreter.layout.thread.frame else {
            return Some(head.frame);
        };
        let (at, mut bytes) = (head.pointer.wrapping_add(inside), [0; 8]);
        if pages.copy(at, &mut bytes) == Known::NotLoaded {
            pages.load(self.memory, &[(at, 8)]);
        }
        match pages.copy(at, &mut bytes) {
            Known::Here => u64_at(&bytes, 0),
            _ => None,
        }
    }
}

/// The stack that all copies show, if they do.
fn agreed(copies: &[Option<(Head, Chain)>]) -> Option<Chain> {
    let (head, chain) = copies.first()?.as_ref()?;
    let same = copies.iter().all(|copy| {
        copy.as_ref().is_some_and(|(other_head, other)| {
            head == other_head
                && chain.end == other.end
                && same_frames(&chain.frames, &other.frames)
        })
    });
    same.then(|| chain.clone())
}

/// Whether two stacks are the same but for how far the innermost function has come.
fn same_frames(one: &[RawFrame], other: &[RawFrame]) -> bool {
    match (one, other) {
        ([], []) => true,
        ([first, outer @ ..], [other_first, other_outer @ ..]) => {
            same_function(first, other_first) && outer == other_outer
        }
        _ => false,
    }
}

fn same_function(one: &RawFrame, other: &RawFrame) -> bool {
    one.address == other.address && one.code == other.code
}

/// The outer frames that all copies share, and the one in which they part.
fn in_common(copies: &[Option<(Head, Chain)>]) -> Chain {
    let chains: Vec<&Chain> = copies.iter().flatten().map(|(_, chain)| chain).collect();
    let mut common = Chain::default();
    let Some((first, others)) = chains.split_first() else {
        return common;
    };
    let whole = |chain: &&&Chain| chain.end == End::Outermost;
    if chains.len() < copies.len() || !chains.iter().all(|chain| whole(&chain)) {
        return common;
    }
    let mut frames = Vec::new();
    for (depth, frame) in first.frames.iter().rev().enumerate() {
        let at_depth = |chain: &&Chain| chain.frames.iter().rev().nth(depth).copied();
        let same = others
            .iter()
            .filter_map(at_depth)
            .filter(|other| same_function(frame, other));
        let same: Vec<RawFrame> = same.collect();
        if same.len() < others.len() {
            break;
        }
        frames.push(*frame);
        if same.iter().any(|other| other.offset != frame.offset) {
            break;
        }
    }
    frames.reverse();
    common.frames = frames;
    common
}
