//! Dictionaries that report writes by `PyDict_Watch`, from 3.12 on.
//!
//! What is told comes in the middle of a change, on whichever thread makes it: nothing here runs Python, and no
//! other thread comes in between.
#![expect(unsafe_code, reason = "the interpreter calls back with bare pointers")]

use std::collections::HashMap;
use std::ffi::c_int;
use std::hash::BuildHasherDefault;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use probing_proto::message::Failure;
use pyo3::Borrowed;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::breakpoints::registry::Breakpoint;
use crate::breakpoints::{events, is_of_this_process, setting};
use crate::process::fork_guard;
use crate::python::address_hash::Address;
use crate::python::frame;
use crate::python::gil_cell::{GilCell, GilGuard};
use crate::python::signal_handlers;
use crate::python::symbols::{DictCallback, symbols};
use crate::watchpoints::values::{self, Event};
use crate::watchpoints::{pending, record};

pub(crate) const NAME: &str = "PyDict_Watch";

/// What the interpreter tells.
const ADDED: c_int = 0;
const MODIFIED: c_int = 1;
const DELETED: c_int = 2;
const CLONED: c_int = 3;
const CLEARED: c_int = 4;
const DEALLOCATED: c_int = 5;

/// Reached with the GIL held only. Nothing is done meanwhile that could change a dictionary.
static WATCHED: GilCell<Option<DictWatches>> = GilCell::new(None);

struct DictWatches {
    /// Our number among those who watch dictionaries.
    id: c_int,
    /// By address: who watches it.
    dicts: HashMap<usize, Watchers, BuildHasherDefault<Address>>,
}

/// Each with how many of its links lead through a dictionary.
type Watchers = Vec<(Arc<Breakpoint>, u32)>;

/// Whether this Python's dictionaries tell.
pub(crate) fn can_tell(py: Python<'_>) -> bool {
    setting::has_monitoring(py)
}

/// Gets ready to be told.
pub(crate) fn claim(py: Python<'_>) -> Result<(), Failure> {
    if !can_tell(py) || watched(py).is_some() {
        return Ok(());
    }
    attributes::try_it(py);
    let symbols = symbols();
    let (Some(add), Some(_), Some(_)) = (
        symbols.dict_add_watcher,
        symbols.dict_watch,
        symbols.dict_unwatch,
    ) else {
        return Err(Failure::new("this Python does not allow PyDict_Watch"));
    };
    // SAFETY: the GIL is held; the function stays where it is, as the library does.
    let id = unsafe { add(at_event as DictCallback) };
    if id < 0 {
        drop(PyErr::take(py));
        return Err(
            Failure::new("no free id of PyDict_Watch: the program's tools use all")
                .with_hint("try again when one of them has ended"),
        );
    }
    *watched(py) = Some(DictWatches {
        id,
        dicts: HashMap::default(),
    });
    Ok(())
}

/// Ceases to be told, if nothing is watched any more.
pub(crate) fn release_if_idle(py: Python<'_>) {
    let idle = watched(py).take_if(|watched| watched.dicts.is_empty());
    if let (Some(idle), Some(clear)) = (idle, symbols().dict_clear_watcher) {
        // SAFETY: the GIL is held, and the number is ours.
        if unsafe { clear(idle.id) } < 0 {
            drop(PyErr::take(py));
        }
    }
}

/// Has a dictionary tell.
pub(crate) fn look_at(point: &Arc<Breakpoint>, dict: &Bound<'_, PyDict>) {
    let py = dict.py();
    let is_new = {
        let watched = watched(py);
        let known = watched.as_ref().map(|it| &it.dicts);
        known.is_some_and(|known| !known.contains_key(&(dict.as_ptr() as usize)))
    };
    if is_new && !attributes::are_told(dict.py()) {
        attributes::take_apart(dict);
    }
    let mut watched = watched(py);
    let (Some(watched), Some(watch)) = (watched.as_mut(), symbols().dict_watch) else {
        return;
    };
    let who = watched.dicts.entry(dict.as_ptr() as usize).or_default();
    match who.iter_mut().find(|(other, _)| Arc::ptr_eq(other, point)) {
        Some((_, links)) => *links += 1,
        None => who.push((Arc::clone(point), 1)),
    }
    // SAFETY: a dictionary that is alive, our own number, and the GIL is held. It cannot fail then.
    unsafe { watch(watched.id, dict.as_ptr()) };
}

