//! Instrumented code of Python 3.10 and 3.11: copies of functions that call the probe at breakpoints and writes.
//!
//! Python 3.10 and 3.11: a function that points are in gets code that calls us at their lines and behind the writes
//! of what is watched (`sites.py`), its *twin*; one that is traced, where it begins and ends. Nothing else pays for
//! that, and a thread is traced only while it needs to be: when it runs a function whose frame is older than the
//! twin, or takes a step.
//!
//! Functions inside functions are not given one for points: whoever makes them would make them anew from code of their own. Nor
//! is anything where Dynamo is at work, which would compile the twin in place of what it has compiled, nor where greenlets keep
//! frames that nobody can see. There, and where no function is found, threads are traced.
#![expect(unsafe_code, reason = "counts the references of an object")]

mod calls;

use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{self, AssertUnwindSafe};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use self::calls::Calls;
use crate::breakpoints::events;
use crate::breakpoints::index::{
    CodeBreakpoints, EventMatch, breakpoint_index, try_breakpoint_index,
};
use crate::instrument::probe_call::{self, CallEvent, Site};
use crate::python::call::{call, release};
use crate::python::embedded::embedded;
use crate::python::frame::{self, Names};
use crate::python::gc_walk::Walk;
use crate::python::gil_cell::{GilCell, GilGuard};
use crate::trace;
use crate::watchpoints;

pub(crate) const NAME: &str = "bytecode instrumentation";
/// What is said of its price where it does not do.
pub(crate) const LIMIT: &str =
    "before Python 3.12, running calls and nested functions are traced: 2 to 7 times slower";

const MAX_TRIES: u32 = 8;

static SITES: GilCell<Option<Sites>> = GilCell::new(None);

thread_local! {
    /// The frame whose next call tells what a trace function has told already.
    static TOLD: Cell<usize> = const { Cell::new(0) };
}

#[derive(Default)]
struct Sites {
    /// What functions were given one, by the address of their own code.
    given: HashMap<usize, Given>,
    /// All that some frame may still run, by their addresses.
    twins: HashMap<usize, InstrumentedCode>,
    /// How often functions were looked for that were not there; forgotten when nothing is armed.
    tries: HashMap<usize, u32>,
}

struct Given {
    twin: usize,
    /// Weak references to those that had the code.
    functions: Py<PyAny>,
    /// Whether those are all: who traces some does not look for others.
    are_all: bool,
    /// To generators and coroutines whose frames are older.
    sleepers: Py<PyAny>,
}

struct InstrumentedCode {
    code: Py<PyAny>,
    original: Py<PyAny>,
    calls: Calls,
    offsets: Vec<i64>,
}

/// What a trace function needs to know of the place it is called at.
pub(crate) struct TraceSite {
    /// The code that points are armed in.
    pub(crate) code: usize,
    /// Whether our call comes next, and whether it is that of the function's beginning.
    pub(crate) call: Option<bool>,
    /// Whether points of this line are told by our calls.
    pub(crate) is_told: bool,
}

/// Gives the functions of a code object the twin that is wanted now, or their own code again.
pub(crate) fn tell(code: &Bound<'_, PyAny>) {
    tell_to(code, &[]);
}

/// The same for a trace, which knows some of these functions: whether they tell it now where they begin and end.
pub(crate) fn tell_trace(code: &Bound<'_, PyAny>, functions: &[Bound<'_, PyAny>]) -> bool {
    tell_to(code, functions);
    calls_of(code).is_some_and(|calls| calls.traced)
}

/// Whether functions of this code tell each line now.
pub(crate) fn tells_lines(code: &Bound<'_, PyAny>) -> bool {
    calls_of(code).is_some_and(|calls| calls.every_line)
}

/// Where functions of this code call out now.
fn calls_of(code: &Bound<'_, PyAny>) -> Option<Calls> {
    let py = code.py();
    let sites = sites(py);
    let sites = sites.as_ref()?;
    let given = sites.given.get(&(code.as_ptr() as usize))?;
    Some(sites.twins.get(&given.twin)?.calls.clone())
}

