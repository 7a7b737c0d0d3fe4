//! Breakpoints, watches and stops in words: one line each.

use probing_proto::visible;
use std::time::Duration;

use probing_proto::stops::{Action, Driver, Place, Point, Spot, Stop, WentOn};

/// Places of one point that are written out.
const SHOWN: usize = 3;

/// What came of arming it: where it is, what it does, what that costs, how long it stays.
pub(crate) fn armed(point: &Point) -> String {
    let mut parts = vec![what(point)];
    parts.extend(terms(point));
    if !point.cost.is_empty() {
        parts.push(format!("cost: {} ({})", point.cost, point.by));
    }
    parts.push(stays(point));
    parts.extend(note(point));
    format!("{}: {}", name(point), parts.join("; "))
}

/// What it has seen so far.
pub(crate) fn listed(point: &Point) -> String {
    let mut parts = vec![what(point)];
    parts.extend(terms(point));
    parts.push(seen(point));
    parts.push(stays(point));
    parts.extend(note(point));
    format!("{}: {}", name(point), parts.join("; "))
}

pub(crate) fn disarmed(point: &Point) -> String {
    let place = bound(point);
    format!("{} disarmed: {place}; {}", name(point), seen(point))
}

/// `breakpoint 1`, `watch 2`
pub(crate) fn name(point: &Point) -> String {
    let kind = if is_watch(point) {
        "watch"
    } else {
        "breakpoint"
    };
    format!("{kind} {}", point.point.0)
}

/// What else is to be known about it.
fn note(point: &Point) -> Option<String> {
    let note = point.note.as_ref()?;
    Some(format!("note: {}", visible::line(note)))
}

fn is_watch(point: &Point) -> bool {
    point.armed.place.is_watch()
}

/// As a user would have typed it.
pub(crate) fn place(place: &Place) -> String {
    let text = match place {
        Place::Line { file, line } => format!("{file}:{line}"),
        Place::Function { function } => function.clone(),
        Place::Raise { exception: None } => "any exception that is raised".to_owned(),
        Place::Raise {
            exception: Some(exception),
        } => format!("{exception} where it is raised"),
        Place::Uncaught => "an exception that nobody handles".to_owned(),
        Place::Local { function, name } => format!("{function}:{name}"),
        Place::Value { path } => path.clone(),
        Place::Environment { name } => format!("env:{name}"),
    };
    visible::line(&text).into_owned()
}

/// `train_step (/home/ann/train.py:120)`
pub(crate) fn spot(spot: &Spot) -> String {
    let (func, file) = (visible::line(&spot.func), visible::line(&spot.file));
    format!("{func} ({file}:{})", spot.lineno)
}

/// Where it is, and what it does there.
fn what(point: &Point) -> String {
    let does = match &point.armed.action {
        Action::Stop => "stops".to_owned(),
        Action::Log { text } => format!("logs {text:?}"),
        Action::Snapshot => "takes a snapshot".to_owned(),
        Action::Count if is_watch(point) => "records changes".to_owned(),
        Action::Count => "counts".to_owned(),
    };
    format!("{}: {does}", bound(point))
}

/// The code that it was found in; where it has none, what was asked for.
fn bound(point: &Point) -> String {
    let asked = place(&point.armed.place);
    let spots: Vec<String> = point.bound.iter().take(SHOWN).map(spot).collect();
    let more = point.bound.len().saturating_sub(SHOWN);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    match &point.armed.place {
        Place::Line { .. } | Place::Function { .. } | Place::Local { .. } if spots.is_empty() => {
            format!("{asked} (no such code is loaded yet)")
        }
        Place::Line { .. } | Place::Function { .. } => format!("{}{more}", spots.join(", ")),
        Place::Local { name, .. } => format!("{name} in {}{more}", spots.join(", ")),
        _ if spots.is_empty() => asked,
        _ => format!("{asked} in {}{more}", spots.join(", ")),
    }
}

