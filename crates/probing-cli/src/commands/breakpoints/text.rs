//! Breakpoints, watchpoints and stops as text, one line each.

use probing_proto::text::visible;
use std::time::Duration;

use probing_proto::message::breakpoints::{
    Action, Breakpoint, BreakpointLocation, Controller, NO_PYTHON_CODE, ResumeReason,
    SourceLocation, Stop,
};

/// Places of one point that are written out.
const SHOWN: usize = 3;

/// A breakpoint that was set: its place, action, cost and expiry.
pub(crate) fn armed(point: &Breakpoint) -> String {
    let mut parts = vec![what(point)];
    parts.extend(terms(point));
    if !point.cost.is_empty() {
        parts.push(format!("cost: {} ({})", point.cost, point.by));
    }
    parts.extend(stays(point));
    parts.extend(note(point));
    format!("{}: {}", name(point), parts.join("; "))
}

/// Its hits so far.
pub(crate) fn listed(point: &Breakpoint) -> String {
    let mut parts = vec![what(point)];
    parts.extend(terms(point));
    parts.push(seen(point));
    parts.extend(stays(point));
    parts.extend(note(point));
    format!("{}: {}", name(point), parts.join("; "))
}

pub(crate) fn disarmed(point: &Breakpoint) -> String {
    let place = bound(point);
    format!("{} deleted: {place}; {}", name(point), seen(point))
}

/// `breakpoint 1`, `watch 2`
pub(crate) fn name(point: &Breakpoint) -> String {
    let kind = if is_watch(point) {
        "watch"
    } else {
        "breakpoint"
    };
    format!("{kind} {}", point.point.0)
}

/// What else is to be known about it.
fn note(point: &Breakpoint) -> Option<String> {
    let note = point.note.as_ref().filter(|_| !is_missing(point))?;
    let note = visible::line(note);
    // Of one that is over, that is what has become of it.
    Some(if point.over {
        note.into_owned()
    } else {
        format!("note: {note}")
    })
}

/// Whether its place is in code, of which there is none yet: the note says why.
fn is_missing(point: &Breakpoint) -> bool {
    let is_code = matches!(
        point.request.place,
        BreakpointLocation::Line { .. }
            | BreakpointLocation::Function { .. }
            | BreakpointLocation::Local { .. }
    );
    is_code && point.bound.is_empty() && !point.over
}

fn is_watch(point: &Breakpoint) -> bool {
    point.request.place.is_watch()
}

/// As a user would have typed it.
pub(crate) fn place(place: &BreakpointLocation) -> String {
    let text = match place {
        BreakpointLocation::Line { file, line } => format!("{file}:{line}"),
        BreakpointLocation::Function { function } => function.clone(),
        BreakpointLocation::Raise { exception: None } => "any raised exception".to_owned(),
        BreakpointLocation::Raise {
            exception: Some(exception),
        } => format!("raised {exception}"),
        BreakpointLocation::Uncaught => "an uncaught exception".to_owned(),
        BreakpointLocation::Local { function, name } => format!("{function}:{name}"),
        BreakpointLocation::Value { path } => path.clone(),
        BreakpointLocation::Environment { name } => format!("env:{name}"),
    };
    visible::line(&text).into_owned()
}

/// `train_step (/home/ann/train.py:120)`
pub(crate) fn spot(spot: &SourceLocation) -> String {
    let (func, file) = (visible::line(&spot.func), visible::line(&spot.file));
    format!("{func} ({file}:{})", spot.lineno)
}

/// Where it is, and what it does there.
fn what(point: &Breakpoint) -> String {
    let does = match &point.request.action {
        Action::Stop => "stops".to_owned(),
        Action::Log { text } => format!("logs {text:?}"),
        Action::Snapshot => "takes a snapshot".to_owned(),
        Action::Count if is_watch(point) => "records changes".to_owned(),
        Action::Count => "counts".to_owned(),
    };
    format!("{}: {does}", bound(point))
}

/// The code that it was found in; where it has none, what was asked for.
fn bound(point: &Breakpoint) -> String {
    let asked = place(&point.request.place);
    let spots: Vec<String> = point.bound.iter().take(SHOWN).map(spot).collect();
    let more = point.bound.len().saturating_sub(SHOWN);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    match &point.request.place {
        _ if is_missing(point) => {
            let why = point.note.as_deref();
            let why = visible::line(why.unwrap_or("code not loaded yet"));
            format!("{asked} ({why})")
        }
        _ if spots.is_empty() => asked,
        BreakpointLocation::Line { .. } | BreakpointLocation::Function { .. } => {
            format!("{}{more}", spots.join(", "))
        }
        BreakpointLocation::Local { name, .. } => format!("{name} in {}{more}", spots.join(", ")),
        _ => format!("{asked} in {}{more}", spots.join(", ")),
    }
}

