//! Local variables of functions. From 3.12 on the interpreter tells of each instruction that follows a write of the name,
//! and of nothing else in that function; before, the variable is compared at each line of it.
//!
//! A value is compared with what the same thread wrote last, in whichever call: who watches the rate of a schedule wants to
//! hear of it when it changes, not once a call.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use probing_proto::message::Failure;
use probing_proto::stops::{Place, Spot};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::super::armed::armed;
use super::super::arming;
use super::super::events::{self, After};
use super::super::frame;
use super::super::points::Point;
use super::pace::Pace;
use super::remembered::Remembered;
use super::{Change, Watch, function, pending, seen, words};
use crate::codes::Found;
use crate::guarded::call;
use crate::interrupt::own_thread;

/// Threads whose last value is remembered.
const MAX_THREADS: usize = 256;
/// Names that a hint lists.
const SHOWN: usize = 12;

/// A watch of a local variable.
pub(in crate::stops) struct Local {
    name: Py<PyString>,
    last: Mutex<Vec<(u64, Remembered)>>,
    pace: Pace,
}

/// A place in code that tells of a write.
pub(in crate::stops) struct Store {
    /// In bytes, from the beginning of the code.
    offset: u32,
    /// Of the write.
    line: u32,
    when: When,
    pub(in crate::stops) point: Arc<Point>,
}

/// As `watches.py` numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// The write has just been done.
    After,
    /// So it has if this thread was at the place before it: code jumps here, too.
    Guarded,
    Before,
    /// At every line: before 3.12.
    Lines,
}

thread_local! {
    /// The write that this thread is about to do: its frame.
    static ABOUT: Cell<usize> = const { Cell::new(0) };
    /// The line that each frame of this thread was at last; before 3.12.
    static LINES: RefCell<Vec<(usize, u32)>> = const { RefCell::new(Vec::new()) };
}

/// How many there are.
static LOCALS: AtomicU32 = AtomicU32::new(0);

/// Whether any local variable is watched.
pub(in crate::stops) fn are_some() -> bool {
    LOCALS.load(Ordering::Acquire) > 0
}