/// When it does something.
fn terms(point: &Point) -> Vec<String> {
    let arm = &point.armed;
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

fn seen(point: &Point) -> String {
    let mut seen = format!("hit {}", times(point.hits));
    let did = match point.armed.action {
        Action::Stop => "stopped",
        Action::Log { .. } => "logged",
        Action::Snapshot => "taken",
        Action::Count => return with_dropped(seen, point),
    };
    seen.push_str(&format!(", {did} {}", times(point.fired)));
    with_dropped(seen, point)
}

fn with_dropped(mut seen: String, point: &Point) -> String {
    if point.dropped > 0 {
        seen.push_str(&format!(
            ", {} left out (too many in a second)",
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

fn stays(point: &Point) -> String {
    match point.expires_in_millis {
        Some(millis) => format!("armed for {}", duration(millis)),
        None => "armed until it is disarmed".to_owned(),
    }
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

/// `stop 1: MainThread in train_step (/home/ann/train.py:120): breakpoint 1; nobody drives it; goes on in 9m 59s`
pub(crate) fn stop(stop: &Stop) -> String {
    let driver = match stop.driver {
        Driver::Nobody => "nobody drives it",
        Driver::You => "you drive it",
        Driver::Another => "somebody drives it",
    };
    format!(
        "stop {}: {} in {}: {}; {driver}; stopped for {}, goes on in {}",
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
        "stop {}: {thread} goes on from {}",
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

/// Why it goes on.
pub(crate) fn because(because: WentOn) -> &'static str {
    match because {
        WentOn::Asked => "somebody let it",
        WentOn::Deadline => "its time was over",
        WentOn::DriverGone => "its driver has gone",
        WentOn::Detached => "the probe was taken out",
        WentOn::ThreadEnded => "its thread has ended",
        WentOn::Interrupted => "Ctrl-C came to the program",
    }
}

#[cfg(test)]
mod tests {
    use probing_proto::stops::{Arm, Hold, PointId};

    use super::*;

    fn point(place: Place, action: Action) -> Point {
        Point {
            point: PointId(1),
            armed: Arm {
                place,
                condition: None,
                hits: 1,
                once: false,
                action,
                stats: false,
                own: false,
                ttl_millis: None,
                expression_millis: None,
                hold: Hold::default(),
            },
            bound: Vec::new(),
            cost: "nothing but at that line".to_owned(),
            by: "sys.monitoring".to_owned(),
            hits: 0,
            fired: 0,
            dropped: 0,
            expires_in_millis: Some(600_000),
            note: None,
        }
    }

    fn line() -> Place {
        Place::Line {
            file: "train.py".to_owned(),
            line: 120,
        }
    }

    fn spot(lineno: u32) -> Spot {
        Spot {
            func: "step".to_owned(),
            file: "/w/train.py".to_owned(),
            lineno,
        }
    }

    #[test]
    fn one_line_says_where_it_is_and_what_it_costs() {
        let mut breakpoint = point(line(), Action::Stop);
        breakpoint.bound = vec![spot(120)];
        breakpoint.armed.condition = Some("loss > 10".to_owned());
        insta::assert_snapshot!(armed(&breakpoint), @"breakpoint 1: step (/w/train.py:120): stops; if loss > 10; cost: nothing but at that line (sys.monitoring); armed for 10m");
        breakpoint.bound = (120..125).map(spot).collect();
        breakpoint.hits = 12;
        breakpoint.fired = 1;
        insta::assert_snapshot!(listed(&breakpoint), @"breakpoint 1: step (/w/train.py:120), step (/w/train.py:121), step (/w/train.py:122) and 2 more: stops; if loss > 10; hit 12 times, stopped once; armed for 10m");
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
        insta::assert_snapshot!(listed(&log), @r#"breakpoint 1: train.py:120 (no such code is loaded yet): logs "{x}"; hit 0 times, logged 0 times, 7 left out (too many in a second); armed until it is disarmed"#);
    }

    #[test]
    fn a_watch_names_what_it_watches() {
        let place = Place::Local {
            function: "step".to_owned(),
            name: "lr".to_owned(),
        };
        let mut watch = point(place, Action::Count);
        watch.bound = vec![spot(118)];
        watch.cost = String::new();
        insta::assert_snapshot!(armed(&watch), @"watch 1: lr in step (/w/train.py:118): records changes; armed for 10m");
        let place = Place::Environment {
            name: "RATE".to_owned(),
        };
        insta::assert_snapshot!(disarmed(&point(place, Action::Stop)), @"watch 1 disarmed: env:RATE; hit 0 times, stopped 0 times");
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