/// Why no code was found: it is not loaded yet, or what has that name is something without code of Python's.
pub(crate) fn why_unbound(note: Option<&str>) -> String {
    let what = note.and_then(|note| note.strip_suffix(NO_PYTHON_CODE));
    let what = what.and_then(|what| Some(what.split_once(" is ")?.1));
    visible::line(what.unwrap_or("code not loaded yet")).into_owned()
}

/// When it does something.
fn terms(point: &Breakpoint) -> Vec<String> {
    let arm = &point.request;
    let mut terms = Vec::new();
    terms.extend(
        arm.condition
            .as_ref()
            .map(|condition| format!("if {condition}")),
    );
    if arm.hits > 1 {
        terms.push(format!("from hit {} on", arm.hits));
    }
    if arm.once {
        terms.push("once".to_owned());
    }
    terms
}

fn seen(point: &Breakpoint) -> String {
    let mut seen = format!("hit {}", times(point.hits));
    let did = match point.request.action {
        Action::Stop => "stopped",
        Action::Log { .. } => "logged",
        Action::Snapshot => "taken",
        Action::Count => return with_dropped(seen, point),
    };
    seen.push_str(&format!(", {did} {}", times(point.fired)));
    with_dropped(seen, point)
}

fn with_dropped(mut seen: String, point: &Breakpoint) -> String {
    if point.dropped > 0 {
        seen.push_str(&format!(
            ", {} dropped (too many in a second)",
            point.dropped
        ));
    }
    seen
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

/// Its expiry, while it is set.
fn stays(point: &Breakpoint) -> Option<String> {
    (!point.over).then(|| match point.expires_in_millis {
        Some(millis) => format!("expires in {}", duration(millis)),
        None => "set until deleted".to_owned(),
    })
}

/// The two largest units: `9m 59s`, `2h 5m`; less than a second is `1s`.
pub(crate) fn duration(millis: u64) -> String {
    let seconds = Duration::from_millis(millis).as_secs_f64().ceil() as u64;
    let (large, small) = match seconds {
        0..60 => return format!("{}s", seconds.max(1)),
        60..3600 => ((seconds / 60, "m"), (seconds % 60, "s")),
        _ => ((seconds / 3600, "h"), (seconds / 60 % 60, "m")),
    };
    match small {
        (0, _) => format!("{}{}", large.0, large.1),
        (amount, unit) => format!("{}{} {amount}{unit}", large.0, large.1),
    }
}

/// `stop 1: MainThread in train_step (/home/ann/train.py:120): breakpoint 1; no controlling client; resumes in 9m 59s`
pub(crate) fn stop(stop: &Stop) -> String {
    let driver = match stop.driver {
        Controller::Nobody => "no controlling client",
        Controller::You => "controlled by you",
        Controller::Another => "controlled by another client",
    };
    format!(
        "stop {}: {} in {}: {}; {driver}; stopped for {}, resumes in {}",
        stop.stop.0,
        visible::line(&stop.thread_name),
        innermost(stop),
        stop.why,
        duration(stop.since_millis),
        duration(stop.ends_in_millis)
    )
}

pub(crate) fn released(stop: &Stop) -> String {
    let thread = visible::line(&stop.thread_name);
    format!(
        "stop {}: {thread} resumed at {}",
        stop.stop.0,
        innermost(stop)
    )
}

/// Where it is.
pub(crate) fn innermost(stop: &Stop) -> String {
    let first = stop.frames.first();
    first.map_or_else(|| "no Python code".to_owned(), spot)
}

/// `lr: 0.1 → 0.01`
pub(crate) fn change(name: &str, old: &str, new: &str) -> String {
    visible::line(&format!("{name}: {old} → {new}")).into_owned()
}

/// Why it resumed.
pub(crate) fn because(because: ResumeReason) -> &'static str {
    match because {
        ResumeReason::Asked => "a client asked for it",
        ResumeReason::Deadline => "its timeout expired",
        ResumeReason::DriverGone => "its controlling client disconnected",
        ResumeReason::Detached => "the probe was detached",
        ResumeReason::ThreadEnded => "its thread ended",
        ResumeReason::Interrupted => "the program received Ctrl-C",
    }
}

#[cfg(test)]
mod tests {
    use probing_proto::message::breakpoints::{BreakpointId, SetBreakpoint, StopPolicy};

    use super::*;

