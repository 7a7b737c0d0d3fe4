//! Distinguishes a consistent stack from a torn one, without stopping the thread.
//!
//! A thread that runs pushes and pops frames while its memory is copied, so one copy may mix two moments: a frame that
//! was left long ago above one that was just entered. Several copies made one right after the other, in one system
//! call, agree only if the stack stood still: the innermost frame may have gone on within its function, all else is the
//! same. If they never agree, the outer frames that all copies have in common are true nevertheless; or the thread is
//! held while one more copy is made.

use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use crate::held::{Expected, InTime, NoMore};
use crate::memory::{CopyOutcome, Memory, Pages, Range, u64_at};
use crate::python::code::Codes;
use crate::python::frames::{self, Chain, FrameChainEnd, RawFrame};
use crate::python::interpreter::Interpreter;
use crate::python::layout::CurrentFrame;
use crate::python::line_table::LineLookup;
use crate::python::thread_states::{self, Head, Thread};
use crate::{LocalLimits, Options, Pause, thread_hold};

/// Copies that must agree.
const COPIES: usize = 4;
const TRIES: usize = 12;
/// Before a thread is held, and for stacks that are long to read.
const FEW_TRIES: usize = 2;
const DEEP: usize = 5_000;
/// How often it is held: it may be caught between two stores that belong together.
const HOLDS: usize = 5;
/// For a thread to stop.
const STOP_TIMEOUT: Duration = Duration::from_millis(50);
/// For all threads that move, together.
const FOR_ALL: Duration = Duration::from_secs(1);
/// For a thread that lost its CPU there.
const MOMENT: Duration = Duration::from_millis(1);
/// Of a thread, to copy at once.
const MAX_PAGES: usize = 1024;

/// A stack as it was copied.
#[derive(Debug, Clone)]
struct Copy {
    head: Head,
    chain: Chain,
    /// All of it was copied at once: nothing had to be read afterwards.
    at_once: bool,
}

/// The stack of a thread that may be running.
#[derive(Debug)]
pub(crate) struct SettledStack {
    pub(crate) chain: Chain,
    pub(crate) torn: bool,
    pub(crate) retried: u32,
    pub(crate) paused: Duration,
}

/// What a thread's stack is read with.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a, M: ?Sized> {
    pub(crate) interpreter: &'a Interpreter,
    pub(crate) memory: &'a M,
    pub(crate) max_depth: usize,
    pub(crate) pause: Pause,
    /// From then on no thread is read again.
    pub(crate) until: Instant,
    pub(crate) locals: Option<LocalLimits>,
}

impl<'a, M: Memory + ?Sized> Reading<'a, M> {
    /// As asked for, within the time that all threads have together.
    pub(crate) fn new(
        interpreter: &'a Interpreter,
        memory: &'a M,
        options: &Options,
        began: Instant,
    ) -> Self {
        Self {
            interpreter,
            memory,
            max_depth: options.max_depth,
            pause: options.pause,
            until: began + FOR_ALL,
            locals: options.locals,
        }
    }

    /// Reads one thread until copies agree. `seen` are its stacks as found before. Without a `tid` it is never held.
    pub(crate) fn settle(
        &self,
        codes: &mut Codes,
        thread: &Thread,
        tid: Option<u32>,
        head: Head,
        seen: [&Chain; 2],
    ) -> SettledStack {
        let (mut ranges, mut retried) = (self.ranges(head, seen[0]), 0);
        let mut witnesses = seen.map(Chain::clone).to_vec();
        let hold = tid.filter(|_| self.pause == Pause::Moving);
        let is_deep = seen[0].frames.len() > DEEP;
        let tries = if is_deep || hold.is_some() {
            FEW_TRIES
        } else {
            TRIES
        };
        for _ in 0..tries {
            if Instant::now() > self.until {
                break;
            }
            let copies = self.copies(thread, &ranges, COPIES);
            let loaded = copies.iter().flatten();
            let wanted = loaded.flat_map(|copy| copy.chain.frames.iter().map(|frame| frame.code));
            codes.forget_failures();
            codes.load(self.interpreter, self.memory, wanted);
            let agreed = agreed(&copies);
            let stuck = agreed
                .as_ref()
                .is_some_and(|chain| !self.is_possible(codes, chain));
            let last = copies.iter().flatten().next_back();
            ranges = last.map_or(ranges, |copy| self.ranges(copy.head, &copy.chain));
            witnesses.extend(copies.into_iter().flatten().map(|copy| copy.chain));
            if stuck {
                // It lost its CPU between two stores that belong together.
                thread::sleep(MOMENT);
            } else if let Some(chain) = agreed.filter(|chain| root(chain) == usual_root(&witnesses))
            {
                return SettledStack {
                    chain,
                    torn: false,
                    retried,
                    paused: Duration::ZERO,
                };
            }
            retried += 1;
        }
        let mut paused = Duration::ZERO;
        let mut expected = Expected::new(self, std::slice::from_ref(thread));
        for (number, tid) in hold.into_iter().cycle().take(HOLDS).enumerate() {
            if Instant::now() > self.until {
                break;
            }
            expected.look();
            let reads_on = number + 1 == HOLDS;
            let (chain, held_for) = self.held(codes, &expected, tid, reads_on);
            paused = paused.max(held_for);
            if let Some(chain) = chain {
                return SettledStack {
                    chain,
                    torn: false,
                    retried,
                    paused,
                };
            }
            retried += 1;
        }
        self.stayed(codes, &witnesses, retried, paused)
    }

