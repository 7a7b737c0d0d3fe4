//! The index of breakpoints that events are compared with: code objects and threads that step.
//!
//! Changed and read with the GIL held only; nothing here runs code of the program.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use pyo3::Borrowed;
use pyo3::prelude::*;

use crate::breakpoints::registry::Breakpoint;
use crate::breakpoints::stepping::Step;
use crate::python::frame::{self, Names};
use crate::python::gil_cell::{GilCell, GilGuard};
use crate::watchpoints::Store;

static INDEX: GilCell<BreakpointIndex> = GilCell::new(BreakpointIndex::new());

/// The index. Whoever has it does not release the GIL meanwhile.
#[inline]
pub(crate) fn breakpoint_index(py: Python<'_>) -> GilGuard<'_, BreakpointIndex> {
    INDEX.borrow_mut(py)
}

/// The index, for events: one that comes while this thread changes the index is none of ours.
#[inline]
pub(crate) fn try_breakpoint_index(py: Python<'_>) -> Option<GilGuard<'_, BreakpointIndex>> {
    INDEX.try_borrow_mut(py)
}

/// All of it.
pub(crate) struct BreakpointIndex {
    /// By address; each is kept alive.
    codes: HashMap<usize, CodeBreakpoints, BuildHasherDefault<Address>>,
    /// Those that look for code that begins to run.
    pub(crate) seekers: Vec<Arc<Breakpoint>>,
    /// Grows with each of them.
    seeking: u64,
    /// Those that look for exceptions.
    pub(crate) raises: Vec<Arc<Breakpoint>>,
    /// Those that watch what a path leads to.
    pub(crate) values: Vec<Arc<Breakpoint>>,
    /// Steps under way, by thread.
    pub(crate) steps: HashMap<u64, Step, BuildHasherDefault<Address>>,
    /// How many points are being set: each will be found in one of these.
    pub(crate) preparing: u32,
}

/// What is armed in one code object.
pub(crate) struct CodeBreakpoints {
    pub(crate) code: Py<PyAny>,
    first_line: u32,
    /// Of a function that points are in: only then a name is where we look for it.
    pub(crate) names: Option<Names>,
    /// Of the code that calls out at them, where there is one (`sites.rs`).
    pub(crate) twin: Option<Names>,
    pub(crate) lines: Vec<(u32, Arc<Breakpoint>)>,
    /// Each with the first line of the body.
    pub(crate) starts: Vec<(u32, Arc<Breakpoint>)>,
    /// Where watched variables are written.
    pub(crate) stores: Vec<Store>,
    /// Which seekers have seen it: those that there were when [`Armed::seeking`] was this.
    sought: u64,
    /// Whether it was told to tell of its instructions, whoever else asks.
    pub(crate) tells_for_good: bool,
    /// How many threads have changes that wait for its next instruction.
    pub(crate) waits: u32,
    /// How many steps look at its lines.
    pub(crate) steppers: u32,
    /// Whether a step looks at its end.
    pub(crate) enders: u32,
}

/// What an event at a place means.
pub(crate) enum EventMatch {
    /// Nothing, and nothing will come of it later.
    Nothing,
    /// Nothing this time.
    NotNow,
    /// Something is to be looked at, outside of the lock.
    Hits(Vec<BreakpointHit>),
}

/// A point whose place a thread is at.
pub(crate) struct BreakpointHit {
    pub(crate) point: Arc<Breakpoint>,
    /// Whether its condition is known to hold; else it is to be asked.
    pub(crate) holds: bool,
    pub(crate) line: u32,
}

impl BreakpointIndex {
    const fn new() -> Self {
        Self {
            codes: HashMap::with_hasher(BuildHasherDefault::new()),
            seekers: Vec::new(),
            seeking: 0,
            raises: Vec::new(),
            values: Vec::new(),
            steps: HashMap::with_hasher(BuildHasherDefault::new()),
            preparing: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.codes.is_empty()
            && self.seekers.is_empty()
            && self.raises.is_empty()
            && self.values.is_empty()
            && self.steps.is_empty()
            && self.preparing == 0
    }

    pub(crate) fn code(&self, code: usize) -> Option<&CodeBreakpoints> {
        self.codes.get(&code)
    }

    pub(crate) fn code_mut(&mut self, code: &Bound<'_, PyAny>) -> &mut CodeBreakpoints {
        self.codes
            .entry(code.as_ptr() as usize)
            .or_insert_with(|| CodeBreakpoints {
                code: code.clone().unbind(),
                first_line: frame::first_line_of(code),
                names: None,
                twin: None,
                lines: Vec::new(),
                starts: Vec::new(),
                stores: Vec::new(),
                sought: 0,
                tells_for_good: false,
                waits: 0,
                steppers: 0,
                enders: 0,
            })
    }

    /// One more that looks for code that begins to run.
    pub(crate) fn add_seeker(&mut self, point: Arc<Breakpoint>) {
        self.seekers.push(point);
        self.seeking += 1;
    }

    /// Those that have not seen this code, which begins to run. Each looks at it once: a function with a breakpoint tells every time.
    #[inline]
    pub(crate) fn seekers_of(&mut self, code: usize) -> Vec<Arc<Breakpoint>> {
        if let Some(arms) = self.codes.get_mut(&code) {
            if arms.sought == self.seeking {
                return Vec::new();
            }
            arms.sought = self.seeking;
        }
        self.seekers.clone()
    }

    /// Every code object that something is or was armed in.
    pub(crate) fn codes<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyAny>> {
        let codes = self.codes.values();
        codes.map(|arms| arms.code.bind(py).clone()).collect()
    }

    /// Forgets code in which nothing is armed any more; gives it back, to be dropped outside of the lock.
    pub(crate) fn forget_empty(&mut self) -> Vec<Py<PyAny>> {
        let is_empty = |arms: &CodeBreakpoints| arms.is_empty();
        let empty: Vec<usize> = self
            .codes
            .iter()
            .filter(|(_, arms)| is_empty(arms))
            .map(|(address, _)| *address)
            .collect();
        let forgotten = empty.iter().filter_map(|it| self.codes.remove(it));
        forgotten.map(|arms| arms.code).collect()
    }

    /// Takes a point out of everything; the code objects in which it was.
    pub(crate) fn remove<'py>(
        &mut self,
        py: Python<'py>,
        point: &Arc<Breakpoint>,
    ) -> Vec<Bound<'py, PyAny>> {
        let is_other = |other: &Arc<Breakpoint>| !Arc::ptr_eq(other, point);
        self.seekers.retain(is_other);
        self.raises.retain(is_other);
        self.values.retain(is_other);
        let mut changed = Vec::new();
        for arms in self.codes.values_mut() {
            let before = arms.point_count();
            arms.lines.retain(|(_, other)| is_other(other));
            arms.starts.retain(|(_, other)| is_other(other));
            arms.stores.retain(|store| is_other(&store.point));
            if arms.point_count() != before {
                changed.push(arms.code.bind(py).clone());
            }
        }
        changed
    }

    /// A thread is at a line. Conditions that can be answered here are.
    #[inline]
    pub(crate) fn at_line<'a, 'py: 'a>(
        &self,
        code: usize,
        line: u32,
        frame: impl FnOnce() -> Option<Borrowed<'a, 'py, PyAny>>,
    ) -> EventMatch {
        match self.codes.get(&code) {
            Some(arms) => arms.at_line(line, frame),
            None => EventMatch::Nothing,
        }
    }

    /// A function begins.
    pub(crate) fn at_start(&self, code: usize, frame: &Bound<'_, PyAny>) -> EventMatch {
        match self.codes.get(&code) {
            Some(arms) if arms.tells_of_starts() => {
                CodeBreakpoints::met(arms.starts.iter(), frame, arms.names.as_ref())
            }
            _ => EventMatch::Nothing,
        }
    }
}

