//! Reads one variable again and again until copies made right after each other agree.
//!
//! A thread that runs replaces values faster than waves of readings follow. Once it is known which pieces of memory a
//! value is made of, all of them are copied several times with one call, which takes a few microseconds.
//!
//! That two copies are alike is not enough. Python makes a new object where it freed the one before the last: a loop
//! has the same two lists in turn in a variable, and each is half-made while the other is there. So there are more
//! copies, and after each piece the variable itself is copied: it must never have referred to another object.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use crate::locals::slots::{Bound, Variables};
use crate::locals::values::{Values, WriteBuffer};
use crate::locals::{CHANGING, LocalLimits, UNREADABLE, ValueText, Variable};
use crate::memory::{Bounded, CopyOutcome, Memory, Pages, Range};
use crate::python::frames::RawFrame;
use crate::python::interpreter::Interpreter;
use crate::python::objects::{Gap, KnownTypes, ReadResult, Source, View};

const TRIES: usize = 10;
/// Copies that must agree.
const COPIES: usize = 4;
/// For a thread that lost its CPU.
const MOMENT: Duration = Duration::from_millis(2);
/// Waves of one try.
const WAVES: usize = 40;
/// For one variable.
const MAX_READ: usize = 16 << 20;

pub(super) struct Retry<'a, M: ?Sized> {
    pub(super) interpreter: &'a Interpreter,
    pub(super) memory: &'a M,
    pub(super) limits: &'a LocalLimits,
    /// From then on nothing is tried again.
    pub(super) until: Instant,
    /// From then on nothing is tried at all.
    pub(super) last: Instant,
}

impl<M: Memory + ?Sized> Retry<'_, M> {
    pub(super) fn variable(&self, frame: &RawFrame, code: &Variables, bound: &Bound) -> ValueText {
        let memory = Bounded::new(self.memory, MAX_READ);
        let mut seen: Vec<Option<Variable>> = Vec::new();
        for attempt in 0..TRIES {
            let until = if attempt == 0 { self.last } else { self.until };
            if Instant::now() > until {
                break;
            }
            let look = |view: &View<'_>| self.look(view, frame, code, bound);
            let Some(pieces) = self.pieces(&memory, look) else {
                seen.push(None);
                continue;
            };
            let slot = bound.slot(self.interpreter, frame);
            let copies = self.copies(&memory, &pieces, slot, look);
            if let [Some(one), others @ ..] = &copies[..]
                && others.iter().all(|other| other.as_ref() == Some(one))
            {
                match &one.written {
                    Some(written) if written.whole => return written.clone(),
                    // The thread lost its CPU while it moved things.
                    _ => thread::sleep(MOMENT),
                }
            }
            seen.extend(copies);
        }
        stays(&seen).unwrap_or_else(|| ValueText::only(CHANGING))
    }

    /// Copies all pieces several times; `None` where there is no value, or if the slot did not stay the same throughout.
    fn copies(
        &self,
        memory: &Bounded<'_, M>,
        pieces: &[Range],
        slot: Option<Range>,
        look: impl Fn(&View<'_>) -> ReadResult<Option<Variable>>,
    ) -> Vec<Option<Variable>> {
        let with_slot = |piece: &Range| std::iter::once(*piece).chain(slot);
        let once: Vec<Range> = pieces.iter().flat_map(with_slot).collect();
        let answers = memory.read_many(&once.repeat(COPIES));
        let stride = 1 + usize::from(slot.is_some());
        let mut slots = answers.iter().skip(1).step_by(stride);
        let first = slots.next();
        if slot.is_some() && !slots.all(|slot| Some(slot) == first) {
            return vec![None; COPIES];
        }
        let types = KnownTypes::default();
        let copies = answers.chunks_exact(once.len().max(1)).map(|answers| {
            let copy = Copy {
                bytes: once.iter().copied().zip(answers).step_by(stride).collect(),
            };
            look(&View::new(self.interpreter, &copy, &types)).ok()?
        });
        copies.collect()
    }

    fn look(
        &self,
        view: &View<'_>,
        frame: &RawFrame,
        code: &Variables,
        bound: &Bound,
    ) -> ReadResult<Option<Variable>> {
        let Some(object) = code.find(view, frame, bound)? else {
            return Ok(None);
        };
        let written =
            match Values::new(view, self.limits, &mut WriteBuffer::default()).write(object) {
                Err(Gap::Later) => return Err(Gap::Later),
                written => written.ok(),
            };
        Ok(Some(Variable { object, written }))
    }

    /// Where everything lies that the value is made of now.
    fn pieces(
        &self,
        memory: &Bounded<'_, M>,
        look: impl Fn(&View<'_>) -> ReadResult<Option<Variable>>,
    ) -> Option<Vec<Range>> {
        let mut pages = Pages::default();
        for _ in 0..WAVES {
            let traced = Traced {
                pages: &pages,
                pieces: RefCell::default(),
            };
            let types = KnownTypes::default();
            let view = View::new(self.interpreter, &traced, &types);
            let found = look(&view);
            let missing = view.into_missing();
            match found {
                Ok(_) => {
                    let mut pieces = traced.pieces.into_inner();
                    let mut seen = HashSet::new();
                    pieces.retain(|piece| seen.insert(*piece));
                    return Some(pieces);
                }
                Err(Gap::Wrong) => return None,
                Err(Gap::Later) => pages.load(memory, &missing),
            }
        }
        None
    }
}

/// What a variable is that was always the same, though not all of it can be read.
fn stays(seen: &[Option<Variable>]) -> Option<ValueText> {
    let first = seen.first()?.as_ref()?;
    let is_same = |other: &Option<Variable>| other.as_ref() == Some(first);
    let unreadable = || ValueText::only(UNREADABLE);
    let always = seen.len() == COPIES * TRIES && seen.iter().all(is_same);
    always.then(|| first.written.clone().unwrap_or_else(unreadable))
}

/// Notes what is read.
struct Traced<'a> {
    pages: &'a Pages,
    pieces: RefCell<Vec<Range>>,
}

