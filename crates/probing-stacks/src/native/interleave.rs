//! Brings Python's frames and native calls of one thread into their true order.
//!
//! Each time C enters the interpreter, the interpreter leaves a mark in its own part of the native stack, and Python's
//! frames lead to these marks. So a mark's address tells which native call it was: no name and no counting is needed,
//! and a stack whose marks lie outside its calls is not from one moment.

use std::ops::Range;

use crate::native::unwind::{Calls, CallsEnd};
use crate::python::frames::Chain;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::unwind::Call;
    use crate::python::frames::{Mark, RawFrame};

    /// Calls whose parts of the stack lie one after the other, each so long, from 0x1000 on.
    fn calls(sizes: &[u64], end: CallsEnd) -> Calls {
        let mut start = 0x1000;
        let call = |size: &u64| {
            let call = Call {
                address: 0,
                start,
                end: start + size,
            };
            start = call.end;
            call
        };
        Calls {
            calls: sizes.iter().map(call).collect(),
            end,
        }
    }

    fn run(mark: u64, frames: Range<usize>) -> Run {
        Run {
            mark,
            chain: 0,
            frames,
        }
    }

    fn python(frames: Range<usize>) -> Piece {
        Piece::Python { chain: 0, frames }
    }

    #[test]
    fn python_stands_where_its_marks_lie() {
        let calls = calls(&[16, 64, 16, 64, 16], CallsEnd::Outermost);
        let woven = weave(&calls, vec![run(0x1010, 0..2), run(0x1068, 2..3)]).unwrap();
        let expected = [
            Piece::Native(0),
            python(0..2),
            Piece::Native(2),
            python(2..3),
            Piece::Native(4),
        ];
        assert_eq!(
            (woven.pieces.as_slice(), woven.whole),
            (&expected[..], true)
        );
        // A run that has no frame yet is native.
        let woven = weave(&calls, vec![run(0x1010, 0..0)]).unwrap();
        assert_eq!(woven.pieces, [0, 1, 2, 3, 4].map(Piece::Native));
    }

    #[test]
    fn marks_outside_the_calls_are_from_another_moment() {
        let whole = calls(&[16, 64], CallsEnd::Outermost);
        let refuse = |marks: &[u64]| {
            let runs = marks.iter().map(|mark| run(*mark, 0..1)).collect();
            assert_eq!(weave(&whole, runs), None, "{marks:x?}");
        };
        refuse(&[0xff8]);
        refuse(&[0x1050]);
        refuse(&[0x1010, 0x1020]);
    }

    #[test]
    fn beyond_the_last_known_call_python_is_in_its_order() {
        let cut = calls(&[16, 0], CallsEnd::Lost);
        let woven = weave(&cut, vec![run(0x3000, 1..2), run(0x2000, 0..1)]).unwrap();
        let expected = [
            Piece::Native(0),
            Piece::Native(1),
            python(0..1),
            python(1..2),
        ];
        assert_eq!(
            (woven.pieces.as_slice(), woven.whole),
            (&expected[..], false)
        );
    }

    /// A chain of frames, of which those at the given places were called by C.
    fn chain(len: usize, entries: &[usize], marks: &[(u64, usize)]) -> Chain {
        let frame = |index| RawFrame {
            address: index as u64,
            code: 0,
            offset: 0,
            is_entry: entries.contains(&index),
        };
        let mark = |(address, inner): &(u64, usize)| Mark {
            address: *address,
            inner: *inner,
        };
        Chain {
            frames: (0..len).map(frame).collect(),
            marks: marks.iter().map(mark).collect(),
            ..Chain::default()
        }
    }

    #[test]
    fn runs_end_with_the_frames_that_c_called() {
        let expected = Some(vec![run(0x10, 0..2), run(0x20, 2..3)]);
        let marked = chain(3, &[1, 2], &[(0x10, 2), (0x20, 3)]);
        assert_eq!(runs(0, &marked, &[]), expected);
        let listed = chain(3, &[1, 2], &[]);
        assert_eq!(runs(0, &listed, &[0x10, 0x20]), expected);
        let early = Some(vec![run(0x8, 0..0), run(0x10, 0..2), run(0x20, 2..3)]);
        assert_eq!(runs(0, &listed, &[0x8, 0x10, 0x20]), early);
        assert_eq!(runs(0, &listed, &[0x20]), None);
        assert_eq!(runs(0, &listed, &[1, 2, 3, 4]), None);
        assert_eq!(runs(0, &chain(3, &[1], &[(0x10, 2)]), &[]), None);
    }
}
