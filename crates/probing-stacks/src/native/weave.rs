//! Brings Python's frames and native calls of one thread into their true order.
//!
//! Each time C enters the interpreter, the interpreter leaves a mark in its own part of the native stack, and Python's
//! frames lead to these marks. So a mark's address tells which native call it was: no name and no counting is needed,
//! and a stack whose marks lie outside its calls is not from one moment.

use std::ops::Range;

use super::unwind::{Calls, CallsEnd};
use crate::frames::Chain;

/// The Python frames of one run of the interpreter's loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where it lies on the native stack.
    pub(crate) mark: u64,
    /// Which of several interpreters of the thread.
    pub(crate) chain: usize,
    /// Frames of the chain.
    pub(crate) frames: Range<usize>,
}

/// What the stack consists of, innermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// One of the calls.
    Native(usize),
    Python {
        chain: usize,
        frames: Range<usize>,
    },
}

/// A stack in its true order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Woven {
    pub(crate) pieces: Vec<Piece>,
    /// No call is missing.
    pub(crate) whole: bool,
}

/// The runs of a chain that has marks, or for which the interpreter keeps a list of them. `None`: they do not fit.
pub(crate) fn runs(index: usize, chain: &Chain, listed: &[u64]) -> Option<Vec<Run>> {
    let ends: Vec<usize> = (1..=chain.frames.len())
        .filter(|end| chain.frames[end - 1].is_entry)
        .collect();
    let marks: Vec<(u64, usize)> = if chain.marks.is_empty() {
        // The newest may not have its frame yet.
        let early = listed
            .len()
            .checked_sub(ends.len())
            .filter(|early| *early <= 1)?;
        let ends = std::iter::repeat_n(0, early).chain(ends);
        listed.iter().copied().zip(ends).collect()
    } else {
        let marks = chain.marks.iter();
        marks.map(|mark| (mark.address, mark.inner)).collect()
    };
    let mut start = 0;
    let mut runs = Vec::new();
    for (mark, end) in marks {
        runs.push(Run {
            mark,
            chain: index,
            frames: start..end,
        });
        start = end;
    }
    (start == chain.frames.len()).then_some(runs)
}

/// `None`: the marks do not lie in the calls.
pub(crate) fn weave(calls: &Calls, mut runs: Vec<Run>) -> Option<Woven> {
    runs.sort_by_key(|run| run.mark);
    let mut runs = runs.into_iter().peekable();
    let mut pieces = Vec::new();
    for (index, call) in calls.calls.iter().enumerate() {
        let is_in = |run: &Run| (call.start..call.end).contains(&run.mark);
        match runs.next_if(is_in) {
            Some(run) if !run.frames.is_empty() => pieces.push(Piece::Python {
                chain: run.chain,
                frames: run.frames,
            }),
            _ => pieces.push(Piece::Native(index)),
        }
        // Below all calls, or a second one in the same.
        if runs.peek().is_some_and(|run| run.mark < call.end) {
            return None;
        }
    }
    let whole = calls.end == CallsEnd::Outermost;
    if whole && runs.peek().is_some() {
        return None;
    }
    // Beyond the last known call the order is that of the marks.
    pieces.extend(runs.map(|run| Piece::Python {
        chain: run.chain,
        frames: run.frames,
    }));
    Some(Woven { pieces, whole })
}