impl Source for Traced<'_> {
    fn copy(&self, address: u64, into: &mut [u8]) -> CopyOutcome {
        self.pieces.borrow_mut().push((address, into.len()));
        self.pages.copy(address, into)
    }
}

/// Only what was noted.
struct Copy<'a> {
    bytes: HashMap<Range, &'a Option<Vec<u8>>>,
}

impl Source for Copy<'_> {
    fn copy(&self, address: u64, into: &mut [u8]) -> CopyOutcome {
        match self.bytes.get(&(address, into.len())) {
            Some(Some(bytes)) => {
                into.copy_from_slice(bytes);
                CopyOutcome::Here
            }
            Some(None) => CopyOutcome::Never,
            // The value is made of other pieces now.
            None => CopyOutcome::NotLoaded,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::hostile::interpreter;

    const SLOT: u64 = 0x1000;
    const OBJECTS: [u64; 2] = [0x2000, 0x3000];
    const WORDS: usize = 9;
    /// As long as all is copied.
    const SLOW: u64 = 2 * (COPIES * (WORDS + 1)) as u64;
    const WHOLE: u64 = 7;
    const HALF_MADE: u64 = 0;

    /// A loop that has one of two objects in a variable for a while and makes the other one meanwhile. Time goes on with
    /// each word that is copied.
    struct Loop {
        period: u64,
        time: AtomicU64,
    }

    impl Memory for Loop {
        fn read_many(&self, ranges: &[Range]) -> Vec<Option<Vec<u8>>> {
            let word = |(address, _): &Range| {
                let time = self.time.fetch_add(1, Ordering::Relaxed);
                let bound = OBJECTS[(time / self.period % 2) as usize];
                let word = match *address {
                    SLOT => bound,
                    part if part & !0xff == bound => WHOLE,
                    _ => HALF_MADE,
                };
                Some(word.to_le_bytes().to_vec())
            };
            ranges.iter().map(word).collect()
        }
    }

    /// The value is made of many words.
    fn look(view: &View<'_>) -> ReadResult<Option<Variable>> {
        let object = view.word(SLOT, 0)?;
        let words: ReadResult<Vec<u64>> = (0..WORDS).map(|n| view.word(object, n * 8)).collect();
        let text = format!("{:?}", words?);
        Ok(Some(Variable {
            object,
            written: Some(ValueText::only(&text)),
        }))
    }

    #[test]
    fn an_object_that_is_being_made_is_not_taken_for_the_value_of_a_variable() {
        let (interpreter, limits, now) = (interpreter(), LocalLimits::default(), Instant::now());
        for (period, begin) in
            (2..=SLOW).flat_map(|period| (0..2 * period).map(move |n| (period, n)))
        {
            let memory = Loop {
                period,
                time: AtomicU64::new(begin),
            };
            let retry = Retry {
                interpreter: &interpreter,
                memory: &memory,
                limits: &limits,
                until: now,
                last: now,
            };
            let memory = Bounded::new(&memory, MAX_READ);
            let words = (0..WORDS as u64).map(|n| (OBJECTS[0] + n * 8, 8));
            let pieces: Vec<Range> = std::iter::once((SLOT, 8)).chain(words).collect();
            let copies = retry.copies(&memory, &pieces, Some((SLOT, 8)), look);
            let agree = copies.windows(2).all(|two| two[0] == two[1]);
            let texts = copies.iter().flatten().flat_map(|value| &value.written);
            let is_whole = |written: &ValueText| *written.text == *format!("{:?}", [WHOLE; WORDS]);
            assert!(!agree || texts.clone().all(is_whole), "{period} {begin}");
            let lasts = begin == 0 && period == SLOW;
            assert!(!lasts || texts.count() == COPIES);
        }
    }
}