/// Some of the links of a watch lead through these no more.
pub(crate) fn forget(py: Python<'_>, point: &Arc<Breakpoint>, dicts: impl Iterator<Item = usize>) {
    let mut watched = watched(py);
    let (Some(watched), Some(unwatch)) = (watched.as_mut(), symbols().dict_unwatch) else {
        return;
    };
    for dict in dicts {
        let Some(who) = watched.dicts.get_mut(&dict) else {
            continue;
        };
        if let Some((_, links)) = who.iter_mut().find(|(other, _)| Arc::ptr_eq(other, point)) {
            *links -= 1;
        }
        who.retain(|(_, links)| *links > 0);
        if who.is_empty() {
            watched.dicts.remove(&dict);
            let dict = std::ptr::with_exposed_provenance_mut(dict);
            // SAFETY: the dictionary is alive: that it goes, it would have told, and would not be here any more.
            unsafe { unwatch(watched.id, dict) };
        }
    }
}

/// Called by the interpreter before a dictionary that is watched changes.
///
/// # Safety
///
/// As `PyDict_AddWatcher` says: the GIL is held, the pointers are borrowed.
unsafe extern "C" fn at_event(
    event: c_int,
    dict: *mut PyObject,
    key: *mut PyObject,
    new: *mut PyObject,
) -> c_int {
    // SAFETY: the interpreter calls watchers with the GIL held.
    let py = unsafe { Python::assume_attached() };
    let told = || {
        if !is_of_this_process() || fork_guard::are_under_way() {
            if event == DEALLOCATED {
                forget_gone(py, dict as usize);
            }
            return;
        }
        let address = (dict as usize, key as usize);
        if matches!(event, ADDED | MODIFIED) {
            // SAFETY: null or a live object, borrowed for as long as the call lasts.
            let new = unsafe { Borrowed::from_ptr_or_opt(py, new) };
            if is_settled(address, new.as_deref()) {
                return;
            }
        }
        // A dictionary that goes away has one reference, lent for this call.
        // SAFETY: a live dictionary, borrowed for as long as the call lasts.
        let dict: Bound<'_, PyAny> = unsafe { Bound::from_borrowed_ptr(py, dict) };
        // SAFETY: live objects, borrowed for as long as the call lasts; for some events they are null.
        let (key, new): (Option<Bound<'_, PyAny>>, Option<Bound<'_, PyAny>>) = unsafe {
            (
                Bound::from_borrowed_ptr_or_opt(py, key),
                Bound::from_borrowed_ptr_or_opt(py, new),
            )
        };
        let event = match (event, key) {
            (ADDED | MODIFIED, Some(key)) => Event::Set(key, new),
            (DELETED, Some(key)) => Event::Set(key, None),
            (CLONED, Some(other)) => match other.cast_into() {
                Ok(other) => Event::Cloned(other),
                Err(_) => return,
            },
            (CLEARED, _) => Event::Cleared,
            (DEALLOCATED, _) => Event::Gone,
            _ => return,
        };
        on_dict_event(&dict, &event);
    };
    // What the program raises stays the program's.
    let error = if PyErr::occurred(py) {
        PyErr::take(py)
    } else {
        None
    };
    drop(panic::catch_unwind(AssertUnwindSafe(told)));
    if signal_handlers::may_wait() {
        signal_handlers::run_soon();
    }
    if let Some(error) = error {
        error.restore(py);
    }
    0
}

/// A dictionary goes away while nothing is told: it must not be asked anything later.
fn forget_gone(py: Python<'_>, dict: usize) {
    let who = try_watched(py).and_then(|mut watched| watched.as_mut()?.dicts.remove(&dict));
    drop(who);
}