    fn point(place: BreakpointLocation, action: Action) -> Breakpoint {
        Breakpoint {
            point: BreakpointId(1),
            request: SetBreakpoint {
                place,
                condition: None,
                hits: 1,
                once: false,
                action,
                stats: false,
                own: false,
                ttl_millis: None,
                expression_millis: None,
                hold: StopPolicy::default(),
            },
            bound: Vec::new(),
            cost: "nothing but at that line".to_owned(),
            by: "sys.monitoring".to_owned(),
            hits: 0,
            fired: 0,
            dropped: 0,
            expires_in_millis: Some(600_000),
            over: false,
            note: None,
        }
    }

    fn line() -> BreakpointLocation {
        BreakpointLocation::Line {
            file: "train.py".to_owned(),
            line: 120,
        }
    }

    fn spot(lineno: u32) -> SourceLocation {
        SourceLocation {
            func: "step".to_owned(),
            file: "/w/train.py".to_owned(),
            lineno,
        }
    }

    #[test]
    fn what_has_no_python_code_is_called_what_it_is() {
        let mut breakpoint = point(line(), Action::Stop);
        let notes = [
            format!("time.sleep is a C function, in which Python has no lines{NO_PYTHON_CODE}"),
            "no loaded function is named nowhere: set for when one is loaded".to_owned(),
        ];
        for why in notes {
            breakpoint.note = Some(why.clone());
            assert_eq!(bound(&breakpoint), format!("train.py:120 ({why})"));
            assert_eq!(note(&breakpoint), None);
        }
    }

    #[test]
    fn one_line_says_where_it_is_and_what_it_costs() {
        let mut breakpoint = point(line(), Action::Stop);
        breakpoint.bound = vec![spot(120)];
        breakpoint.request.condition = Some("loss > 10".to_owned());
        insta::assert_snapshot!(armed(&breakpoint), @"breakpoint 1: step (/w/train.py:120): stops; if loss > 10; cost: nothing but at that line (sys.monitoring); expires in 10m");
        breakpoint.bound = (120..125).map(spot).collect();
        breakpoint.hits = 12;
        breakpoint.fired = 1;
        insta::assert_snapshot!(listed(&breakpoint), @"breakpoint 1: step (/w/train.py:120), step (/w/train.py:121), step (/w/train.py:122) and 2 more: stops; if loss > 10; hit 12 times, stopped once; expires in 10m");
    }

    #[test]
    fn code_that_is_not_there_yet_is_said_to_be() {
        let mut log = point(
            line(),
            Action::Log {
                text: "{x}".to_owned(),
            },
        );
        log.expires_in_millis = None;
        log.dropped = 7;
        insta::assert_snapshot!(listed(&log), @r#"breakpoint 1: train.py:120 (code not loaded yet): logs "{x}"; hit 0 times, logged 0 times, 7 dropped (too many in a second); set until deleted"#);
        let function = "time.sleep".to_owned();
        let mut sleep = point(BreakpointLocation::Function { function }, Action::Stop);
        sleep.note = Some("time.sleep is a C function".to_owned());
        insta::assert_snapshot!(listed(&sleep), @"breakpoint 1: time.sleep (time.sleep is a C function): stops; hit 0 times, stopped 0 times; expires in 10m");
        sleep.over = true;
        sleep.note = Some("deleted: expired".to_owned());
        insta::assert_snapshot!(listed(&sleep), @"breakpoint 1: time.sleep: stops; hit 0 times, stopped 0 times; deleted: expired");
    }

    #[test]
    fn one_that_is_over_says_why_and_not_how_long_it_stays() {
        let mut breakpoint = point(line(), Action::Stop);
        breakpoint.bound = vec![spot(120)];
        breakpoint.over = true;
        breakpoint.note = Some("deleted: expired".to_owned());
        insta::assert_snapshot!(listed(&breakpoint), @"breakpoint 1: step (/w/train.py:120): stops; hit 0 times, stopped 0 times; deleted: expired");
    }

    #[test]
    fn a_watch_names_what_it_watches() {
        let place = BreakpointLocation::Local {
            function: "step".to_owned(),
            name: "lr".to_owned(),
        };
        let mut watch = point(place, Action::Count);
        watch.bound = vec![spot(118)];
        watch.cost = String::new();
        insta::assert_snapshot!(armed(&watch), @"watch 1: lr in step (/w/train.py:118): records changes; expires in 10m");
        let place = BreakpointLocation::Environment {
            name: "RATE".to_owned(),
        };
        insta::assert_snapshot!(disarmed(&point(place, Action::Stop)), @"watch 1 deleted: env:RATE; hit 0 times, stopped 0 times");
    }

    #[test]
    fn times_have_their_two_largest_units() {
        for (millis, text) in [
            (0, "1s"),
            (999, "1s"),
            (59_001, "1m"),
            (61_000, "1m 1s"),
            (7_500_000, "2h 5m"),
        ] {
            assert_eq!(duration(millis), text);
        }
    }
}
