//! Reads one variable again and again until two copies made right after each other agree.
//!
//! A thread that runs replaces values faster than waves of readings follow. Once it is known which pieces of memory a
//! value is made of, all of them are copied twice with one call, which takes a few microseconds.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use super::slots::Variables;
use super::values::Values;
use super::{CHANGING, LocalLimits, UNREADABLE, Variable, Written};
use crate::frames::RawFrame;
use crate::interpreter::Interpreter;
use crate::memory::{Bounded, Known, Memory, Pages, Range};
use crate::objects::{Gap, KnownTypes, Look, Source, View};

const TRIES: usize = 10;
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
}

impl<M: Memory + ?Sized> Retry<'_, M> {
    pub(super) fn variable(&self, frame: &RawFrame, code: &Variables, name: &str) -> Written {
        let memory = Bounded::new(self.memory, MAX_READ);
        let mut seen: Vec<Option<Variable>> = Vec::new();
        for _ in 0..TRIES {
            if Instant::now() > self.until {
                break;
            }
            let Some(pieces) = self.pieces(&memory, frame, code, name) else {
                seen.push(None);
                continue;
            };
            let answers = memory.read_many(&pieces.repeat(2));
            let types = KnownTypes::default();
            let copies = answers.chunks_exact(pieces.len().max(1)).map(|answers| {
                let copy = Copy {
                    bytes: pieces.iter().copied().zip(answers).collect(),
                };
                let view = View::new(self.interpreter, &copy, &types);
                self.look(&view, frame, code, name).ok()?
            });
            let copies: Vec<Option<Variable>> = copies.collect();
            if let [Some(one), Some(other)] = &copies[..]
                && one == other
            {
                match &one.written {
                    Some(written) if written.whole => return written.clone(),
                    // The thread lost its CPU while it moved things.
                    _ => thread::sleep(MOMENT),
                }
            }
            seen.extend(copies);
        }
        stays(&seen).unwrap_or_else(|| Written::only(CHANGING))
    }

    fn look(
        &self,
        view: &View<'_>,
        frame: &RawFrame,
        code: &Variables,
        name: &str,
    ) -> Look<Option<Variable>> {
        let slots = code.slots(view, frame, self.limits)?;
        let slot = slots.bound.iter().find(|(bound, _)| **bound == *name);
        let Some((_, object)) = slot else {
            return Ok(None);
        };
        let written = match Values::new(view, self.limits).write(*object) {
            Err(Gap::Later) => return Err(Gap::Later),
            written => written.ok(),
        };
        Ok(Some(Variable {
            object: *object,
            written,
        }))
    }

    /// Where everything lies that the value is made of now.
    fn pieces(
        &self,
        memory: &Bounded<'_, M>,
        frame: &RawFrame,
        code: &Variables,
        name: &str,
    ) -> Option<Vec<Range>> {
        let mut pages = Pages::default();
        for _ in 0..WAVES {
            let traced = Traced {
                pages: &pages,
                pieces: RefCell::default(),
            };
            let types = KnownTypes::default();
            let view = View::new(self.interpreter, &traced, &types);
            let look = self.look(&view, frame, code, name);
            let missing = view.into_missing();
            match look {
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
fn stays(seen: &[Option<Variable>]) -> Option<Written> {
    let first = seen.first()?.as_ref()?;
    let is_same = |other: &Option<Variable>| other.as_ref() == Some(first);
    let unreadable = || Written::only(UNREADABLE);
    let always = seen.len() == 2 * TRIES && seen.iter().all(is_same);
    always.then(|| first.written.clone().unwrap_or_else(unreadable))
}

/// Notes what is read.
struct Traced<'a> {
    pages: &'a Pages,
    pieces: RefCell<Vec<Range>>,
}

impl Source for Traced<'_> {
    fn copy(&self, address: u64, into: &mut [u8]) -> Known {
        self.pieces.borrow_mut().push((address, into.len()));
        self.pages.copy(address, into)
    }
}

/// Only what was noted.
struct Copy<'a> {
    bytes: HashMap<Range, &'a Option<Vec<u8>>>,
}

impl Source for Copy<'_> {
    fn copy(&self, address: u64, into: &mut [u8]) -> Known {
        match self.bytes.get(&(address, into.len())) {
            Some(Some(bytes)) => {
                into.copy_from_slice(bytes);
                Known::Here
            }
            Some(None) => Known::Never,
            // The value is made of other pieces now.
            None => Known::NotLoaded,
        }
    }
}
