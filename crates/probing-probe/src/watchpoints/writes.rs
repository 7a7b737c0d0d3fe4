//! Watched local variables of functions.
//!
//! Local variables of functions. From 3.12 on the interpreter tells of each instruction that follows a write of the
//! name, and of nothing else in that function; before, its code calls us there (`sites.rs`), and where it cannot,
//! the variable is compared at each line.
//!
//! A value is compared with what the same thread wrote last, in whichever call: who watches the rate of a schedule wants to
//! hear of it when it changes, not once a call.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use probing_proto::message::Failure;
use probing_proto::message::breakpoints::BreakpointLocation;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};

use crate::breakpoints::events::{self, After};
use crate::breakpoints::index::{CodeBreakpoints, breakpoint_index, try_breakpoint_index};
use crate::breakpoints::rate_limit::Pace;
use crate::breakpoints::registry::Breakpoint;
use crate::breakpoints::setting;
use crate::breakpoints::{session, stepping};
use crate::eval::interrupt::own_thread;
use crate::inspect::locals;
use crate::python::call::call;
use crate::python::code_search::FoundCode;
use crate::python::frame::{self, Names};
use crate::python::gil_cell::GilCell;
use crate::python::int_value;
use crate::python::signal_handlers;
use crate::python::thread_state;
use crate::watchpoints::remembered::{RememberedValue, plain};
use crate::watchpoints::{Change, Watch, done_about, function, pending, seen, shown};

/// Threads whose last value is remembered.
const MAX_THREADS: usize = 256;
/// Names that a hint lists.
const SHOWN: usize = 12;

/// A watch of a local variable.
pub(crate) struct Local {
    name: Py<PyString>,
    /// By thread.
    last: GilCell<Vec<(u64, RememberedValue)>>,
    pace: Pace,
}

/// A place in code that tells of a write.
pub(crate) struct Store {
    /// In bytes, from the beginning of the code.
    offset: u32,
    /// Of the write.
    line: u32,
    when: StoreTiming,
    /// Of the variable, where it is the function's alone.
    slot: Option<usize>,
    pub(crate) point: Arc<Breakpoint>,
}

/// As `watches.py` numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreTiming {
    /// The write has just been done.
    After,
    /// So it has if this thread was at the place before it: code jumps here, too.
    Guarded,
    Before,
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
pub(crate) fn are_some() -> bool {
    LOCALS.load(Ordering::Acquire) > 0
}

impl Drop for Local {
    fn drop(&mut self) {
        LOCALS.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Local {
    pub(crate) fn new(py: Python<'_>, name: &str) -> Self {
        LOCALS.fetch_add(1, Ordering::AcqRel);
        Self {
            name: PyString::intern(py, name).unbind(),
            last: GilCell::new(Vec::new()),
            pace: Pace::default(),
        }
    }

    /// Does something with what this thread wrote last; `None` while it is looked at already.
    #[inline]
    fn with_last<T>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut RememberedValue) -> T,
    ) -> Option<T> {
        let thread = own_thread();
        let mut all = self.last.try_borrow_mut(py)?;
        let index = all.iter().position(|(own, _)| *own == thread);
        let index = index.unwrap_or_else(|| {
            if all.len() >= MAX_THREADS {
                all.clear();
            }
            all.push((thread, RememberedValue::Unknown));
            all.len() - 1
        });
        Some(body(&mut all[index].1))
    }

    /// Whether there is nothing to tell of a write. Runs nothing: what takes more than a glance is not known here.
    #[inline]
    fn is_settled(
        &self,
        py: Python<'_>,
        point: &Breakpoint,
        value: Option<&Bound<'_, PyAny>>,
    ) -> bool {
        let Some(now) = value.map_or(Some(RememberedValue::Unbound), plain) else {
            return false;
        };
        let settled = self.with_last(py, |last| {
            if last.equals(&now)
                || matches!(
                    (&now, &*last),
                    (RememberedValue::Unbound, RememberedValue::Unknown)
                )
            {
                return true;
            }
            if !point.only_counts() || !self.pace.is_used_up() {
                return false;
            }
            *last = now;
            point.only_count();
            true
        });
        settled.unwrap_or(false)
    }

    /// The same for a whole number in the place of another, which is what is written most.
    #[inline]
    fn is_settled_number(&self, point: &Breakpoint, value: &Bound<'_, PyAny>) -> bool {
        if !value.is_exact_instance_of::<PyInt>() {
            return false;
        }
        let (Some(number), Some(mut all)) = (
            int_value::read_int(value),
            self.last.try_borrow_mut(value.py()),
        ) else {
            return false;
        };
        let thread = own_thread();
        let own = all.iter_mut().find(|(own, _)| *own == thread);
        let Some((_, RememberedValue::Int(last))) = own else {
            return false;
        };
        if *last == number {
            return true;
        }
        let is_left_out = point.only_counts() && self.pace.is_used_up();
        if is_left_out {
            *last = number;
            point.only_count();
        }
        is_left_out
    }