impl CodeBreakpoints {
    /// A thread is at a line of it.
    #[inline]
    pub(crate) fn at_line<'a, 'py: 'a>(
        &self,
        line: u32,
        frame: impl FnOnce() -> Option<Borrowed<'a, 'py, PyAny>>,
    ) -> EventMatch {
        let mut here = self.lines.iter().filter(|(at, _)| *at == line).peekable();
        if here.peek().is_none() {
            // Python 3.12 and 3.13 leave out an instruction's own event where that of its line is wanted no more: then what
            // was written just before would be missed.
            return if self.steppers == 0 && self.stores.is_empty() {
                EventMatch::Nothing
            } else {
                EventMatch::NotNow
            };
        }
        match frame() {
            Some(frame) => Self::met(here, &frame, self.names.as_ref()),
            None => EventMatch::NotNow,
        }
    }

    /// A thread is where its twin calls out.
    #[inline]
    pub(crate) fn at_call(
        &self,
        (line, begins): (u32, bool),
        frame: &Bound<'_, PyAny>,
    ) -> EventMatch {
        let starts = self.starts.iter().filter(|_| begins);
        let lines = self.lines.iter().filter(|(at, _)| *at == line);
        Self::met(starts.chain(lines), frame, self.twin.as_ref())
    }

    /// Of points that are here, those whose conditions may hold.
    #[inline]
    fn met<'a>(
        here: impl Iterator<Item = &'a (u32, Arc<Breakpoint>)>,
        frame: &Bound<'_, PyAny>,
        names: Option<&Names>,
    ) -> EventMatch {
        let passed = here.filter_map(|(line, point)| {
            let known = match (&point.condition, names) {
                (None, _) => Some(true),
                (Some(condition), Some(names)) => condition.known((frame, names)),
                (Some(_), None) => None,
            };
            (known != Some(false)).then(|| BreakpointHit {
                point: Arc::clone(point),
                holds: known.is_some(),
                line: *line,
            })
        });
        let passed: Vec<_> = passed.collect();
        if passed.is_empty() {
            EventMatch::NotNow
        } else {
            EventMatch::Hits(passed)
        }
    }

    /// Whether it tells that it begins. From 3.13 on its first line is told only where that is, too.
    pub(crate) fn tells_of_starts(&self) -> bool {
        let is_first = |(line, _): &(u32, Arc<Breakpoint>)| *line == self.first_line;
        !self.starts.is_empty() || self.lines.iter().any(is_first)
    }

    /// Whether a point is at one of its lines, or at its beginning.
    pub(crate) fn has(&self, point: &Arc<Breakpoint>) -> bool {
        self.points().any(|other| Arc::ptr_eq(other, point))
    }

    /// Those at its lines and at its beginning.
    pub(crate) fn points(&self) -> impl Iterator<Item = &Arc<Breakpoint>> {
        let places = self.starts.iter().chain(&self.lines);
        places.map(|(_, point)| point)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.point_count() == 0 && self.waits == 0 && self.steppers == 0 && self.enders == 0
    }

    fn point_count(&self) -> usize {
        self.lines.len() + self.starts.len() + self.stores.len()
    }
}

/// Addresses are different enough; only their low bits are not.
#[derive(Debug, Default)]
pub(crate) struct Address(u64);

impl Hasher for Address {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.write_u64(address as u64);
    }

    fn write_u64(&mut self, address: u64) {
        self.0 = (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
