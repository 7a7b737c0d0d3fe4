//! Arming and disarming: what the interpreter is asked to tell follows from what is armed.

use std::sync::Arc;

use probing_proto::message::breakpoints::{
    self, Action, BreakpointEvent, BreakpointId, BreakpointLocation, OTHER_INTERPRETERS,
    SetBreakpoint,
};
use probing_proto::message::{Event, Failure};
use pyo3::prelude::*;

use crate::breakpoints::condition::Condition;
use crate::breakpoints::expression::{Expression, Kind};
use crate::breakpoints::index::{breakpoint_index, try_breakpoint_index};
use crate::breakpoints::monitoring::{self, GlobalEvent};
use crate::breakpoints::registry::{Breakpoint, MAX_POINTS, Parts};
use crate::breakpoints::{events, exceptions, of_this_process, stepping, suspend_threads};
use crate::instrument::{settrace, sites};
use crate::process::fork_guard;
use crate::python::code_search::{self, Finder, FoundCode};
use crate::python::frame::{self, Names};
use crate::python::symbols;
use crate::requests::outbox::Outbox;
use crate::requests::request::Pending;
use crate::watchpoints;

/// How this Python tells us what its threads do.
pub(crate) use crate::python::monitoring::is_there as has_monitoring;

/// Arms a point; what came of it.
pub(crate) fn arm(
    py: Python<'_>,
    wanted: SetBreakpoint,
    client: &Arc<Outbox>,
    pending: Pending<'_>,
) -> Result<Event, Failure> {
    let armed = try_arm(py, wanted, (Some(client), pending), None).map(Event::Armed);
    // It has gone meanwhile, and nobody has found its points.
    if client.is_closed() {
        disarm_owned(py, client);
    }
    armed
}

/// Disarms what ends with a connection.
pub(crate) fn disarm_owned(py: Python<'_>, client: &Arc<Outbox>) {
    let owned = of_this_process().points().owned_by(client);
    if !owned.is_empty() {
        // Each is there: they were found just now.
        drop(disarm(py, &owned));
    }
}

