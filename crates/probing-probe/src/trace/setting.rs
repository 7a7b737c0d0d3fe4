//! Beginning and ending traces: what the interpreter is asked to tell follows from what is traced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use probing_proto::message::breakpoints::{Action, BreakpointLocation, SetBreakpoint, StopPolicy};
use probing_proto::message::trace as proto;
use probing_proto::message::trace::{FOLLOWED_ELSEWHERE, Scope, TraceId};
use probing_proto::message::{Event, Failure};
use pyo3::prelude::*;

use crate::breakpoints::{self, YieldPoints};
use crate::instrument::profile;
use crate::python::code_search::{Finder, FoundCode, SearchGuard};
use crate::python::frame;
use crate::python::monitoring;
use crate::requests::request::Pending;
use crate::requests::worker::{self, SingleFlight};
use crate::server::lifecycle;
use crate::trace::code_table::table;
use crate::trace::function_stats::{Role, Tracing};
use crate::trace::traces::{self, MAX_TRACES, Owner, Trace};
use crate::trace::{accounting, clock, cost, functions, monitoring_tool, thread};

/// Functions of one trace.
const MAX_FUNCTIONS: u32 = 20_000;
/// Traces are looked at that often by the server's thread.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// One that was muted, that often.
const LOOK_EVERY_MUTED: Duration = Duration::from_millis(100);

/// Those that look for code that begins to run. Reached with the GIL held only.
static SEEKERS: Mutex<Vec<Arc<Trace>>> = Mutex::new(Vec::new());
static SEEKING: AtomicBool = AtomicBool::new(false);
/// Of [`tick`].
static LOOK: SingleFlight = SingleFlight::new();

/// Begins a trace; what came of it.
pub(crate) fn begin(
    py: Python<'_>,
    wanted: proto::Trace,
    owner: Owner,
    pending: Pending<'_>,
) -> Result<Arc<Trace>, Failure> {
    refuse_lines(py, &wanted)?;
    let finder = Finder::of_scope(py, &wanted.scope)
        .map_err(|error| Failure::new(format!("cannot search for code: {error}")))?;
    // Nobody hears of it before its functions are known.
    let alone = SearchGuard::wait(py, &pending)?;
    let (found, note) = finder.find(py, &pending)?;
    let trace = new(py, wanted, owner, Some(finder))?;
    let waits = found.is_empty() || matches!(trace.wanted.scope, Scope::Module { .. });
    let others = bind(&trace, found, Role::Root);
    drop(alone);
    let note = note.map(|note| note.replace(": set for ", ": waits for "));
    // It may have had its steps meanwhile, and say so.
    if !trace.is_over() {
        trace.note(note.or(others));
    }
    if waits {
        seekers().push(Arc::clone(&trace));
        seek_or_not(py);
    }
    let is_there = watch(py, &trace).and_then(|()| pending.commit());
    if let Err(failure) = is_there {
        end(py, &[trace.id]);
        return Err(failure);
    }
    trace.has_begun();
    if trace.is_over() {
        put_away(py, &trace);
    }
    changed();
    Ok(trace)
}

/// Before 3.12, only functions that get code of their own can tell their lines.
fn refuse_lines(py: Python<'_>, wanted: &proto::Trace) -> Result<(), Failure> {
    let is_module = matches!(wanted.scope, Scope::Module { .. });
    if wanted.lines && is_module && !monitoring::is_there(py) {
        return Err(
            Failure::new("lines of a whole module can be recorded from Python 3.12 on")
                .with_hint("name a function: `probing trace FUNCTION --lines`"),
        );
    }
    Ok(())
}

/// A trace of nothing yet.
pub(crate) fn new(
    py: Python<'_>,
    wanted: proto::Trace,
    owner: Owner,
    finder: Option<Finder>,
) -> Result<Arc<Trace>, Failure> {
    let traces = traces::of_this_process();
    if owner == Owner::Client && traces.is_full() {
        return Err(Failure::new(format!("{MAX_TRACES} traces exist already"))
            .with_hint("end some: `probing untrace ID`"));
    }
    clock::prepare(py);
    let cost = cost::of_an_event(py, &wanted)?;
    let id = traces.next_id();
    let trace = Arc::new(Trace::new(id, wanted, owner, finder, cost));
    traces.add(Arc::clone(&trace));
    Ok(trace)
}