fn on_dict_event(dict: &Bound<'_, PyAny>, event: &Event<'_>) {
    let py = dict.py();
    let points: Vec<Arc<Breakpoint>> = {
        // Held by this thread already: it is about to do this, and nobody else's business.
        let Some(watched) = try_watched(py) else {
            return;
        };
        let who = watched
            .as_ref()
            .and_then(|it| it.dicts.get(&(dict.as_ptr() as usize)));
        who.into_iter()
            .flatten()
            .map(|(point, _)| Arc::clone(point))
            .collect()
    };
    for point in points {
        let outcome =
            values::watched_value(&point).and_then(|value| value.at_event(&point, dict, event));
        let Some(outcome) = outcome else { continue };
        if outcome.change.is_none() && !outcome.needs_other {
            continue;
        }
        let frame = frame::current(py);
        let change = outcome.change.map(|mut change| {
            change.at = frame.as_ref().map(frame::spot_of);
            change
        });
        let is_simple = point.only_counts() && !point.request.once && !point.request.stats;
        match (frame, change) {
            (Some(frame), change) if !events::is_quiet() && (!is_simple || outcome.needs_other) => {
                pending::add(&frame, &point, change);
            }
            (_, Some(change)) => {
                if crate::watchpoints::count(&point) {
                    record(py, &point, &change);
                }
            }
            (_, None) => {}
        }
    }
}

/// Whether there is nothing to tell of an item that is about to be written. Runs nothing.
#[inline]
fn is_settled(address: (usize, usize), new: Option<&Bound<'_, PyAny>>) -> bool {
    let Some(new) = new else {
        return false;
    };
    let Some(watched) = try_watched(new.py()) else {
        return false;
    };
    let who = watched.as_ref().and_then(|it| it.dicts.get(&address.0));
    who.is_some_and(|who| {
        let is_settled = |point: &Breakpoint| {
            values::watched_value(point).is_some_and(|value| value.is_settled(point, address, new))
        };
        who.iter().all(|(point, _)| is_settled(point))
    })
}

fn watched(py: Python<'_>) -> GilGuard<'_, Option<DictWatches>> {
    WATCHED.borrow_mut(py)
}

fn try_watched(py: Python<'_>) -> Option<GilGuard<'_, Option<DictWatches>>> {
    WATCHED.try_borrow_mut(py)
}

/// The attributes of an object lie in the object itself as long as they can. 3.13 forgets to tell when they are written there.
mod attributes {
    use std::ffi::c_int;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    use pyo3::ffi::PyObject;
    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    use crate::python::call::call;
    use crate::python::symbols::{DictCallback, symbols};
    use crate::watchpoints::function;

    static WAS_TOLD: AtomicBool = AtomicBool::new(false);
    static ARE_TOLD: OnceLock<bool> = OnceLock::new();

    /// Whether this Python tells of them; tried once, by [`try_it`].
    pub(crate) fn are_told(_py: Python<'_>) -> bool {
        ARE_TOLD.get().copied().unwrap_or(true)
    }

    /// Writes an attribute of an object of our own.
    pub(crate) fn try_it(py: Python<'_>) {
        if ARE_TOLD.get().is_none() {
            ARE_TOLD.set(tried(py).unwrap_or(true)).ok();
        }
    }

    fn tried(py: Python<'_>) -> Option<bool> {
        let symbols = symbols();
        let object = call(&function(py, "Sample").ok()?, ()).ok()?;
        let dict = object.getattr("__dict__").ok()?;
        // SAFETY: the GIL is held; the dictionary is alive, and both functions are there, as they all are or none.
        unsafe {
            let id = symbols.dict_add_watcher?(note as DictCallback);
            if id < 0 {
                drop(PyErr::take(py));
                return None;
            }
            symbols.dict_watch?(id, dict.as_ptr());
            object.setattr("value", 1).ok()?;
            symbols.dict_unwatch?(id, dict.as_ptr());
            symbols.dict_clear_watcher?(id);
        }
        Some(WAS_TOLD.load(Ordering::Acquire))
    }

    /// # Safety
    ///
    /// As `PyDict_AddWatcher` says.
    unsafe extern "C" fn note(
        _: c_int,
        _: *mut PyObject,
        _: *mut PyObject,
        _: *mut PyObject,
    ) -> c_int {
        WAS_TOLD.store(true, Ordering::Release);
        0
    }

    /// Has a dictionary hold its values itself: a key that is no name does that, for good. It is gone at once; the GIL is held
    /// all the while, so nobody sees it.
    pub(crate) fn take_apart(dict: &Bound<'_, PyDict>) {
        let Ok(key) = dict.py().get_type::<PyAny>().call0() else {
            return;
        };
        if dict.set_item(&key, &key).is_ok() {
            // It was put there just now.
            dict.del_item(&key).ok();
        }
    }
}
