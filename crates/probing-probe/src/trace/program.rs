//! Traces that the program itself asks for: `probing.probe` and `with probing.trace(…)`.
//!
//! A decorated function stays the object that it is: what is traced is its code. In the child of a fork they go on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use probing_proto::message::Failure;
use probing_proto::message::breakpoints::{BreakpointId, BreakpointLocation, SourceLocation};
use probing_proto::message::trace as proto;
use probing_proto::message::trace::{Scope, TraceId};
use probing_store::TraceRowId;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;

use crate::breakpoints;
use crate::instrument::probe_call;
use crate::instrument::profile;
use crate::python::code_search::{FoundCode, module_of};
use crate::python::frame;
use crate::python::monitoring;
use crate::server::lifecycle;
use crate::trace::code_table::table;
use crate::trace::function_stats::{Role, Tracing};
use crate::trace::thread::{self, NOWHERE, Open};
use crate::trace::traces::{Owner, Trace};
use crate::trace::{callees, clock, monitoring_tool, setting};

/// Functions that the program has decorated, and how; blocks that it has been in. Reached with the GIL held only.
#[derive(Default)]
struct ProgramTraces {
    functions: Vec<(Py<PyAny>, proto::Trace)>,
    blocks: HashMap<(usize, u32), Arc<Trace>>,
}

static OWN: Mutex<Option<ProgramTraces>> = Mutex::new(None);

/// Puts the functions into the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(trace_function, module)?)?;
    module.add_function(wrap_pyfunction!(block_enter, module)?)?;
    module.add_function(wrap_pyfunction!(block_exit, module)?)
}

/// Trace a function from now on, with rows of calls, of lines, too, or with none. Returns the number of the trace.
#[pyfunction]
fn trace_function(
    function: &Bound<'_, PyAny>,
    depth: u32,
    watch: Vec<String>,
    rows: &str,
    budget_ppm: Option<u32>,
) -> PyResult<u32> {
    let py = function.py();
    lifecycle::prepare(py)?;
    let name: String = function
        .getattr("__qualname__")
        .and_then(|name| name.extract())?;
    let wanted = proto::Trace {
        scope: Scope::Function {
            function: name,
            file: None,
        },
        depth,
        watch,
        stats: rows == "none",
        lines: rows == "lines",
        for_millis: None,
        steps: None,
        budget_ppm,
    };
    let id = begin(function, &wanted).map_err(raised)?;
    own()
        .get_or_insert_default()
        .functions
        .push((function.clone().unbind(), wanted));
    Ok(id)
}

fn begin(function: &Bound<'_, PyAny>, wanted: &proto::Trace) -> Result<u32, Failure> {
    let py = function.py();
    let code = crate::trace::code_of(function)?;
    monitoring_tool::know(function);
    let trace = setting::new(py, wanted.clone(), Owner::Program, None)?;
    let found = || FoundCode {
        spot: SourceLocation {
            func: qualified(&code, wanted),
            file: frame::file_of(&code),
            lineno: frame::first_line_of(&code),
        },
        code: code.clone(),
    };
    let note = setting::bind(&trace, vec![found()], Role::Root);
    trace.note(note);
    monitoring_tool::tell_function(&code);
    let mut points = Vec::new();
    for name in &wanted.watch {
        let Scope::Function { function, .. } = &wanted.scope else {
            break;
        };
        points.push(breakpoints::watch_local(py, function, name, found())?);
    }
    trace.watched_by(points);
    setting::changed();
    Ok(trace.id.0)
}

/// As functions call themselves; before 3.11 code knows only its name.
fn qualified(code: &Bound<'_, PyAny>, wanted: &proto::Trace) -> String {
    match &wanted.scope {
        Scope::Function { function, .. } => function.clone(),
        Scope::Module { .. } => frame::name_of(code),
    }
}

/// Follow what the caller of the caller calls, on this thread, and watch its variables, until `block_exit` gets what comes
/// back.
#[pyfunction]
fn block_enter(
    py: Python<'_>,
    name: String,
    depth: u32,
    watch: Vec<String>,
    budget_ppm: Option<u32>,
) -> PyResult<(usize, Vec<u32>)> {
    let own_frame = frame::current(py);
    if let Some(frame) = &own_frame {
        callees::leave_out(&frame::file_of(&frame::code_of(frame)));
    }
    let Some(frame) = own_frame.as_ref().and_then(frame::caller_of) else {
        return Err(PyRuntimeError::new_err("it has no calling code"));
    };
    lifecycle::prepare(py)?;
    let points = watch_in(&frame, &watch).map_err(raised)?;
    let code = if depth > 0 {
        follow_from(&frame, name, depth, budget_ppm)?
    } else {
        0
    };
    Ok((code, points.into_iter().map(|point| point.0).collect()))
}

