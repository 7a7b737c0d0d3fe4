//! Watched values of a path: dictionaries that report writes, and values that are compared at each line.
//!
//! What a path leads to. The dictionaries on its way tell when they change, from 3.12 on; what they do not tell (an
//! item of a list, a tensor that is changed in place, and before 3.12 everything) is compared at each line that any
//! thread runs.
#![expect(
    unsafe_code,
    reason = "holds on to dictionaries without keeping them alive"
)]

use std::sync::Arc;

use probing_proto::message::Failure;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::breakpoints::rate_limit::Pace;
use crate::breakpoints::registry::Breakpoint;
use crate::python::gil_cell::{GilCell, GilGuard};
use crate::watchpoints::path::{Followed, Path, is_key};
use crate::watchpoints::remembered::{RememberedValue, plain};
use crate::watchpoints::{Change, Watch, dict_watch, shown, tensors};

/// Where a dictionary counts its changes, before 3.12.
const VERSION: usize = 24;

/// A watch of what a path leads to.
pub(crate) struct Value {
    path: Path,
    pace: Pace,
    state: GilCell<State>,
}

struct State {
    links: Vec<Link>,
    /// What the last dictionary leads to, or 0. It lives as long as that says nothing.
    base: usize,
    /// The first part that no dictionary holds.
    tail: usize,
    last: RememberedValue,
    is_tensor: bool,
}

/// A dictionary on the way.
struct Link {
    dict: usize,
    key: Py<PyAny>,
    /// The part of the path that comes next.
    next: usize,
    /// Before 3.12: kept until the next line, and how often it had changed.
    kept: Option<(Py<PyDict>, u64)>,
}

/// What a dictionary is about to do.
pub(crate) enum Event<'py> {
    Set(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>),
    /// It takes over all that another one has.
    Cloned(Bound<'py, PyDict>),
    Cleared,
    /// It goes away.
    Gone,
}

/// What came of an event.
pub(crate) struct Outcome {
    pub(crate) change: Option<Change>,
    /// Lines have to be looked at now, or no more.
    pub(crate) needs_other: bool,
}

impl Value {
    /// Follows the path for the first time; what could not be followed is refused.
    pub(crate) fn new(py: Python<'_>, path: Path, asked: &str) -> Result<Self, Failure> {
        let followed = path.follow(py);
        if let Some(why) = followed.hidden {
            return Err(Failure::new(format!("cannot watch {asked}: {why}"))
                .with_hint("watch its parts, or break where it is written"));
        }
        drop(followed);
        Ok(Self {
            path,
            pace: Pace::default(),
            state: GilCell::new(State {
                links: Vec::new(),
                base: 0,
                tail: 0,
                last: RememberedValue::Unknown,
                is_tensor: false,
            }),
        })
    }

    /// Looks for the first time; what it is now, in words.
    pub(crate) fn begin(&self, py: Python<'_>, point: &Arc<Breakpoint>) -> Option<String> {
        let followed = self.path.follow(py);
        let mut state = self.state(py)?;
        // First of all: from here on its dictionaries tell when what was found goes away.
        state.take(py, point, &followed, 0);
        state.remember(&followed, None);
        drop(state);
        let value = followed.value.as_ref()?;
        let told = shown(point, value);
        self.remember_of(py, Some(value), &told);
        Some(told)
    }

    /// Whether it is a tensor, and whether it has to be compared at each line.
    pub(crate) fn is_compared(&self, py: Python<'_>) -> (bool, bool) {
        let Some(state) = self.state(py) else {
            return (false, true);
        };
        (state.is_tensor, self.needs_lines(py, &state))
    }

    fn needs_lines(&self, py: Python<'_>, state: &State) -> bool {
        !dict_watch::can_tell(py) || state.is_tensor || state.tail < self.path.parts.len()
    }

    /// Lets go of all dictionaries; what was kept of them is to be dropped when no lock is held.
    pub(crate) fn end(&self, py: Python<'_>, point: &Arc<Breakpoint>) -> Vec<Py<PyDict>> {
        let Some(mut state) = self.state(py) else {
            return Vec::new();
        };
        let links = std::mem::take(&mut state.links);
        drop(state);
        let dicts = links.iter().map(|link| link.dict);
        dict_watch::forget(py, point, dicts);
        links
            .into_iter()
            .filter_map(|it| Some(it.kept?.0))
            .collect()
    }

