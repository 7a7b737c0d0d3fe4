//! Traces as text, one line each.

use probing_proto::text::visible;
use std::time::Duration;

use probing_proto::message::breakpoints::SourceLocation;
use probing_proto::message::trace::{FOLLOWED_ELSEWHERE, MILLION, Scope, TraceStatus};

use crate::commands::breakpoints::text::{spot, why_unbound};

/// Functions of one trace that are written out.
const SHOWN: usize = 3;

/// What came of beginning it: what it follows, what that costs, how long.
pub(super) fn begun(trace: &TraceStatus) -> String {
    let mut parts = vec![bound(trace)];
    parts.push(format!("cost: {} ({})", trace.cost, trace.by));
    parts.push(lasts(trace));
    parts.extend(note(trace));
    format!("{}: {}", name(trace), parts.join("; "))
}

/// What it has seen so far, and what that has cost.
pub(super) fn listed(trace: &TraceStatus) -> String {
    let mut parts = vec![bound(trace), seen(trace)];
    parts.extend(muted(trace));
    if !trace.ended {
        parts.push(lasts(trace));
    }
    parts.extend(note(trace));
    format!("{}: {}", name(trace), parts.join("; "))
}

pub(super) fn ended(trace: &TraceStatus) -> String {
    let mut parts = vec![seen(trace)];
    parts.extend(muted(trace));
    let what = asked(trace);
    format!("{} ended: {what}; {}", name(trace), parts.join("; "))
}

fn name(trace: &TraceStatus) -> String {
    format!("trace {}", trace.trace.0)
}

/// As a user would have typed it.
fn asked(trace: &TraceStatus) -> String {
    match &trace.request.scope {
        Scope::Function {
            function,
            file: Some(file),
        } => format!("{file}:{function}"),
        Scope::Function {
            function,
            file: None,
        } => function.clone(),
        Scope::Module { module } => format!("module {module}"),
    }
}

/// What it follows.
fn bound(trace: &TraceStatus) -> String {
    let spots: Vec<String> = trace.bound.iter().take(SHOWN).map(place).collect();
    let more = (trace.functions as usize).saturating_sub(spots.len());
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let note = trace.note.as_deref().unwrap_or_default();
    let what = if !spots.is_empty() {
        format!("{}{more}", spots.join(", "))
    } else if note.ends_with(FOLLOWED_ELSEWHERE) {
        asked(trace)
    } else {
        format!("{} ({})", asked(trace), why_unbound(trace.note.as_deref()))
    };
    let mut parts = vec![what];
    if trace.request.depth > 0 {
        parts.push(format!("callees down to {}", trace.request.depth));
    }
    if trace.request.lines {
        parts.push("each of its lines".to_owned());
    }
    if trace.request.stats {
        parts.push("sums only".to_owned());
    }
    if !trace.request.watch.is_empty() {
        parts.push(format!("changes of {}", trace.request.watch.join(", ")));
    }
    parts.join("; ")
}

fn place(function: &SourceLocation) -> String {
    spot(function)
}

fn seen(trace: &TraceStatus) -> String {
    let share = percent(trace.cost_ppm);
    let TraceStatus {
        events,
        event_nanos,
        ..
    } = trace;
    format!("{events} events; cost so far {share} of CPU time ({event_nanos} ns an event)")
}

fn percent(ppm: u64) -> String {
    format!("{:.2} %", ppm as f64 * 100.0 / f64::from(MILLION))
}

fn muted(trace: &TraceStatus) -> Option<String> {
    let budget = percent(trace.request.budget_ppm?.into());
    match (trace.mutings, trace.muted) {
        (0, _) => None,
        (mutings, 0) => Some(format!(
            "recorded in part: throttled to stay within {budget}, {}",
            times(mutings)
        )),
        (mutings, muted) => Some(format!(
            "{muted} {} throttled to stay within {budget}, {} so far",
            if muted == 1 { "function" } else { "functions" },
            times(mutings)
        )),
    }
}

/// `once`, `3 times`
fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

fn lasts(trace: &TraceStatus) -> String {
    let steps = trace
        .request
        .steps
        .map(|steps| format!("for {steps} steps"));
    let time = trace.expires_in_millis.map(|millis| {
        let seconds = Duration::from_millis(millis).as_secs_f64();
        format!("ends in {seconds:.0} s")
    });
    let parts: Vec<String> = steps.into_iter().chain(time).collect();
    if parts.is_empty() {
        "until it is ended".to_owned()
    } else {
        parts.join(", ")
    }
}

fn note(trace: &TraceStatus) -> Option<String> {
    let note = trace.note.as_ref()?;
    Some(format!("note: {}", visible::line(note)))
}