/// Code was found that a trace is to follow: from now on it is told of. What to say of code that another has.
pub(crate) fn bind(trace: &Arc<Trace>, found: Vec<FoundCode<'_>>, role: Role) -> Option<String> {
    let mut others = 0;
    let mut note = None;
    let mut told = Vec::new();
    for FoundCode { code, mut spot } in found {
        // A function begins where its name is, not at the first line that does something.
        spot.lineno = frame::first_line_of(&code);
        if trace.functions() >= MAX_FUNCTIONS {
            let first = format!("only the first {MAX_FUNCTIONS} functions are traced");
            note = Some(first);
            break;
        }
        let py = code.py();
        if monitoring_tool::claim(py).is_err() {
            note =
                Some("no free tool id of sys.monitoring: the program's tools use all".to_owned());
            break;
        }
        let function = functions::number(&spot);
        let suspends = frame::suspends(&code);
        let yields = older_only(py, || YieldPoints::of(&code)).flatten();
        let is_new = {
            let mut table = table(py);
            let entry = table.entry_mut(&code);
            match &entry.tracing {
                None => {
                    let tracing = Tracing::new(Arc::clone(trace), function, role, suspends);
                    entry.tracing = Some(tracing);
                    entry.yields = yields;
                    true
                }
                Some(there) => {
                    others += u32::from(!Arc::ptr_eq(&there.trace, trace));
                    false
                }
            }
        };
        if is_new {
            trace.bind(spot);
            told.push(code);
        }
    }
    if let Some(code) = told.first() {
        monitoring_tool::tell_each(code.py(), &told);
        note = note.or_else(|| silent(trace, role, &told));
    }
    note.or(match others {
        0 => None,
        1 => Some(format!("one of its functions is {FOLLOWED_ELSEWHERE}")),
        others => Some(format!(
            "{others} of its functions are {FOLLOWED_ELSEWHERE}"
        )),
    })
}

/// What to say when lines are wanted of code that does not tell them.
fn silent(trace: &Trace, role: Role, told: &[Bound<'_, PyAny>]) -> Option<String> {
    let are_wanted = trace.wanted.lines && role == Role::Root;
    let is_silent = |code: &Bound<'_, PyAny>| {
        !monitoring::is_there(code.py()) && !breakpoints::tells_lines(code)
    };
    let is_said = are_wanted && told.iter().any(is_silent);
    is_said.then(|| {
        "no lines: before Python 3.12 they need instrumented code, which is not possible for functions that cannot be \
         found, nor while torch.compile or greenlet is loaded"
            .to_owned()
    })
}

/// Variables of the function are watched as long as it is traced.
fn watch(py: Python<'_>, trace: &Arc<Trace>) -> Result<(), Failure> {
    let Scope::Function { function, .. } = &trace.wanted.scope else {
        return match trace.wanted.watch.first() {
            None => Ok(()),
            Some(_) => Err(Failure::new("variables are watched in a function")
                .with_hint("name the function: `probing trace FUNCTION --watch NAME`")),
        };
    };
    let mut points = Vec::new();
    for name in &trace.wanted.watch {
        let (place, finder) = if name.contains(['.', '[']) {
            (BreakpointLocation::Value { path: name.clone() }, None)
        } else {
            let place = BreakpointLocation::Local {
                function: function.clone(),
                name: name.clone(),
            };
            // In the functions that are traced, not in others of that name.
            (place, Finder::of_scope(py, &trace.wanted.scope).ok())
        };
        match breakpoints::arm_for_trace(py, recorded(place), finder) {
            Ok(point) => points.push(point),
            Err(failure) => {
                breakpoints::disarm(py, &points);
                return Err(failure);
            }
        }
    }
    trace.watched_by(points);
    Ok(())
}