/// Arms a point for a client, or for the program itself. Whoever knows better than its place where it is brings a finder. The point
/// does nothing before all of it is there and the request is committed.
pub(crate) fn try_arm(
    py: Python<'_>,
    wanted: SetBreakpoint,
    (client, pending): (Option<&Arc<Outbox>>, Pending<'_>),
    finder: Option<Finder>,
) -> Result<breakpoints::Breakpoint, Failure> {
    fork_guard::settle(py);
    let stops = of_this_process();
    if stops.points().is_full() {
        return Err(
            Failure::new(format!("{MAX_POINTS} breakpoints are set already"))
                .with_hint("delete some: `probing delete ID`"),
        );
    }
    let owner = client.filter(|_| wanted.own).map(Arc::downgrade);
    let parts = parts(py, &wanted)?;
    let parts = Parts {
        owner,
        finder: finder.or(parts.finder),
        ..parts
    };
    let needs_claim = wanted.place != BreakpointLocation::Uncaught;
    let claimed = needs_claim.then(|| Claimed::new(py)).transpose()?;
    let id = stops.points().next_id();
    let point = Arc::new(Breakpoint::new(id, wanted, parts));
    let prepared = prepare(py, &point, &pending).and_then(|()| pending.commit());
    drop(claimed);
    if let Err(failure) = prepared {
        point.disarm();
        take_out(py, &point);
        settle(py);
        return Err(failure);
    }
    // Whoever finds it in the list may rely on it.
    stops.points().add(Arc::clone(&point));
    point.begin();
    stops.changed();
    Ok(point.report())
}

/// Puts a point where it belongs, and has the interpreter tell of it.
fn prepare(py: Python<'_>, point: &Arc<Breakpoint>, pending: &Pending<'_>) -> Result<(), Failure> {
    if let Some(finder) = &point.finder {
        let _alone = code_search::SearchGuard::wait(py, pending)?;
        let (found, note) = finder.find(py, pending)?;
        breakpoint_index(py).add_seeker(Arc::clone(point));
        let bound = bind(point, found, None);
        code_search::forget_globals(py);
        bound?;
        let others = symbols::has_other_interpreters();
        point.add_note(others.then(|| OTHER_INTERPRETERS.to_owned()));
        point.add_note(note);
        restart(py);
    } else if point.watch.is_some() {
        watchpoints::begin(py, point)?;
    } else {
        exceptions::arm(py, point)
            .map_err(|error| Failure::new(format!("cannot set the hooks: {error}")))?;
    }
    refresh(py);
    Ok(())
}

/// Functions that have been defined again since these points found them have the points, too. (From 3.12 on most are found before,
/// when they begin.)
pub(crate) fn find_again(py: Python<'_>, wanted: &[BreakpointId]) {
    let points: Vec<Arc<Breakpoint>> = {
        let points = of_this_process().points();
        let wanted = points.all().iter().filter(|it| wanted.contains(&it.id));
        wanted.cloned().collect()
    };
    for point in points {
        let again = point.finder.as_ref().map(|finder| finder.again(py));
        if let Some(Ok(found)) = again
            && !found.is_empty()
        {
            // One that has no such variable any more has nothing to tell.
            drop(bind(&point, found, None));
            refresh(py);
        }
    }
}

/// Watches a local variable of code that is known.
pub(crate) fn watch_local(
    py: Python<'_>,
    function: &str,
    name: &str,
    found: FoundCode<'_>,
) -> Result<BreakpointId, Failure> {
    let wanted = SetBreakpoint {
        place: BreakpointLocation::Local {
            function: function.to_owned(),
            name: name.to_owned(),
        },
        condition: None,
        hits: 1,
        once: false,
        action: Action::Count,
        stats: false,
        own: false,
        ttl_millis: Some(0),
        expression_millis: None,
        hold: breakpoints::StopPolicy::default(),
    };
    let parts = parts(py, &wanted)?;
    let claimed = Claimed::new(py)?;
    let stops = of_this_process();
    let id = stops.points().next_id();
    let point = Arc::new(Breakpoint::new(id, wanted, parts));
    point.begin();
    stops.points().add(Arc::clone(&point));
    let bound = bind(&point, vec![found], None);
    drop(claimed);
    if let Err(failure) = bound {
        disarm(py, &[id]);
        return Err(failure);
    }
    refresh(py);
    Ok(id)
}

/// All that can be wrong with what was asked for is found here.
fn parts(py: Python<'_>, wanted: &SetBreakpoint) -> Result<Parts, Failure> {
    let note = exceptions::check(py, &wanted.place)?;
    let condition = wanted.condition.as_deref();
    let condition = condition
        .map(|source| Condition::new(py, source))
        .transpose()?;
    let text = match &wanted.action {
        Action::Log { text } => Some(Expression::new(py, Kind::Template, text)?),
        _ => None,
    };
    let finder = Finder::new(py, &wanted.place)
        .map_err(|error| Failure::new(format!("cannot search for code: {error}")))?;
    let is_native = condition.as_ref().is_none_or(Condition::is_native);
    let (watch, by, cost) = if let Some((watch, by, cost)) = watchpoints::watch(py, wanted)? {
        (Some(watch), by, cost)
    } else {
        let by = match &wanted.place {
            BreakpointLocation::Uncaught => "sys.excepthook",
            _ if has_monitoring(py) => crate::python::monitoring::NAME,
            BreakpointLocation::Line { .. } | BreakpointLocation::Function { .. } => sites::NAME,
            _ => settrace::NAME,
        };
        (None, by, cost(py, &wanted.place, is_native))
    };
    Ok(Parts {
        condition,
        text,
        finder,
        watch,
        by,
        cost,
        note,
        owner: None,
    })
}

/// What a point costs, in words.
fn cost(py: Python<'_>, place: &BreakpointLocation, is_native: bool) -> String {
    let monitoring = has_monitoring(py);
    let visit = if is_native {
        "well below a microsecond when it is passed"
    } else {
        "about a microsecond when it is passed, for its condition"
    };
    match place {
        BreakpointLocation::Uncaught => "nothing until an exception is not caught".to_owned(),
        BreakpointLocation::Raise { .. } => "nothing until something is raised".to_owned(),
        BreakpointLocation::Line { .. } | BreakpointLocation::Function { .. } if monitoring => {
            format!("nothing elsewhere; {visit}; each function once more when it first begins")
        }
        _ => format!("nothing elsewhere; {visit}; {}", sites::LIMIT),
    }
}

/// A point was found in code: from now on it is told there. Refused when that has no such variable. The names that frames of it
/// have are those of the frame that it was found by, or what the search knows.
pub(crate) fn bind<'py>(
    point: &Arc<Breakpoint>,
    found: Vec<FoundCode<'py>>,
    globals: Option<&Bound<'py, PyAny>>,
) -> Result<(), Failure> {
    if point.watch.is_some() {
        return watchpoints::bind(point, &found);
    }
    for found in found {
        let FoundCode { code, spot } = &found;
        let py = code.py();
        let is_start = matches!(point.request.place, BreakpointLocation::Function { .. });
        let is_known = breakpoint_index(py)
            .code(code.as_ptr() as usize)
            .is_some_and(|arms| arms.has(point));
        if is_known {
            continue;
        }
        let names = frame::is_function(code).then(|| Names::of(code));
        if point.expressions().next().is_some()
            && let Some(globals) = globals.cloned().or_else(|| code_search::globals_of(code))
        {
            point
                .expressions()
                .for_each(|it| it.prepare_for(code, &globals));
        }
        let mut armed = breakpoint_index(py);
        let arms = armed.code_mut(code);
        // Another thread may have come here meanwhile.
        if arms.has(point) || point.is_over() {
            drop(armed);
            continue;
        }
        let replaced = std::mem::replace(&mut arms.names, names);
        if is_start {
            arms.starts.push((spot.lineno, Arc::clone(point)));
        } else {
            arms.lines.push((spot.lineno, Arc::clone(point)));
        }
        drop(armed);
        drop(replaced);
        tell_again(code);
        let was_bound = point.is_bound();
        point.bind(spot.clone());
        if !was_bound {
            let finder = point.finder.as_ref();
            point.note(finder.and_then(|finder| finder.moved(&found)));
        }
    }
    Ok(())
}