    /// What remains of a stack that was never seen whole.
    fn stayed(
        &self,
        codes: &Codes,
        witnesses: &[Chain],
        retried: u32,
        paused: Duration,
    ) -> SettledStack {
        let frames = self.possible_outer(codes, in_common(witnesses));
        let last = witnesses.last().filter(|_| frames.is_empty());
        let inner = last.map(|chain| self.possible_inner(codes, chain));
        SettledStack {
            torn: inner.is_none(),
            chain: inner.unwrap_or(Chain {
                frames,
                ..Chain::default()
            }),
            retried,
            paused,
        }
    }

    /// The stack while the thread is held. One whose frames are elsewhere each time `reads_on`, as long as it may be held.
    fn held(
        &self,
        codes: &mut Codes,
        expected: &Expected<'_, M>,
        tid: u32,
        reads_on: bool,
    ) -> (Option<Chain>, Duration) {
        let copy = |held: &thread_hold::StoppedThread| {
            let mut copied = expected.copy();
            let memory = self.memory;
            let chains = reads_on.then(|| expected.chains(&mut copied, &InTime { memory, held }));
            (!held.is_late()).then_some((copied, chains))
        };
        let Some((copy, paused)) = thread_hold::while_stopped(tid, STOP_TIMEOUT, copy) else {
            return (None, Duration::ZERO);
        };
        let chain = copy.and_then(|(mut copied, chains)| {
            let mut chains = chains.unwrap_or_else(|| expected.chains(&mut copied, &NoMore));
            chains.pop()
        });
        codes.forget_failures();
        let wanted = chain.iter().flat_map(|chain| &chain.frames);
        codes.load(
            self.interpreter,
            self.memory,
            wanted.map(|frame| frame.code),
        );
        let chain = chain.filter(|chain| self.is_possible(codes, chain));
        (chain, paused)
    }

    /// Whether all of it is code of this interpreter, at instructions that exist.
    pub(crate) fn is_possible(&self, codes: &Codes, chain: &Chain) -> bool {
        // The frames of a recursion are alike.
        let mut last = (0, 0);
        chain.end != FrameChainEnd::Broken
            && chain.frames.iter().all(|frame| {
                let alike = last == (frame.code, frame.offset);
                last = (frame.code, frame.offset);
                alike || self.is_frame(codes, frame)
            })
    }