/// What a watch is armed with whose changes are recorded, for as long as somebody wants.
pub(crate) fn recorded(place: BreakpointLocation) -> SetBreakpoint {
    SetBreakpoint {
        place,
        condition: None,
        hits: 1,
        once: false,
        action: Action::Count,
        stats: false,
        own: false,
        ttl_millis: Some(0),
        expression_millis: None,
        hold: StopPolicy::default(),
    }
}

/// Ends traces: those that are named, all of clients when none is. They are told as they were.
pub(crate) fn end(py: Python<'_>, wanted: &[TraceId]) -> Event {
    let traces = traces::of_this_process();
    let all = traces.all();
    let is_unknown = |id: &&TraceId| !all.iter().any(|trace| trace.id == **id);
    let unknown: Vec<String> = wanted
        .iter()
        .filter(is_unknown)
        .map(|id| id.0.to_string())
        .collect();
    if !unknown.is_empty() {
        return Event::Failed(
            Failure::new(format!("no such trace: {}", unknown.join(", ")))
                .with_hint("`probing trace --list` lists them"),
        );
    }
    accounting::look(py, true);
    let taken = traces.take(wanted);
    let told = taken.iter().map(|trace| trace.report()).collect();
    for trace in &taken {
        trace.end();
        put_away(py, trace);
    }
    Event::Traces { traces: told }
}

/// A trace that is over: nothing is told for it any more. It stays in the list until somebody takes it out.
pub(crate) fn put_away(py: Python<'_>, trace: &Arc<Trace>) {
    let points = trace.points();
    if !points.is_empty() {
        trace.watched_by(Vec::new());
        breakpoints::disarm(py, &points);
    }
    seekers().retain(|other| !Arc::ptr_eq(other, trace));
    seek_or_not(py);
    let codes = table(py).codes_of(py, trace);
    for code in &codes {
        let tracing = table(py).entry_mut(code).tracing.take();
        if let Some(mut tracing) = tracing
            && tracing.sums.calls > 0
        {
            accounting::write(py, trace.id.0, tracing.function, &tracing.sums.take());
        }
    }
    monitoring_tool::tell_each(py, &codes);
    let forgotten = table(py).take_empty();
    drop(forgotten);
    monitoring_tool::release_if_idle(py);
    // It may have been put away before: then nobody need look again.
    if !codes.is_empty() || !points.is_empty() {
        thread::trace_ended();
        changed();
    }
}

/// Functions of a trace that were muted are told of again.
pub(crate) fn unmute(py: Python<'_>, trace: &Arc<Trace>) {
    let mut codes = table(py).codes_of(py, trace);
    codes.retain(|code| {
        let mut table = table(py);
        let tracing = table.entry_mut(code).tracing.as_mut();
        tracing.is_some_and(Tracing::unmute)
    });
    monitoring_tool::tell_each(py, &codes);
    profile_or_not(py);
}

/// Before 3.12: what a trace can pay for decides whether threads tell of all that they call.
pub(crate) fn profile_or_not(py: Python<'_>) {
    older_only(py, || profile::refresh(py));
}

/// Before 3.12: how many threads a profile function of another tool keeps from telling us what they call.
pub(crate) fn others_profile(py: Python<'_>) -> usize {
    older_only(py, || profile::renew(py)).unwrap_or(0)
}

fn older_only<T>(py: Python<'_>, work: impl FnOnce() -> T) -> Option<T> {
    (!monitoring::is_there(py)).then(work)
}

/// Whether code that begins to run may be what a trace waits for.
#[inline]
pub(crate) fn is_seeking() -> bool {
    SEEKING.load(Ordering::Relaxed)
}

/// The same, where to be told of it costs every call: a trace that has no money left does not look.
pub(crate) fn seeks_now() -> bool {
    seekers().iter().any(|trace| !trace.is_overdrawn())
}

/// Code that nobody wants to know of begins to run: a trace may wait for it.
#[cold]
pub(crate) fn seek(code: &Bound<'_, PyAny>) {
    if let Some(frame) = frame::current(code.py()) {
        seek_in(code, &frame);
    }
}