    /// What has become of it, if it is another value than before. Nothing that is armed is lent meanwhile: to put values
    /// into words may have Python collect garbage.
    fn change(
        &self,
        point: &Breakpoint,
        value: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> Option<Change> {
        let now = RememberedValue::of(value);
        let before = self.with_last(py, |last| {
            let is_known =
                last.is_same_as(&now) || (value.is_none() && *last == RememberedValue::Unknown);
            (!is_known).then(|| std::mem::replace(last, now))
        })??;
        if point.only_counts() && !self.pace.has_room() {
            point.only_count();
            return None;
        }
        let new = value.map(|value| shown(point, value));
        if let Some(new) = &new {
            self.remember(py, new);
        }
        Some(Change {
            old: before.told(py, point),
            new,
            at: None,
            value: point
                .request
                .stats
                .then(|| value.cloned().map(Bound::unbind))
                .flatten(),
            operation: None,
        })
    }

    /// Has the words remembered that were found for the last value.
    pub(crate) fn remember(&self, py: Python<'_>, told: &str) {
        self.with_last(py, |last| {
            *last = std::mem::replace(last, RememberedValue::Unknown).with_words(told);
        });
    }
}

/// Has code tell of the writes of a variable. Refused when no function that was found has it.
pub(crate) fn bind(point: &Arc<Breakpoint>, found: &[FoundCode<'_>]) -> Result<(), Failure> {
    let BreakpointLocation::Local {
        function: asked,
        name,
    } = &point.request.place
    else {
        return Ok(());
    };
    let failed = |error: PyErr| Failure::new(format!("cannot search for writes: {error}"));
    let mut is_bound = found.is_empty();
    for found in found {
        let py = found.code.py();
        let places: Vec<(Bound<'_, PyAny>, StoreOffsets)> = function(py, "stores")
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
            Err(no_variable(&first.code, asked, name).unwrap_or_else(failed))
        }
        _ => Ok(()),
    }
}

/// Why a variable of a function cannot be watched.
fn no_variable(code: &Bound<'_, PyAny>, asked: &str, name: &str) -> PyResult<Failure> {
    let py = code.py();
    if call(&function(py, "is_comprehended")?, (code, name))?.is_truthy()? {
        let hint = "watch the variable that its result is assigned to, or break at its line";
        let only = format!("{asked} has {name} only inside a comprehension");
        return Ok(Failure::new(only).with_hint(hint));
    }
    let names: Vec<String> = call(&function(py, "variables")?, (code,))?.extract()?;
    let names = names[..names.len().min(SHOWN)].join(", ");
    Ok(Failure::new(format!("{asked} has no variable {name}"))
        .with_hint(format!("it has: {names}")))
}

/// Offset, line of the write, and when it tells.
type StoreOffsets = Vec<(u32, u32, u32)>;

fn look_at(point: &Arc<Breakpoint>, places: Vec<(Bound<'_, PyAny>, StoreOffsets)>) {
    for (code, places) in places {
        let slot = match &point.watch {
            Some(Watch::Local(local)) => Names::of(&code).slot(local.name.bind(code.py())),
            _ => None,
        };
        let mut armed = breakpoint_index(code.py());
        let arms = armed.code_mut(&code);
        if point.is_over() || arms.stores.iter().any(|it| Arc::ptr_eq(&it.point, point)) {
            continue;
        }
        let store = |offset, line, when| Store {
            offset,
            line,
            when,
            slot,
            point: Arc::clone(point),
        };
        let places = places.into_iter().map(|(offset, line, when)| {
            let when = match when {
                0 => StoreTiming::After,
                1 => StoreTiming::Guarded,
                _ => StoreTiming::Before,
            };
            store(offset, line, when)
        });
        arms.stores.extend(places);
        drop(armed);
        setting::tell_again(&code);
    }
}

/// A thread is about to run an instruction.
pub(crate) fn at_instruction(py: Python<'_>, code: usize, offset: u32) -> After {
    if pending::has_some() {
        pending::settle(py);
    }
    let Some(armed) = try_breakpoint_index(py) else {
        return After::Again;
    };
    let Some(arms) = armed.code(code) else {
        return After::Never;
    };
    let mut stores = arms.written_before(offset).peekable();
    if stores.peek().is_none() {
        // Another thread's changes may wait for it to come here.
        return if arms.waits > 0 {
            After::Again
        } else {
            After::Never
        };
    }
    let Some(frame) = frame::current_borrowed(py).filter(|_| !events::is_quiet()) else {
        return After::Again;
    };
    let written = written(stores, (&frame, code));
    drop(armed);
    if !written.is_empty() {
        let frame = frame.to_owned();
        seen(&frame, changes(&frame, written));
    }
    After::Again
}

/// A thread is where the twin of this code calls out, behind a write; before 3.12. Whether it is to be told of the line once more,
/// to stop there.
#[inline]
pub(crate) fn at_site(frame: &Bound<'_, PyAny>, code: usize, offset: u32) -> bool {
    if events::is_quiet() {
        return false;
    }
    let py = frame.py();
    let Some(armed) = try_breakpoint_index(py) else {
        return false;
    };
    let Some(arms) = armed.code(code) else {
        return false;
    };
    let twin = arms.twin.as_ref().map_or(0, Names::code);
    let written = written(arms.written_before(offset), (frame, twin));
    drop(armed);
    if written.is_empty() {
        return false;
    }
    let about = || done_about(frame, changes(frame, written));
    let stop = signal_handlers::kept_out(py, || thread_state::untraced(py, about));
    let Some((why, hold)) = stop else {
        return false;
    };
    session::stop_inside(frame, why, hold);
    events::is_special() && stepping::is_under_way(py)
}

/// What was written where a thread is and has to be told: the line of the write, and the value.
type StoredChanges<'py> = Vec<(Arc<Breakpoint>, u32, Option<Bound<'py, PyAny>>)>;

/// What has become known at these places, where a frame that runs this code is.
#[inline]
fn written<'a, 'py>(
    stores: impl Iterator<Item = &'a Store>,
    (frame, code): (&Bound<'py, PyAny>, usize),
) -> StoredChanges<'py> {
    let mut written = Vec::new();
    for store in stores {
        let own = frame.as_ptr() as usize;
        match store.when {
            StoreTiming::Before => ABOUT.set(own),
            StoreTiming::Guarded if ABOUT.replace(0) != own => {}
            _ if store.is_settled_at_a_glance(frame, code) => {}
            _ => {
                let value = store.value(frame, code);
                if !store.is_settled(frame.py(), value.as_ref()) {
                    written.push((Arc::clone(&store.point), store.line, value));
                }
            }
        }
    }
    written
}

impl CodeBreakpoints {
    /// The places that tell at this offset.
    #[inline]
    fn written_before(&self, offset: u32) -> impl Iterator<Item = &Store> {
        self.stores.iter().filter(move |it| it.offset == offset)
    }
}

impl Store {
    /// That of what follows the write.
    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// What is in the variable.
    #[inline]
    fn value<'py>(&self, frame: &Bound<'py, PyAny>, code: usize) -> Option<Bound<'py, PyAny>> {
        let Some(Watch::Local(local)) = &self.point.watch else {
            return None;
        };
        let by_name = || frame::variable(frame, local.name.bind(frame.py()));
        match self.slot {
            Some(slot) => locals::slot(frame, code, slot).unwrap_or_else(|_| by_name()),
            None => by_name(),
        }
    }