/// Disarms these points, all when none is named, and tells them as they were.
pub(crate) fn disarm(py: Python<'_>, wanted: &[BreakpointId]) -> Event {
    let stops = of_this_process();
    let unknown: Vec<String> = {
        let points = stops.points();
        let is_known = |id: &&BreakpointId| !points.all().iter().any(|point| point.id == **id);
        let unknown = wanted.iter().filter(is_known);
        unknown.map(|id| id.0.to_string()).collect()
    };
    if !unknown.is_empty() {
        return Event::Failed(
            Failure::new(format!("no such breakpoint: {}", unknown.join(", ")))
                .with_hint("`probing breakpoints` lists them"),
        );
    }
    let taken = stops.points().take(wanted);
    let told = taken.iter().map(|point| point.report()).collect();
    for point in &taken {
        let was_armed = point.disarm();
        take_out(py, point);
        if was_armed {
            stops.announce(&BreakpointEvent::Disarmed {
                point: point.id,
                reason: "deleted by a client".to_owned(),
            });
        }
    }
    settle(py);
    Event::Points { points: told }
}

/// A point has come to its end. It is told of until somebody disarms it.
pub(crate) fn disarm_itself(py: Python<'_>, point: &Arc<Breakpoint>, reason: &str) {
    if !point.disarm() {
        return;
    }
    point.note(Some(format!("deleted: {reason}")));
    take_out(py, point);
    of_this_process().announce(&BreakpointEvent::Disarmed {
        point: point.id,
        reason: reason.to_owned(),
    });
    settle(py);
}

/// Takes a point out of everything that is looked at.
fn take_out(py: Python<'_>, point: &Arc<Breakpoint>) {
    exceptions::disarm(py, point);
    let changed = breakpoint_index(py).remove(py, point);
    point.expressions().for_each(Expression::forget);
    watchpoints::end(py, point);
    for code in &changed {
        tell_again(code);
    }
}

/// After something was taken out: nothing is told that nobody wants.
pub(crate) fn settle(py: Python<'_>) {
    let forgotten = breakpoint_index(py).forget_empty();
    drop(forgotten);
    refresh(py);
    release_if_idle(py);
    of_this_process().changed();
}

/// Takes out everything.
pub(crate) fn disarm_all(py: Python<'_>) {
    let points = of_this_process().points().take(&[]);
    for point in &points {
        point.disarm();
        take_out(py, point);
    }
    settle(py);
}

/// Has a code object tell what is wanted of it now.
pub(crate) fn tell_again(code: &Bound<'_, PyAny>) {
    if has_monitoring(code.py()) {
        // It fails when the program has freed our number behind our back; then nothing is told any more.
        drop(monitoring::set_local(code));
    } else {
        sites::tell(code);
    }
}