fn tell_to(code: &Bound<'_, PyAny>, known: &[Bound<'_, PyAny>]) {
    let py = code.py();
    let wanted = Calls::wanted(py, code.as_ptr() as usize);
    let has = calls_of(code);
    let is_so = has.as_ref() == Some(&wanted) && known.is_empty();
    if is_so || (has.is_none() && wanted.is_empty()) {
        return;
    }
    let is_given = !wanted.is_empty() && give(code, wanted, known).is_ok_and(|is_given| is_given);
    if !is_given {
        // Nothing is wanted, or an audit hook refuses, or the code is not what we know: then its threads are traced.
        take_back(code);
    }
    forget_unused(py);
}

/// Whether some armed code has no twin, so that threads have to be traced.
pub(crate) fn are_missing(py: Python<'_>) -> bool {
    let codes = breakpoint_index(py).codes(py);
    if codes.is_empty()
        && let Some(sites) = sites(py).as_mut()
    {
        sites.tries.clear();
    }
    codes.iter().any(|code| {
        let address = code.as_ptr() as usize;
        let has = |sites: &Sites| sites.given.contains_key(&address);
        Calls::wanted(py, address).has_points() && !sites(py).as_ref().is_some_and(has)
    })
}

/// Tries again for code whose functions were not there yet: it has just been loaded. To look for them is to look at all there
/// is, so that this has an end.
pub(crate) fn try_again(py: Python<'_>) {
    for code in breakpoint_index(py).codes(py) {
        let address = code.as_ptr() as usize;
        let may = {
            let mut sites = sites(py);
            let tries = sites.get_or_insert_default().tries.entry(address);
            let tries = tries.or_default();
            *tries += 1;
            *tries <= MAX_TRIES
        };
        if may {
            tell(&code);
        }
    }
}

/// Whether generators or coroutines wait that run older code: any thread may go on with them.
pub(crate) fn have_sleepers(py: Python<'_>) -> bool {
    let all: Vec<_> = {
        let sites = sites(py);
        let given = sites.iter().flat_map(|sites| sites.given.values());
        given.map(|given| given.sleepers.clone_ref(py)).collect()
    };
    all.iter().any(|sleepers| {
        let wait = python(py, "wait").and_then(|wait| call(&wait, (sleepers,)));
        wait.and_then(|wait| wait.is_truthy()).unwrap_or(false)
    })
}

/// The threads, of these or of all, that run frames older than their code's twin.
pub(crate) fn older_in(py: Python<'_>, among: Option<&[u64]>) -> Vec<u64> {
    if sites(py)
        .as_ref()
        .is_none_or(|sites| sites.given.is_empty())
    {
        return Vec::new();
    }
    let frames = || -> PyResult<Bound<'_, PyDict>> {
        let frames = call(&py.import("sys")?.getattr("_current_frames")?, ())?;
        Ok(frames.cast_into()?)
    };
    let Ok(frames) = frames() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (ident, innermost) in &frames {
        let Ok(ident) = ident.extract::<u64>() else {
            continue;
        };
        if among.is_none_or(|among| among.contains(&ident)) && has_older(innermost) {
            found.push(ident);
        }
    }
    found
}

fn has_older(innermost: Bound<'_, PyAny>) -> bool {
    let mut frame = Some(innermost);
    while let Some(found) = frame {
        if is_older(found.py(), frame::code_of(&found).as_ptr() as usize) {
            return true;
        }
        frame = frame::caller_of(&found);
    }
    false
}

/// Whether code that runs does not tell what is wanted of it.
fn is_older(py: Python<'_>, code: usize) -> bool {
    let sites = sites(py);
    let Some(sites) = sites.as_ref() else {
        return false;
    };
    let current = |original: usize| {
        let given = sites.given.get(&original)?;
        Some(&sites.twins.get(&given.twin)?.calls)
    };
    match sites.twins.get(&code) {
        None => current(code).is_some_and(Calls::has_points),
        Some(twin) => current(twin.original.as_ptr() as usize)
            .is_some_and(|current| !twin.calls.suffice(current)),
    }
}

/// Another function has the code of this one, or its twin, from now on.
pub(crate) fn has_code_of(code: &Py<PyAny>, function: &Bound<'_, PyAny>) {
    let py = function.py();
    let functions = sites(py).as_ref().and_then(|sites| {
        let given = sites.given.get(&(code.as_ptr() as usize))?;
        Some(given.functions.clone_ref(py))
    });
    if let Some(functions) = functions {
        // Where it fails, a point in that function is not met until the next one is armed in it.
        drop(python(py, "note").and_then(|note| call(&note, (functions, function))));
    }
}