    /// Whether there is nothing to tell of what is in the variable, which stays where it is meanwhile.
    #[inline]
    fn is_settled_at_a_glance(&self, frame: &Bound<'_, PyAny>, code: usize) -> bool {
        let value = self
            .slot
            .and_then(|slot| locals::slot_borrowed(frame, code, slot));
        let (Some(value), Some(Watch::Local(local))) = (value, &self.point.watch) else {
            return false;
        };
        local.is_settled_number(&self.point, &value)
            || local.is_settled(frame.py(), &self.point, Some(&value))
    }

    #[inline]
    fn is_settled(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> bool {
        match &self.point.watch {
            Some(Watch::Local(local)) => local.is_settled(py, &self.point, value),
            _ => true,
        }
    }
}

/// A thread is at a line of code that has watched variables, or leaves it; before 3.12.
pub(crate) fn at_line(frame: &Bound<'_, PyAny>, code: usize, line: Option<u32>) {
    let py = frame.py();
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
    let Some(armed) = try_breakpoint_index(py) else {
        return;
    };
    let Some(arms) = armed.code(code) else {
        return;
    };
    let at = before.or(line).unwrap_or(0);
    let mut written = Vec::new();
    for store in &arms.stores {
        // A call that has not come to its first write is no change.
        if let value @ Some(_) = store.value(frame, code)
            && !store.is_settled(frame.py(), value.as_ref())
        {
            written.push((Arc::clone(&store.point), at, value));
        }
    }
    drop(armed);
    seen(frame, changes(frame, written));
}

/// What has become of what was written. Runs no code of the program but what collecting garbage runs.
fn changes<'py>(
    frame: &Bound<'py, PyAny>,
    written: StoredChanges<'py>,
) -> Vec<(Arc<Breakpoint>, Change)> {
    let changes = written.into_iter().filter_map(|(point, line, value)| {
        let Some(Watch::Local(local)) = &point.watch else {
            return None;
        };
        let mut change = local.change(&point, value.as_ref(), frame.py())?;
        change.at = Some(frame::spot_at(frame, Some(line)));
        Some((point, change))
    });
    changes.collect()
}