    /// Whether an item that is about to be written is all that the path ends with, and there is nothing to tell of it: most
    /// writes of a busy program. What takes more than a glance is not known here.
    #[inline]
    pub(crate) fn is_settled(
        &self,
        point: &Breakpoint,
        (dict, key): (usize, usize),
        new: &Bound<'_, PyAny>,
    ) -> bool {
        let Some(mut state) = self.state(new.py()) else {
            return false;
        };
        let state = &mut *state;
        let Some((last, before)) = state.links.split_last() else {
            return false;
        };
        let is_end = (last.dict, last.key.as_ptr() as usize) == (dict, key)
            && last.next >= self.path.parts.len()
            && before.iter().all(|link| link.dict != dict);
        if !is_end || state.is_tensor {
            return false;
        }
        let Some(now) = plain(new) else {
            return false;
        };
        if !state.last.equals(&now) {
            if !point.only_counts() || !self.pace.is_used_up() {
                return false;
            }
            point.only_count();
            state.last = now;
        }
        state.base = new.as_ptr().expose_provenance();
        true
    }

    /// A dictionary is about to change. Runs no Python, and lets no other thread come in between.
    pub(crate) fn at_event(
        &self,
        point: &Arc<Breakpoint>,
        dict: &Bound<'_, PyAny>,
        event: &Event<'_>,
    ) -> Option<Outcome> {
        let py = dict.py();
        let mut state = self.state(py)?;
        let address = dict.as_ptr() as usize;
        let is_meant = |link: &Link| {
            let key = link.key.bind(py);
            link.dict == address
                && match event {
                    Event::Set(set, _) => is_key(key, set),
                    _ => true,
                }
        };
        let index = state.links.iter().position(is_meant)?;
        let key = state.links[index].key.bind(py);
        let new = match event {
            Event::Set(_, new) => new.clone(),
            Event::Cloned(other) => other.get_item(key).ok().flatten(),
            Event::Cleared | Event::Gone => None,
        };
        let old = self.value(py, &state);
        let compared = self.needs_lines(py, &state);
        let next = state.links[index].next;
        let followed = self.path.follow_from(next, new);
        let gone = matches!(event, Event::Gone);
        state.take(py, point, &followed, if gone { index } else { index + 1 });
        let is_same = match (&old, &followed.value) {
            (Some(old), Some(new)) => {
                old.is(new) || plain(old).is_some_and(|old| old.is(Some(new)))
            }
            (None, None) => true,
            _ => false,
        };
        let is_told = !is_same && self.is_told(point);
        let change = is_told.then(|| Change {
            old: old.as_ref().map(|value| shown(point, value)),
            new: followed.value.as_ref().map(|value| shown(point, value)),
            at: None,
            value: stats_of(point, &followed),
            operation: None,
        });
        if let Some(change) = &change {
            point.saw(change.new.clone());
        }
        let new = change.as_ref().and_then(|change| change.new.as_deref());
        state.remember(&followed, new);
        Some(Outcome {
            needs_other: compared != self.needs_lines(py, &state),
            change,
        })
    }

    /// Compares it, at a line. What is dropped with it is given back, for when no lock is held.
    pub(crate) fn at_line(
        &self,
        py: Python<'_>,
        point: &Arc<Breakpoint>,
        dropped: &mut Vec<Py<PyDict>>,
    ) -> Option<Change> {
        let mut state = self.state(py)?;
        if !self.needs_lines(py, &state) {
            return None;
        }
        if state.links.iter().any(Link::has_changed) {
            let followed = self.path.follow(py);
            let links = std::mem::take(&mut state.links);
            dropped.extend(links.into_iter().filter_map(|it| Some(it.kept?.0)));
            state.take(py, point, &followed, 0);
        }
        let value = self.value(py, &state);
        if state.last.is(value.as_ref()) {
            return None;
        }
        let before = std::mem::replace(&mut state.last, RememberedValue::of(value.as_ref()));
        state.is_tensor = value.as_ref().is_some_and(tensors::is_tensor);
        if !self.is_told(point) {
            return None;
        }
        drop(state);
        let new = value.as_ref().map(|value| shown(point, value));
        if let Some(new) = &new {
            self.remember_of(py, value.as_ref(), new);
        }
        point.saw(new.clone());
        Some(Change {
            old: before.told(py, point),
            new,
            at: None,
            value: value.filter(|_| point.request.stats).map(Bound::unbind),
            operation: None,
        })
    }