/// A thread that is traced comes to a line.
pub(crate) fn seen(code: usize, line: u32, frame: &Bound<'_, PyAny>) -> TraceSite {
    let py = frame.py();
    TOLD.set(0);
    let found = sites_if_free(py).and_then(|sites| {
        let twin = sites.as_ref()?.twins.get(&code)?;
        let original = twin.original.as_ptr() as usize;
        Some((original, twin.calls.lines.contains(&line)))
    });
    let Some((original, has_line)) = found else {
        return TraceSite {
            code,
            call: None,
            is_told: false,
        };
    };
    let at = offset_of(frame);
    let call = sites_if_free(py).and_then(|sites| {
        let twin = sites.as_ref()?.twins.get(&code)?;
        let place = twin.offsets.iter().position(|offset| *offset == at)?;
        // That of the beginning comes first. One that only a trace wants tells nothing of points.
        let begins = twin.calls.begin && place == 0;
        (begins || has_line).then_some(begins)
    });
    TraceSite {
        code: original,
        call,
        is_told: has_line && call.is_none(),
    }
}

/// What the next call of a frame would tell was told; unless the thread was sent elsewhere meanwhile.
pub(crate) fn mark_reported(frame: &Bound<'_, PyAny>, offset: i64) {
    if offset_of(frame) == offset {
        TOLD.set(frame.as_ptr() as usize);
    }
}

pub(crate) fn offset_of(frame: &Bound<'_, PyAny>) -> i64 {
    let offset = frame.getattr(crate::python::interned::interned!(frame.py(), "f_lasti"));
    offset.and_then(|offset| offset.extract()).unwrap_or(-1)
}

/// Whether there was somebody to give it to.
fn give(code: &Bound<'_, PyAny>, wanted: Calls, known: &[Bound<'_, PyAny>]) -> PyResult<bool> {
    let py = code.py();
    let address = code.as_ptr() as usize;
    let may = python(py, "may_have_twin")?;
    if !call(&may, (code, wanted.has_points()))?.is_truthy()? {
        return Ok(false);
    }
    // All that frames and functions may have in its place.
    let mut older = vec![code.clone()];
    older.extend(twins_of(code));
    let holders = Holders::of(code, &older, &wanted, known)?;
    if holders.functions.len()? == 0 {
        return Ok(false);
    }
    let twin = match twin_with(code, &wanted) {
        Some(twin) => twin,
        None => make(code, wanted)?,
    };
    let names = Names::of(&twin);
    prepare(code, &twin);
    call(
        &python(py, "give")?,
        (&holders.functions, PyTuple::new(py, &older)?, &twin),
    )?;
    let replaced = {
        let mut sites = sites(py);
        sites.get_or_insert_default().given.insert(
            address,
            Given {
                twin: twin.as_ptr() as usize,
                functions: holders.functions.unbind(),
                are_all: holders.are_all,
                sleepers: holders.sleepers.unbind(),
            },
        )
    };
    drop(replaced);
    let replaced = {
        let mut armed = breakpoint_index(py);
        let is_armed = armed.code(address).is_some();
        is_armed.then(|| armed.code_mut(code).twin.replace(names))
    };
    drop(replaced);
    Ok(true)
}

/// Makes a twin, which is kept as long as somebody may run it.
fn make<'py>(code: &Bound<'py, PyAny>, wanted: Calls) -> PyResult<Bound<'py, PyAny>> {
    let py = code.py();
    let made = made(code, &wanted)?;
    let (twin, offsets) = (made.get_item(0)?, made.get_item(1)?.extract()?);
    let mut sites = sites(py);
    let replaced = sites.get_or_insert_default().twins.insert(
        twin.as_ptr() as usize,
        InstrumentedCode {
            code: twin.clone().unbind(),
            original: code.clone().unbind(),
            calls: wanted,
            offsets,
        },
    );
    debug_assert!(replaced.is_none(), "twins are kept alive");
    Ok(twin)
}