    fn is_frame(&self, codes: &Codes, frame: &RawFrame) -> bool {
        let free_threaded = self.interpreter.layout.free_threaded;
        codes
            .get(frame.code)
            .is_some_and(|code| free_threaded || code.place(frame.offset) != LineLookup::Beyond)
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

    /// Without the outer frames from the first that cannot be.
    fn possible_inner(&self, codes: &Codes, chain: &Chain) -> Chain {
        let frames = chain.frames.iter().copied();
        Chain {
            frames: frames
                .take_while(|frame| self.is_frame(codes, frame))
                .collect(),
            marks: Vec::new(),
            end: FrameChainEnd::Broken,
        }
    }

    /// Pages that hold the newest frames.
    pub(crate) fn ranges(&self, head: Head, chain: &Chain) -> Vec<Range> {
        let size = self.interpreter.layout.frame.size();
        let frames = chain.frames.iter().map(|frame| frame.address);
        let places = frames.chain(chain.marks.iter().map(|mark| mark.address));
        let mut pages: Vec<Range> = places
            .map(|address| Pages::around((address, size)))
            .collect();
        if head.pointer != 0 {
            pages.insert(0, Pages::around((head.pointer, 64)));
        }
        if head.top != 0 {
            pages.insert(0, Pages::around((head.top.saturating_sub(64), 256)));
        }
        let mut seen = HashSet::new();
        pages.retain(|range| seen.insert(*range));
        pages.truncate(MAX_PAGES);
        pages
    }

    /// Copies a thread and its pages several times with one call.
    fn copies(&self, thread: &Thread, ranges: &[Range], count: usize) -> Vec<Option<Copy>> {
        let head = (
            thread.address,
            thread_states::size_of_head(self.interpreter),
        );
        let once: Vec<Range> = std::iter::once(head)
            .chain(ranges.iter().copied())
            .collect();
        let answers = self.memory.read_many(&once.repeat(count));
        answers
            .chunks_exact(once.len())
            .map(|answers| {
                let (head, answers) = answers.split_first()?;
                let mut head = thread_states::head(self.interpreter, head.as_deref()?)?;
                let mut pages = Pages::default();
                for (range, bytes) in ranges.iter().zip(answers) {
                    if let Some(bytes) = bytes {
                        pages.insert(*range, bytes.clone());
                    }
                }
                head.frame = self.current_frame(head, self.memory, &mut pages)?;
                let layout = &self.interpreter.layout;
                let starts = [head.frame];
                let chain = frames::walk(layout, self.memory, &mut pages, &starts, self.max_depth);
                Some(Copy {
                    head,
                    chain: chain.into_iter().next()?,
                    at_once: !pages.was_loaded(),
                })
            })
            .collect()
    }

    pub(crate) fn current_frame(
        &self,
        head: Head,
        memory: &(impl Memory + ?Sized),
        pages: &mut Pages,
    ) -> Option<u64> {
        let CurrentFrame::Through { inside, .. } = self.interpreter.layout.thread.frame else {
            return Some(head.frame);
        };
        let (at, mut bytes) = (head.pointer.wrapping_add(inside), [0; 8]);
        if pages.copy(at, &mut bytes) == CopyOutcome::NotLoaded {
            pages.load(memory, &[(at, 8)]);
        }
        match pages.copy(at, &mut bytes) {
            CopyOutcome::Here => u64_at(&bytes, 0),
            _ => None,
        }
    }
}

/// The stack that all copies show, if they do.
fn agreed(copies: &[Option<Copy>]) -> Option<Chain> {
    let first = copies.first()?.as_ref()?;
    let chain = &first.chain;
    let same = |other: &Copy| {
        other.at_once
            && first.head == other.head
            && chain.end == other.chain.end
            && same_frames(&chain.frames, &other.chain.frames)
    };
    let all = copies.iter().all(|copy| copy.as_ref().is_some_and(same));
    all.then(|| chain.clone())
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

/// The outermost frame of a stack that was read to its end. It stays the same as long as a thread runs Python.
fn root(chain: &Chain) -> Option<(u64, u64)> {
    let frame = chain
        .frames
        .last()
        .filter(|_| chain.end == FrameChainEnd::Outermost)?;
    Some((frame.address, frame.code))
}

/// The root that most stacks have: a frame that was just freed looks like one, too, but rarely.
fn usual_root(chains: &[Chain]) -> Option<(u64, u64)> {
    let mut counts: HashMap<(u64, u64), usize> = HashMap::new();
    for root in chains.iter().filter_map(root) {
        *counts.entry(root).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map(|(root, _)| root)
}

/// The outer frames that were there each time, and the one in which the stacks part.
fn in_common(chains: &[Chain]) -> Vec<RawFrame> {
    let usual = usual_root(chains);
    let mut whole = chains
        .iter()
        .filter(|chain| usual.is_some() && root(chain) == usual);
    let Some(first) = whole.next() else {
        return Vec::new();
    };
    let mut common: Vec<RawFrame> = first.frames.iter().rev().copied().collect();
    for chain in whole {
        let pairs = common.iter().zip(chain.frames.iter().rev());
        let same = pairs.clone().take_while(|(one, other)| one == other);
        let mut len = same.count();
        if let Some((one, other)) = pairs.clone().nth(len)
            && same_function(one, other)
        {
            len += 1;
        }
        common.truncate(len);
    }
    common.reverse();
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack of functions (address and code are the same number) at instructions, outermost first.
    fn chain(frames: &[(u64, i64)]) -> Chain {
        let frame = |(address, offset): &(u64, i64)| RawFrame {
            address: *address,
            code: *address,
            offset: *offset,
            is_entry: false,
        };
        Chain {
            frames: frames.iter().rev().map(frame).collect(),
            ..Chain::default()
        }
    }

    fn copies(chains: &[Chain]) -> Vec<Option<Copy>> {
        let copy = |chain: &Chain| {
            Some(Copy {
                head: Head::default(),
                chain: chain.clone(),
                at_once: true,
            })
        };
        chains.iter().map(copy).collect()
    }

    #[test]
    fn copies_agree_if_only_the_innermost_function_moved() {
        let one = chain(&[(1, 0), (2, 4)]);
        assert_eq!(
            agreed(&copies(&[one.clone(), chain(&[(1, 0), (2, 8)])])),
            Some(one.clone())
        );
        for other in [
            chain(&[(1, 2), (2, 4)]),
            chain(&[(1, 0), (3, 4)]),
            chain(&[(1, 0)]),
            chain(&[]),
        ] {
            assert_eq!(agreed(&copies(&[one.clone(), other])), None);
        }
        assert_eq!(agreed(&[None]), None);
    }

    #[test]
    fn of_a_torn_stack_the_frames_that_stayed_are_shown() {
        let chains = [
            chain(&[(1, 0), (2, 4), (3, 0), (4, 0)]),
            chain(&[(1, 0), (2, 8), (3, 0)]),
            chain(&[(3, 6)]),
        ];
        let expected = chain(&[(1, 0), (2, 4)]).frames;
        assert_eq!(in_common(&chains), expected);
        assert_eq!(in_common(&[]), []);
    }
}
