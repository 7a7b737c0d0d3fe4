//! The code objects that somebody wants to know of, by address.
//!
//! Reached with the GIL held, by every event: so it is an array that is looked into at a place that follows from the
//! address, and never more than half full.

use pyo3::prelude::*;

use crate::breakpoints::YieldPoints;
use crate::python::frame;
use crate::python::gil_cell::{GilCell, GilGuard};
use crate::trace::function_stats::Tracing;
use crate::trace::tap::{EventSet, Tap};
use crate::trace::traces::Trace;

static TABLE: GilCell<Table> = GilCell::new(Table::new());

/// Of one code object.
const MAX_TAPS: usize = 4;
const FIRST_SIZE: usize = 16;

/// The table. Whoever has it does not release the GIL meanwhile.
pub(crate) fn table(py: Python<'_>) -> GilGuard<'_, Table> {
    TABLE.borrow_mut(py)
}

/// The table, for events: one that comes while this thread changes the table is none of ours.
#[inline]
pub(crate) fn table_if_free(py: Python<'_>) -> Option<GilGuard<'_, Table>> {
    TABLE.try_borrow_mut(py)
}

pub(crate) type Taps = [Option<&'static dyn Tap>; MAX_TAPS];

/// One code object, which is kept alive.
pub(crate) struct Entry {
    code: Py<PyAny>,
    /// Whether it can be left and come back to.
    pub(crate) suspends: bool,
    taps: Taps,
    /// The first of them, and whether there are others: every event asks.
    pub(crate) tap: Option<&'static dyn Tap>,
    pub(crate) has_more: bool,
    pub(crate) tracing: Option<Tracing>,
    /// Before 3.12: whether its functions have code that tells; and what a profile function has to know of it.
    pub(crate) tells: bool,
    pub(crate) yields: Option<YieldPoints>,
}

/// How to go on after an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventFollowUp {
    /// Whether to be told again at this place.
    pub(crate) again: bool,
    /// Whether it is time to look at what all this costs.
    pub(crate) is_due: bool,
    /// Whether all code is to tell again that it begins: some may be called by what has just begun.
    pub(crate) looks_again: bool,
}

impl EventFollowUp {
    pub(crate) const ON: Self = Self {
        again: true,
        is_due: false,
        looks_again: false,
    };
}

pub(crate) struct Table {
    /// A power of two of them, or none.
    places: Vec<Option<Box<Entry>>>,
    /// What takes a hash to one of so many.
    shift: u32,
    count: usize,
}

impl Table {
    const fn new() -> Self {
        Self {
            places: Vec::new(),
            shift: 0,
            count: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub(crate) fn entry(&self, code: usize) -> Option<&Entry> {
        let mut place = self.home(code);
        loop {
            let entry = self.places.get(place)?.as_deref()?;
            if entry.address() == code {
                return Some(entry);
            }
            place = (place + 1) & (self.places.len() - 1);
        }
    }

    /// Adds a tap; whether it was not there before. `None`: no room.
    pub(crate) fn add(&mut self, code: &Bound<'_, PyAny>, tap: &'static dyn Tap) -> Option<bool> {
        let entry = self.entry_mut(code);
        if entry
            .taps
            .iter()
            .flatten()
            .any(|other| is_same(*other, tap))
        {
            return Some(false);
        }
        let free = entry.taps.iter_mut().find(|tap| tap.is_none())?;
        *free = Some(tap);
        entry.note_taps();
        Some(true)
    }

    /// Takes a tap out; whether it was there.
    pub(crate) fn remove(&mut self, code: &Bound<'_, PyAny>, tap: &'static dyn Tap) -> bool {
        let Some(entry) = self.entry_there(code.as_ptr() as usize) else {
            return false;
        };
        let taps = &mut entry.taps;
        let is_it =
            |other: &&mut Option<&'static dyn Tap>| other.is_some_and(|it| is_same(it, tap));
        let there = taps.iter_mut().find(is_it).and_then(Option::take);
        entry.note_taps();
        there.is_some()
    }

    /// Forgets a code object that has no tap. What is given back is to be dropped outside.
    pub(crate) fn take_if_empty(&mut self, code: &Bound<'_, PyAny>) -> Option<Box<Entry>> {
        let address = code.as_ptr() as usize;
        let entry = self.entry(address)?;
        let is_empty = entry.tracing.is_none() && entry.tap.is_none();
        if is_empty { self.take(address) } else { None }
    }

    /// Forgets all code objects that have neither a tap nor a trace: these, which are to be dropped outside.
    pub(crate) fn take_empty(&mut self) -> Vec<Py<PyAny>> {
        let is_empty = |entry: &mut Box<Entry>| entry.tracing.is_none() && entry.tap.is_none();
        let places = self.places.iter_mut();
        let taken = places.filter_map(|place| place.take_if(is_empty));
        let taken: Vec<_> = taken.map(|entry| entry.code).collect();
        if !taken.is_empty() {
            // Those behind them may have been put there because they were in their way.
            self.resize(self.places.len());
        }
        taken
    }

    /// Takes everything out: the codes that were there.
    pub(crate) fn take_all(&mut self) -> Vec<Py<PyAny>> {
        self.count = 0;
        let places = std::mem::take(&mut self.places);
        places
            .into_iter()
            .flatten()
            .map(|entry| entry.code)
            .collect()
    }

    /// What all together want to know.
    pub(crate) fn wants(&self) -> EventSet {
        let entries = self.places.iter().flatten();
        entries.fold(EventSet::default(), |all, entry| all.and(entry.wants()))
    }

    /// All that is traced.
    pub(crate) fn tracings(&mut self) -> impl Iterator<Item = &mut Tracing> {
        let entries = self.places.iter_mut().flatten();
        entries.filter_map(|entry| entry.tracing.as_mut())
    }

    /// Before 3.12: whether there is code that a trace is of, that is not muted, and that does not tell by itself.
    pub(crate) fn needs_profile(&self) -> bool {
        let entries = self.places.iter().flatten().map(Box::as_ref);
        let mut silent = entries.filter(|entry| !entry.tells);
        silent.any(|entry| {
            entry
                .tracing
                .as_ref()
                .is_some_and(Tracing::pays_for_profile)
        })
    }

    /// The codes that are traced for one trace.
    pub(crate) fn codes_of<'py>(&self, py: Python<'py>, trace: &Trace) -> Vec<Bound<'py, PyAny>> {
        let entries = self.places.iter().flatten().map(Box::as_ref);
        let is_its = |entry: &&Entry| {
            let tracing = entry.tracing.as_ref();
            tracing.is_some_and(|tracing| std::ptr::eq(&raw const *tracing.trace, trace))
        };
        let codes = entries.filter(is_its);
        codes.map(|entry| entry.code.bind(py).clone()).collect()
    }

    pub(crate) fn entry_mut(&mut self, code: &Bound<'_, PyAny>) -> &mut Entry {
        let address = code.as_ptr() as usize;
        if self.entry(address).is_none() {
            if 2 * (self.count + 1) > self.places.len() {
                self.resize((2 * self.places.len()).max(FIRST_SIZE));
            }
            self.put(Box::new(Entry {
                code: code.clone().unbind(),
                suspends: frame::suspends(code),
                taps: [None; MAX_TAPS],
                tap: None,
                has_more: false,
                tracing: None,
                tells: false,
                yields: None,
            }));
        }
        self.entry_there(address).expect("it was put there")
    }

    #[inline]
    pub(crate) fn entry_there(&mut self, address: usize) -> Option<&mut Entry> {
        let mut place = self.home(address);
        while self.places.get(place)?.as_ref()?.address() != address {
            place = (place + 1) & (self.places.len() - 1);
        }
        self.places[place].as_deref_mut()
    }

    /// What is known of a function that can be told of the quick way, and its place.
    #[inline]
    pub(crate) fn quick(&mut self, code: usize) -> Option<(u32, &mut Tracing)> {
        let mut place = self.home(code);
        while self.places.get(place)?.as_ref()?.address() != code {
            place = (place + 1) & (self.places.len() - 1);
        }
        let entry = self.places[place].as_deref_mut()?;
        Some((place as u32, entry.quick()?))
    }

    /// The same, where it was found before, if it is still there.
    #[inline]
    pub(crate) fn quick_at(&mut self, place: u32, code: usize) -> Option<&mut Tracing> {
        let entry = self.places.get_mut(place as usize)?.as_deref_mut()?;
        let is_it = entry.address() == code;
        is_it.then(|| entry.quick())?
    }

    fn take(&mut self, code: usize) -> Option<Box<Entry>> {
        let place = self
            .places
            .iter()
            .position(|entry| entry.as_ref().is_some_and(|entry| entry.address() == code))?;
        let taken = self.places[place].take();
        // Those behind it may have been put there because it was in their way.
        self.resize(self.places.len());
        taken
    }

    fn resize(&mut self, size: usize) {
        let places = std::iter::repeat_with(|| None).take(size).collect();
        let before = std::mem::replace(&mut self.places, places);
        self.shift = usize::BITS - self.places.len().trailing_zeros();
        self.count = 0;
        for entry in before.into_iter().flatten() {
            self.put(entry);
        }
    }

    fn put(&mut self, entry: Box<Entry>) {
        let mut place = self.home(entry.address());
        while self.places[place].is_some() {
            place = (place + 1) & (self.places.len() - 1);
        }
        self.places[place] = Some(entry);
        self.count += 1;
    }

    /// Where to look first; outside when there are no places.
    #[inline]
    fn home(&self, code: usize) -> usize {
        let hash = (code >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash >> self.shift
    }
}

impl Entry {
    #[inline]
    fn address(&self) -> usize {
        self.code.as_ptr() as usize
    }

    #[inline]
    fn quick(&mut self) -> Option<&mut Tracing> {
        let is_tapped = self.tap.is_some();
        let is_quick = |tracing: &&mut Tracing| !is_tapped && tracing.is_quick();
        self.tracing.as_mut().filter(is_quick)
    }

    pub(crate) fn is_muted(&self) -> bool {
        self.tracing
            .as_ref()
            .is_some_and(|tracing| tracing.is_muted)
    }

    pub(crate) fn wants(&self) -> EventSet {
        let taps = self.taps.iter().flatten();
        let of_tracing = self.tracing.as_ref().map(|tracing| tracing.wants);
        taps.fold(of_tracing.unwrap_or_default(), |all, tap| {
            all.and(tap.wants())
        })
    }

    pub(crate) fn taps(&self) -> Taps {
        self.taps
    }

    fn note_taps(&mut self) {
        let mut taps = self.taps.iter().flatten();
        self.tap = taps.next().copied();
        self.has_more = taps.next().is_some();
    }
}

fn is_same(one: &'static dyn Tap, other: &'static dyn Tap) -> bool {
    std::ptr::addr_eq(one, other)
}