/// End what `block_enter` began.
#[pyfunction]
fn block_exit(py: Python<'_>, block: (usize, Vec<u32>)) {
    let (code, points) = block;
    if code != 0 {
        thread::with_own(|thread| thread.leave(code));
        follow_here(py);
    }
    let points: Vec<BreakpointId> = points.into_iter().map(BreakpointId).collect();
    if !points.is_empty() {
        breakpoints::disarm(py, &points);
    }
}

/// What a frame's code calls is followed on this thread. The code's address.
fn follow_from(
    frame: &Bound<'_, PyAny>,
    name: String,
    depth: u32,
    budget_ppm: Option<u32>,
) -> PyResult<usize> {
    let py = frame.py();
    let code = frame::code_of(frame);
    let key = (code.as_ptr() as usize, depth);
    let is_known = own().get_or_insert_default().blocks.contains_key(&key);
    if !is_known {
        let wanted = proto::Trace {
            scope: Scope::Function {
                function: name,
                file: None,
            },
            depth,
            watch: Vec::new(),
            stats: false,
            lines: false,
            for_millis: None,
            steps: None,
            budget_ppm,
        };
        let trace = setting::new(py, wanted, Owner::Program, None).map_err(raised)?;
        let spot = frame::spot_of(frame);
        let found = FoundCode {
            code: code.clone(),
            spot,
        };
        setting::bind(&trace, vec![found], Role::Block);
        own().get_or_insert_default().blocks.insert(key, trace);
    }
    let trace = own()
        .as_ref()
        .and_then(|own| Some(own.blocks.get(&key)?.id));
    let open = Open {
        code: key.0,
        began: clock::now(),
        of_others: 0,
        levels: depth,
        trace: trace.unwrap_or(TraceId(0)),
        place: NOWHERE,
        row: TraceRowId::NOWHERE,
    };
    thread::with_own(|thread| thread.enter(open));
    follow_here(py);
    let looks_again = table(py).entry_there(key.0).is_some_and(|entry| {
        let tracing = entry.tracing.as_mut();
        tracing.is_some_and(Tracing::looks_again)
    });
    if looks_again {
        monitoring_tool::restart(py);
    }
    Ok(key.0)
}

/// Variables of the function that a frame runs are watched, or of its module, where it is none; or what a path leads to.
fn watch_in(frame: &Bound<'_, PyAny>, names: &[String]) -> Result<Vec<BreakpointId>, Failure> {
    let py = frame.py();
    let code = probe_call::own_code(frame::code_of(frame));
    let is_function = frame::is_function(&code);
    let mut points = Vec::new();
    for name in names {
        let armed = if name.contains(['.', '[']) {
            breakpoints::arm_for_trace(
                py,
                setting::recorded(BreakpointLocation::Value { path: name.clone() }),
                None,
            )
        } else if is_function {
            let found = FoundCode {
                code: code.clone(),
                spot: frame::spot_of(frame),
            };
            breakpoints::watch_local(py, &frame::name_of(&code), name, found)
        } else {
            let path = format!("{}.{name}", module_of(frame));
            breakpoints::arm_for_trace(
                py,
                setting::recorded(BreakpointLocation::Value { path }),
                None,
            )
        };
        match armed {
            Ok(point) => points.push(point),
            Err(failure) => {
                breakpoints::disarm(py, &points);
                return Err(failure);
            }
        }
    }
    Ok(points)
}

/// Before 3.12: the thread tells what it calls while it is in such a block.
fn follow_here(py: Python<'_>) {
    if !monitoring::is_there(py) {
        profile::set_on_this_thread();
    }
}

/// In the child of a fork: what the program asked for goes on there.
pub(crate) fn after_fork(py: Python<'_>) {
    let functions = {
        let mut own = own();
        let Some(own) = own.as_mut() else {
            return;
        };
        own.blocks.clear();
        own.functions
            .iter()
            .map(|(function, wanted)| (function.clone_ref(py), wanted.clone()))
            .collect::<Vec<_>>()
    };
    for (function, wanted) in &functions {
        // A child in which that cannot be goes on without.
        drop(begin(function.bind(py), wanted));
    }
}

fn own() -> MutexGuard<'static, Option<ProgramTraces>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn raised(failure: Failure) -> PyErr {
    let hint = failure.hint.map(|hint| format!("\nhint: {hint}"));
    PyTypeError::new_err(format!("{}{}", failure.error, hint.unwrap_or_default()))
}