    /// What it is now.
    pub(crate) fn now<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let state = self.state(py)?;
        self.value(py, &state)
    }

    /// Has the words remembered that were found later.
    pub(crate) fn remember(&self, py: Python<'_>, told: &str) {
        if let Some(mut state) = self.state(py) {
            state.say(told);
        }
    }

    /// The same, if they are still those of what is remembered.
    fn remember_of(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>, told: &str) {
        if let Some(mut state) = self.state(py)
            && state.last.is(value)
        {
            state.say(told);
        }
    }

    /// Whether a change of a watch that only records is told; else it is counted.
    fn is_told(&self, point: &Breakpoint) -> bool {
        let is_told = !point.only_counts() || self.pace.has_room();
        if !is_told {
            point.only_count();
        }
        is_told
    }

    fn value<'py>(&self, py: Python<'py>, state: &State) -> Option<Bound<'py, PyAny>> {
        let base = std::ptr::with_exposed_provenance_mut::<ffi::PyObject>(state.base);
        // SAFETY: null, or an object that the last dictionary holds: that it does not any more, it would have told, and
        // before 3.12 it is kept and has just been seen to be unchanged. The GIL is held.
        let base = unsafe { Bound::from_borrowed_ptr_or_opt(py, base) };
        if state.tail >= self.path.parts.len() {
            return base;
        }
        self.path.follow_from(state.tail, base).value
    }

    /// Not for who is in the middle of something with it already.
    fn state<'a>(&'a self, py: Python<'a>) -> Option<GilGuard<'a, State>> {
        self.state.try_borrow_mut(py)
    }
}

impl State {
    /// Takes over where a path has led, from the link `from` on.
    fn take(
        &mut self,
        py: Python<'_>,
        point: &Arc<Breakpoint>,
        followed: &Followed<'_>,
        from: usize,
    ) {
        let old = if from < self.links.len() {
            self.links.split_off(from)
        } else {
            Vec::new()
        };
        if !old.is_empty() {
            dict_watch::forget(py, point, old.iter().map(|link| link.dict));
        }
        for (dict, key, next) in &followed.links {
            dict_watch::look_at(point, dict);
            let kept = (!dict_watch::can_tell(py)).then(|| (dict.clone().unbind(), version(dict)));
            self.links.push(Link {
                dict: dict.as_ptr() as usize,
                key: key.clone().unbind(),
                next: *next,
                kept,
            });
        }
        let address = |value: &Bound<'_, PyAny>| value.as_ptr().expose_provenance();
        self.base = followed.base.as_ref().map_or(0, address);
        self.tail = followed.tail;
        // What it had kept is dropped by its owner; here only keys go, which are text and numbers.
        drop(old);
    }

    fn remember(&mut self, followed: &Followed<'_>, told: Option<&str>) {
        self.last = RememberedValue::of(followed.value.as_ref());
        self.is_tensor = followed.value.as_ref().is_some_and(tensors::is_tensor);
        if let Some(told) = told {
            self.say(told);
        }
    }

    fn say(&mut self, told: &str) {
        self.last = std::mem::replace(&mut self.last, RememberedValue::Unknown).with_words(told);
    }
}

impl Link {
    fn has_changed(&self) -> bool {
        let Some((dict, seen)) = &self.kept else {
            return false;
        };
        // SAFETY: the GIL is held by whoever looks at lines.
        let py = unsafe { Python::assume_attached() };
        version(dict.bind(py)) != *seen
    }
}

/// How often a dictionary has changed, before 3.12.
fn version(dict: &Bound<'_, PyDict>) -> u64 {
    // SAFETY: a dictionary of 3.10 or 3.11 has a number there, which every change replaces.
    unsafe { dict.as_ptr().byte_add(VERSION).cast::<u64>().read() }
}

fn stats_of(point: &Breakpoint, followed: &Followed<'_>) -> Option<Py<PyAny>> {
    let value = followed.value.as_ref().filter(|_| point.request.stats);
    value.map(|value| value.clone().unbind())
}

/// The watch of a point, if it is of a value.
pub(crate) fn watched_value(point: &Breakpoint) -> Option<&Value> {
    match &point.watch {
        Some(Watch::Value(value)) => Some(value),
        _ => None,
    }
}