/// One that was made before and calls out at the same places.
fn twin_with<'py>(code: &Bound<'py, PyAny>, wanted: &Calls) -> Option<Bound<'py, PyAny>> {
    let py = code.py();
    let sites = sites(py);
    let mut twins = sites.as_ref()?.twins.values();
    let found = twins.find(|twin| twin.original.is(code) && twin.calls == *wanted)?;
    Some(found.code.bind(code.py()).clone())
}

/// Who has some code: weak references.
struct Holders<'py> {
    functions: Bound<'py, PyAny>,
    are_all: bool,
    sleepers: Bound<'py, PyAny>,
}

impl<'py> Holders<'py> {
    /// As far as they have to be known: a trace does with those that it knows, and to look for others is to look at all there
    /// is.
    fn of(
        code: &Bound<'py, PyAny>,
        older: &[Bound<'py, PyAny>],
        wanted: &Calls,
        known: &[Bound<'py, PyAny>],
    ) -> PyResult<Self> {
        let py = code.py();
        let before = sites(py).as_ref().and_then(|sites| {
            let given = sites.given.get(&(code.as_ptr() as usize))?;
            Some((given.functions.clone_ref(py), given.are_all))
        });
        let (functions, are_all) = match before {
            Some((functions, are_all)) => (functions.into_bound(py), are_all),
            None => (PyList::empty(py).into_any(), false),
        };
        let note = python(py, "note")?;
        for function in known {
            call(&note, (&functions, function))?;
        }
        let suffice = are_all && !frame::suspends(code) || !wanted.has_points();
        if suffice {
            let sleepers = PyTuple::empty(py).into_any();
            return Ok(Self {
                functions,
                are_all,
                sleepers,
            });
        }
        let holders = holders(py, older)?;
        Ok(Self {
            functions: holders.get_item(0)?,
            are_all: true,
            sleepers: holders.get_item(1)?,
        })
    }
}

/// Gets the expressions of points ready for frames of a twin.
fn prepare(code: &Bound<'_, PyAny>, twin: &Bound<'_, PyAny>) {
    let py = code.py();
    let points: Vec<_> = {
        let armed = breakpoint_index(py);
        let arms = armed.code(code.as_ptr() as usize).into_iter();
        arms.flat_map(CodeBreakpoints::points).cloned().collect()
    };
    for expression in points.iter().flat_map(|point| point.expressions()) {
        expression.prepare_for_twin(code, twin);
    }
}

fn made<'py>(code: &Bound<'py, PyAny>, wanted: &Calls) -> PyResult<Bound<'py, PyAny>> {
    let py = code.py();
    let lines = PyDict::new(py);
    for line in &wanted.lines {
        lines.set_item(
            *line,
            probe_call::new(code, CallEvent::Line { line: *line })?,
        )?;
    }
    if wanted.every_line {
        let every: Vec<u32> = call(&python(py, "lines_in")?, (code,))?.extract()?;
        for line in every {
            let has_points = wanted.lines.contains(&line);
            let tells = CallEvent::TracedLine { line, has_points };
            lines.set_item(line, probe_call::new(code, tells)?)?;
        }
    }
    let start = if wanted.begin {
        let line = call(&python(py, "entry_line")?, (code,))?.extract()?;
        Some(probe_call::new(code, CallEvent::Start { line })?)
    } else {
        None
    };
    let writes = PyDict::new(py);
    for offset in &wanted.writes {
        writes.set_item(
            *offset,
            probe_call::new(code, CallEvent::Write { offset: *offset })?,
        )?;
    }
    let ends = || -> PyResult<_> {
        let [called, left, unwound] = [CallEvent::Call, CallEvent::Return, CallEvent::Unwind]
            .map(|tells| probe_call::new(code, tells));
        Ok((called?, left?, unwound?))
    };
    let ends = wanted.traced.then(ends).transpose()?;
    let with_sites = python(py, "with_sites")?;
    call(&with_sites, (code, lines, start, writes, ends))
}