/// The same, where the frame is known: whether one did.
pub(crate) fn seek_in(code: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) -> bool {
    let waiting = seekers().clone();
    let module = crate::python::code_search::module_of(frame);
    let mut is_wanted = false;
    for trace in waiting.iter().filter(|trace| !trace.is_over()) {
        let found = trace
            .finder
            .as_ref()
            .map(|finder| finder.bind(code, &module));
        if let Some(Ok(found)) = found
            && !found.is_empty()
        {
            bind(trace, found, Role::Root);
            trace.note(None);
            is_wanted = true;
        }
    }
    is_wanted
}

fn seek_or_not(py: Python<'_>) {
    let seeks = !seekers().is_empty();
    let sought = SEEKING.swap(seeks, Ordering::AcqRel);
    if seeks {
        // Without a number of ours nothing begins that we hear of.
        drop(monitoring_tool::claim(py));
    }
    if seeks || sought {
        monitoring_tool::refresh(py);
    }
    if seeks {
        monitoring_tool::restart(py);
    }
}

fn seekers() -> std::sync::MutexGuard<'static, Vec<Arc<Trace>>> {
    SEEKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In the child of a fork: nobody waits any more.
pub(crate) fn forget_seekers() {
    seekers().clear();
    SEEKING.store(false, Ordering::Release);
}

/// Has the server's thread look at the deadlines again.
pub(crate) fn changed() {
    breakpoints::of_this_process().changed();
}

/// Something was muted. Only the probe's thread comes by when nothing tells: a program that traces itself and has none gets
/// one.
pub(crate) fn has_muted() {
    changed();
    if lifecycle::may_be_started() {
        // Without a thread it stays muted, until somebody starts the probe.
        drop(worker::start(|| {
            worker::with_interpreter(|py| lifecycle::start(py).ok());
        }));
    }
}

/// Functions that have been defined again since they were found, by `importlib.reload` or at a prompt, are followed, too.
fn find_again(py: Python<'_>, traces: &[Arc<Trace>]) {
    for trace in traces.iter().filter(|trace| !trace.is_over()) {
        let again = trace.finder.as_ref().map(|finder| finder.again(py));
        if let Some(Ok(found)) = again
            && !found.is_empty()
        {
            bind(trace, found, Role::Root);
        }
        breakpoints::find_again(py, &trace.points());
    }
    crate::python::code_search::forget_globals(py);
}

/// When [`tick`] has something to do.
pub(crate) fn next_deadline() -> Option<Instant> {
    let traces = traces::if_any()?.all();
    let now = Instant::now();
    let of_one = |trace: &Arc<Trace>| {
        if trace.is_over() {
            return None;
        }
        let every = if trace.is_overdrawn() {
            LOOK_EVERY_MUTED
        } else {
            LOOK_EVERY
        };
        let look = now + every;
        Some(trace.expires().map_or(look, |expires| expires.min(look)))
    };
    let next = traces.iter().filter_map(of_one).min();
    next.map(|next| LOOK.not_before(next))
}

/// Ends what has had its time, and looks at the others. Called by the server's thread, which has no GIL.
pub(crate) fn tick() {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let Some(traces) = traces::if_any() else {
        return;
    };
    let now = Instant::now();
    let all = traces.all();
    let is_expired = |trace: &&Arc<Trace>| trace.expires().is_some_and(|expires| expires <= now);
    let expired: Vec<_> = all.iter().filter(is_expired).cloned().collect();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let any = all.iter().any(|trace| !trace.is_over());
    let is_due = any && last.is_none_or(|last| now - last >= LOOK_EVERY);
    let is_muted = all
        .iter()
        .any(|trace| trace.is_overdrawn() && !trace.is_over());
    if LOOK.is_taken() || expired.is_empty() && !is_due && !is_muted {
        return;
    }
    if is_due {
        *last = Some(now);
    }
    drop(last);
    LOOK.start(move |py| {
        accounting::look(py, false);
        others_profile(py);
        find_again(py, &all);
        for trace in &expired {
            if trace.end() {
                trace.note(Some("ended: expired".to_owned()));
                accounting::look(py, true);
                put_away(py, trace);
            }
        }
    });
}