impl Drop for Local {
    fn drop(&mut self) {
        LOCALS.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Local {
    pub(in crate::stops) fn new(py: Python<'_>, name: &str) -> Self {
        LOCALS.fetch_add(1, Ordering::AcqRel);
        Self {
            name: PyString::intern(py, name).unbind(),
            last: Mutex::default(),
            pace: Pace::default(),
        }
    }

    /// What has become of it, if it is another value than before.
    fn change(
        &self,
        point: &Point,
        value: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> Option<Change> {
        let thread = own_thread();
        let mut all = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let index = all.iter().position(|(own, _)| *own == thread);
        let index = index.unwrap_or_else(|| {
            if all.len() >= MAX_THREADS {
                all.clear();
            }
            all.push((thread, Remembered::Unknown));
            all.len() - 1
        });
        let last = &mut all[index].1;
        if last.is(value) || (value.is_none() && *last == Remembered::Unknown) {
            return None;
        }
        let before = std::mem::replace(last, Remembered::of(value));
        if point.only_counts() && !self.pace.has_room() {
            point.only_count();
            return None;
        }
        let new = value.map(words::of);
        if let Some(new) = &new {
            *last = std::mem::replace(last, Remembered::Unknown).with_words(new);
        }
        Some(Change {
            old: before.told(py),
            new,
            at: None,
            value: point
                .armed
                .stats
                .then(|| value.cloned().map(Bound::unbind))
                .flatten(),
        })
    }

    /// Has the words remembered that were found later.
    pub(super) fn remember(&self, told: &str) {
        let thread = own_thread();
        let mut all = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, last)) = all.iter_mut().find(|(own, _)| *own == thread) {
            *last = std::mem::replace(last, Remembered::Unknown).with_words(told);
        }
    }
}

/// Has code tell of the writes of a variable. Refused when no function that was found has it.
pub(in crate::stops) fn bind(point: &Arc<Point>, found: &[Found<'_>]) -> Result<(), Failure> {
    let Place::Local {
        function: asked,
        name,
    } = &point.armed.place
    else {
        return Ok(());
    };
    let failed = |error: PyErr| Failure::new(format!("cannot look for writes: {error}"));
    let mut is_bound = found.is_empty();
    for found in found {
        let py = found.code.py();
        let places: Vec<(Bound<'_, PyAny>, Places)> = function(py, "stores")
            .and_then(|stores| call(&stores, (&found.code, name)))
            .and_then(|all| all.extract())
            .map_err(failed)?;
        if !places.is_empty() {
            is_bound = true;
            look_at(point, places);
            point.bind(found.spot.clone());
            point.note(None);
        }
    }
    match found.first() {
        Some(first) if !is_bound => {
            let py = first.code.py();
            let names: Vec<String> = function(py, "variables")
                .and_then(|names| call(&names, (&first.code,)))
                .and_then(|names| names.extract())
                .map_err(failed)?;
            let names = names[..names.len().min(SHOWN)].join(", ");
            Err(Failure::new(format!("{asked} has no variable {name}"))
                .with_hint(format!("it has: {names}")))
        }
        _ => Ok(()),
    }
}

/// Offset, line of the write, and when it tells.
type Places = Vec<(u32, u32, u32)>;

fn look_at(point: &Arc<Point>, places: Vec<(Bound<'_, PyAny>, Places)>) {
    for (code, places) in places {
        let mut armed = armed();
        let arms = armed.code_mut(&code);
        if !point.is_armed() || arms.stores.iter().any(|it| Arc::ptr_eq(&it.point, point)) {
            continue;
        }
        let store = |offset, line, when| Store {
            offset,
            line,
            when,
            point: Arc::clone(point),
        };
        if arming::has_monitoring(code.py()) {
            let places = places.into_iter().map(|(offset, line, when)| {
                let when = match when {
                    0 => When::After,
                    1 => When::Guarded,
                    _ => When::Before,
                };
                store(offset, line, when)
            });
            arms.stores.extend(places);
        } else {
            arms.stores.push(store(0, 0, When::Lines));
        }
        drop(armed);
        arming::tell_again(&code);
    }
}

/// A thread is about to run an instruction.
pub(in crate::stops) fn at_instruction(py: Python<'_>, code: usize, offset: u32) -> After {
    if pending::has_some() {
        pending::settle(py);
    }
    let armed = armed();
    let Some(arms) = armed.code(code) else {
        return After::Never;
    };
    let mut here = arms
        .stores
        .iter()
        .filter(|store| store.offset == offset)
        .peekable();
    if here.peek().is_none() {
        // Another thread's changes may wait for it to come here.
        return if arms.waits > 0 {
            After::Again
        } else {
            After::Never
        };
    }
    let Some(frame) = frame::current(py) else {
        return After::Again;
    };
    if events::is_quiet() {
        return After::Again;
    }
    let mut changes = Vec::new();
    for store in here {
        let own = frame.as_ptr() as usize;
        match store.when {
            When::Before => ABOUT.set(own),
            When::Guarded if ABOUT.replace(0) != own => {}
            _ => changes.extend(compared(&frame, store, store.line)),
        }
    }
    drop(armed);
    if !changes.is_empty() {
        seen(&frame, changes);
    }
    After::Again
}

/// A thread is at a line of code that has watched variables, or leaves it; before 3.12.
pub(in crate::stops) fn at_line(frame: &Bound<'_, PyAny>, code: usize, line: Option<u32>) {
    let own = frame.as_ptr() as usize;
    let before = LINES.with_borrow_mut(|lines| {
        let index = lines.iter().position(|(frame, _)| *frame == own);
        match (index, line) {
            (Some(index), Some(line)) => Some(std::mem::replace(&mut lines[index].1, line)),
            (Some(index), None) => Some(lines.swap_remove(index).1),
            (None, Some(line)) => {
                lines.push((own, line));
                None
            }
            (None, None) => None,
        }
    });
    if events::is_quiet() {
        return;
    }
    let armed = armed();
    let Some(arms) = armed.code(code) else {
        return;
    };
    let at = before.or(line).unwrap_or(0);
    let changes = arms
        .stores
        .iter()
        .filter_map(|store| compared(frame, store, at));
    let changes: Vec<_> = changes.collect();
    drop(armed);
    if !changes.is_empty() {
        seen(frame, changes);
    }
}

/// What a variable has become. Runs no code of the program.
fn compared(frame: &Bound<'_, PyAny>, store: &Store, line: u32) -> Option<(Arc<Point>, Change)> {
    let Some(Watch::Local(local)) = &store.point.watch else {
        return None;
    };
    let py = frame.py();
    let value = frame::variable(frame, local.name.bind(py));
    // A call that has not come to its first write is no change.
    if value.is_none() && store.when == When::Lines {
        return None;
    }
    let mut change = local.change(&store.point, value.as_ref(), py)?;
    change.at = Some(Spot {
        lineno: line,
        ..frame::spot_of(frame)
    });
    Some((Arc::clone(&store.point), change))
}