/// Gives functions their own code again. Frames that run a twin go on with it, and it tells nothing.
fn take_back(code: &Bound<'_, PyAny>) {
    let py = code.py();
    let address = code.as_ptr() as usize;
    let given = sites(py)
        .as_mut()
        .and_then(|sites| sites.given.remove(&address));
    let twins = twins_of(code);
    let functions = match &given {
        Some(given) => Ok(given.functions.bind(py).clone()),
        None if twins.is_empty() => return,
        None => holders(py, &twins).and_then(|holders| holders.get_item(0)),
    };
    let back = functions.and_then(|functions| {
        call(
            &python(py, "give")?,
            (functions, PyTuple::new(py, &twins)?, code),
        )
    });
    // Where it is refused, the twin stays, which only does more than it has to.
    drop(back);
    let names = {
        let mut armed = breakpoint_index(py);
        let is_there = armed.code(address).is_some();
        is_there.then(|| armed.code_mut(code).twin.take())
    };
    drop(names);
    drop(given);
}

fn twins_of<'py>(code: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let py = code.py();
    let sites = sites(py);
    let twins = sites.iter().flat_map(|sites| sites.twins.values());
    let its = twins.filter(|twin| twin.original.is(code));
    its.map(|twin| twin.code.bind(code.py()).clone()).collect()
}

/// Forgets twins that no function has and no frame runs.
fn forget_unused(py: Python<'_>) {
    let unused: Vec<InstrumentedCode> = {
        let mut sites = sites(py);
        let Some(sites) = sites.as_mut() else {
            return;
        };
        let is_unused = |address: &usize, twin: &InstrumentedCode| {
            let is_current = sites.given.values().any(|given| given.twin == *address);
            // What is only muted is told of again soon.
            let is_muted = twin.calls.traced && trace::knows(py, twin.original.as_ptr() as usize);
            // SAFETY: a live object, and the GIL is held. The one reference is ours.
            !is_current && !is_muted && unsafe { ffi::Py_REFCNT(twin.code.as_ptr()) } == 1
        };
        let found: Vec<usize> = sites
            .twins
            .iter()
            .filter(|(address, twin)| is_unused(address, twin))
            .map(|(address, _)| *address)
            .collect();
        found
            .iter()
            .filter_map(|address| sites.twins.remove(address))
            .collect()
    };
    for InstrumentedCode { code, original, .. } in unused {
        release(code.into_bound(py));
        release(original.into_bound(py));
    }
}

/// A twin has come to a site. Whether the line is to be told once more, by a trace function: the thread stops there.
#[inline]
pub(crate) fn reached(py: Python<'_>, site: &Site) -> bool {
    panic::catch_unwind(AssertUnwindSafe(|| met(py, site))).unwrap_or(false)
}

#[inline]
fn met(py: Python<'_>, site: &Site) -> bool {
    let Some(frame) = frame::current_borrowed(py) else {
        return false;
    };
    let place = match site.tells {
        CallEvent::Start { line } => (line, true),
        CallEvent::Line { line } | CallEvent::TracedLine { line, .. } => (line, false),
        CallEvent::Write { offset } => return watchpoints::at_site(&frame, site.code(), offset),
        CallEvent::Call | CallEvent::Return | CallEvent::Unwind => return false,
    };
    if TOLD.get() != 0 && TOLD.replace(0) == frame.as_ptr() as usize {
        return false;
    }
    let met = match try_breakpoint_index(py) {
        Some(armed) => match armed.code(site.code()) {
            Some(arms) => arms.at_call(place, &frame),
            None => return false,
        },
        None => return false,
    };
    match met {
        EventMatch::Hits(points) => events::called(&frame, points),
        EventMatch::Nothing | EventMatch::NotNow => false,
    }
}

/// Weak references to the functions that have one of these codes, and to generators that run one.
fn holders<'py>(py: Python<'py>, codes: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
    let kinds = python(py, "KINDS")?.cast_into::<PyTuple>()?;
    let walk = Walk::new(codes, &kinds);
    let walk = walk.map(|walk| Bound::new(py, walk)).transpose()?;
    let codes = PyTuple::new(py, codes)?;
    call(&python(py, "holders")?, (codes, walk))
}

fn python<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace = NAMESPACE.get_or_try_init(py, || {
        embedded!(py, "instrumented_code.py").map(Bound::unbind)
    })?;
    namespace.bind(py).as_any().get_item(name)
}

fn sites(py: Python<'_>) -> GilGuard<'_, Option<Sites>> {
    SITES.borrow_mut(py)
}

fn sites_if_free(py: Python<'_>) -> Option<GilGuard<'_, Option<Sites>>> {
    SITES.try_borrow_mut(py)
}