/// Has the interpreter tell what is wanted everywhere now.
pub(crate) fn refresh(py: Python<'_>) {
    if !has_monitoring(py) {
        settrace::set(py);
        return;
    }
    let (seeks, raises) = {
        let armed = breakpoint_index(py);
        (!armed.seekers.is_empty(), !armed.raises.is_empty())
    };
    let into = stepping::go_into(py);
    let everywhere = [
        (seeks || into, GlobalEvent::Starts),
        (seeks || into, GlobalEvent::Resumes),
        (into, GlobalEvent::Throws),
        (raises, GlobalEvent::Raises),
        (stepping::wait_for_ends(py), GlobalEvent::Unwinds),
        (
            suspend_threads::is_on() || watchpoints::look_at_lines(),
            GlobalEvent::Lines,
        ),
    ];
    let everywhere = everywhere.iter().filter(|(is_wanted, _)| *is_wanted);
    let everywhere: Vec<_> = everywhere.map(|(_, event)| *event).collect();
    // It fails when the program has freed our number behind our back; then nothing is told any more.
    drop(monitoring::set_everywhere(py, &everywhere));
}

/// What threads have to tell before 3.12. Runs nothing, so that it still holds when they are told.
pub(crate) fn wanted_of_threads(py: Python<'_>) -> settrace::TraceRequirements {
    let (raises, by_line) = {
        let armed = breakpoint_index(py);
        // What is bound is where it was found. What is loaded later is another's.
        let seeks = armed.seekers.iter().any(|point| !point.is_bound());
        (
            !armed.raises.is_empty(),
            seeks || !armed.values.is_empty() || !armed.steps.is_empty(),
        )
    };
    let watches = watchpoints::look_at_lines();
    let are_missing = sites::are_missing(py);
    settrace::TraceRequirements {
        lines: by_line
            || watches
            || are_missing
            || events::is_special()
            || suspend_threads::is_on(),
        raises,
        again: are_missing,
    }
}

/// Has all code tell again what it was told not to.
pub(crate) fn restart(py: Python<'_>) {
    if has_monitoring(py) {
        drop(monitoring::restart(py));
    } else {
        settrace::forget_seen(py);
    }
}

/// Gets ready to be told.
pub(crate) fn claim(py: Python<'_>) -> Result<(), Failure> {
    if has_monitoring(py) {
        monitoring::claim(py)
    } else {
        settrace::claim()
    }
}

/// What a point is told by is kept while it is being set. A search lets other threads run, where the last point that is armed may
/// come to its end.
struct Claimed<'py>(Python<'py>);

impl<'py> Claimed<'py> {
    fn new(py: Python<'py>) -> Result<Self, Failure> {
        claim(py)?;
        breakpoint_index(py).preparing += 1;
        Ok(Self(py))
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        // It is lent only while a panic unwinds; then what was claimed is kept.
        if let Some(mut armed) = try_breakpoint_index(self.0) {
            // A fork has forgotten it.
            armed.preparing = armed.preparing.saturating_sub(1);
        }
    }
}

fn release_if_idle(py: Python<'_>) {
    let is_idle = breakpoint_index(py).is_empty() && !suspend_threads::is_on();
    if is_idle && has_monitoring(py) {
        monitoring::release(py);
    }
}

/// In a forked child, and at the end: whatever is told is told no more.
pub(crate) fn forget_all(py: Python<'_>) {
    let codes = breakpoint_index(py).codes(py);
    let steps: Vec<u64> = breakpoint_index(py).steps.keys().copied().collect();
    for thread in steps {
        drop(stepping::finish(py, thread));
    }
    let values = {
        let mut armed = breakpoint_index(py);
        armed.seekers.clear();
        armed.raises.clear();
        armed.preparing = 0;
        std::mem::take(&mut armed.values)
    };
    watchpoints::forget(py, &values);
    for code in &codes {
        let mut armed = breakpoint_index(py);
        let arms = armed.code_mut(code);
        let lines = std::mem::take(&mut arms.lines);
        let starts = std::mem::take(&mut arms.starts);
        let stores = std::mem::take(&mut arms.stores);
        (arms.steppers, arms.enders, arms.waits) = (0, 0, 0);
        drop(armed);
        drop((lines, starts, stores));
        tell_again(code);
    }
    exceptions::forget(py);
    let forgotten = breakpoint_index(py).forget_empty();
    drop(forgotten);
    refresh(py);
    release_if_idle(py);
}
